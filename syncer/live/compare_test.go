package live_test

import (
	"fmt"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/live"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// manifests decodes a file; it fails the test on a problem.
func manifests(t failer, path, text string) (out []*api.Manifest) {
	t.Helper()
	decoded, problems := api.DecodeFile(path, []byte(text), api.DecodeOptions{DefaultNamespace: "default"})
	if len(problems) > 0 {
		t.Fatalf("problems: %v in\n%s", problems, text)
	}
	for i := range decoded {
		out = append(out, &decoded[i])
	}
	return out
}

func compare(t failer, m *api.Manifest, obj api.Object) *live.Drift {
	t.Helper()
	d, err := live.Compare(m, obj)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

func copied[T api.Object](obj T) T { return obj.DeepCopyObject().(T) }

const web = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {example.com/tier: front}
spec:
  replicas: 3
  minReadySeconds: 0
  selector: {matchLabels: {app: web}}
  strategy:
    rollingUpdate: {maxSurge: 25%}
  template:
    metadata: {labels: {app: web}, annotations: {mine: x}}
    spec:
      nodeSelector: {disk: ssd}
      hostNetwork: false
      tolerations:
      - {key: a, operator: Exists}
      containers:
      - name: web
        image: web:1
        args: [a, b]
        resources: {limits: {cpu: 1000m, memory: 1}}
        env: []
        ports:
        - {containerPort: 53}
        - {containerPort: 53, protocol: UDP}
        livenessProbe: {httpGet: {path: /, port: 80}}
        volumeMounts: [{name: tmp, mountPath: /tmp}]
      - name: side
        image: side:1
      volumes:
      - name: tmp
        emptyDir: {}
`

func TestCompare(t *testing.T) {
	m := manifests(t, "web/deployment.yaml", web)[0]
	const spec = "Deployment default/web: spec.template.spec."
	for name, tt := range map[string]struct {
		edit func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container)
		want string
	}{
		"in sync": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) {}, ""},
		"undeclared fields": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) {
			d.Annotations = map[string]string{"x": "y"}
			d.Labels["x"] = "y"
			d.Status.Replicas = 9
			d.Spec.Paused = true
			s.Containers = append([]corev1.Container{{Name: "injected", Image: "i"}}, s.Containers...)
			s.Containers[1].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
			s.Containers[1].LivenessProbe.PeriodSeconds = 99
			s.Containers[1].Ports = append(s.Containers[1].Ports, corev1.ContainerPort{ContainerPort: 80, Protocol: "TCP"})
		}, ""},
		"a number": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) { d.Spec.Replicas = new(int32(5)) },
			"Deployment default/web: spec.replicas: declared 3, live 5 (web/deployment.yaml:7)"},
		"a zero that is declared": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) { d.Spec.MinReadySeconds = 5 },
			"Deployment default/web: spec.minReadySeconds: declared 0, live 5 (web/deployment.yaml:8)"},
		"false that is declared": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) { s.HostNetwork = true },
			spec + "hostNetwork: declared false, live true (web/deployment.yaml:16)"},
		"the same amount spelled otherwise": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{"cpu": quantity("1"), "memory": quantity("1000m")}
		}, ""},
		"another amount": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{"cpu": quantity("2"), "memory": quantity("2")}
		}, spec + `containers[name="web"].resources.limits.cpu: declared 1000m, live "2" (web/deployment.yaml:23)` + "\n" +
			spec + `containers[name="web"].resources.limits.memory: declared 1, live 2 (web/deployment.yaml:23)`},
		"an image": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) { c.Image = "web:2" },
			spec + `containers[name="web"].image: declared web:1, live web:2 (web/deployment.yaml:21)`},
		"one of two ports": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) { c.Ports = c.Ports[:1] },
			spec + `containers[name="web"].ports[containerPort=53,protocol="UDP"]: declared {"containerPort":53,"protocol":"UDP"}, live not there (web/deployment.yaml:27)`},
		"the default of a key": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) { c.Ports = c.Ports[1:] },
			spec + `containers[name="web"].ports[containerPort=53,protocol="TCP"]: declared {"containerPort":53}, live not there (web/deployment.yaml:26)`},
		"a whole container": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) { s.Containers = s.Containers[:1] },
			spec + `containers[name="side"]: declared {"image":"side:1","name":"side"}, live not there (web/deployment.yaml:30)`},
		"an order": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) {
			s.Containers[0], s.Containers[1] = s.Containers[1], s.Containers[0]
			s.Containers[0].Image = "side:2"
		}, spec + `containers: declared in the order ["web","side"], live ["side","web"] (web/deployment.yaml:19)`},
		"one value of many": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) {
			c.Args = []string{"a", "c"}
			s.NodeSelector["zone"] = "b"
			s.Tolerations = append(s.Tolerations, corev1.Toleration{Key: "b", Operator: "Exists"})
		}, spec + `containers[name="web"].args: declared ["a","b"], live ["a","c"] (web/deployment.yaml:22)` + "\n" +
			spec + `nodeSelector: declared {"disk":"ssd"}, live {"disk":"ssd","zone":"b"} (web/deployment.yaml:15)` + "\n" +
			spec + `tolerations: declared [{"key":"a","operator":"Exists"}], live [{"key":"a","operator":"Exists"},{"key":"b","operator":"Exists"}] (web/deployment.yaml:17)`},
		"a number that becomes a share": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) {
			d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(1))
		}, "Deployment default/web: spec.strategy.rollingUpdate.maxSurge: declared \"25%\", live 1 (web/deployment.yaml:11)"},
		"another choice": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}
		}, spec + `volumes[name="tmp"].emptyDir: declared {}, live not there (web/deployment.yaml:34)`},
		"labels and annotations": {func(d *appsv1.Deployment, s *corev1.PodSpec, c *corev1.Container) {
			d.Labels["example.com/tier"] = "back\x1b[31m"
			d.Spec.Template.Annotations = nil
		}, `Deployment default/web: metadata.labels[example.com/tier]: declared front, live "back\u001b[31m" (web/deployment.yaml:5)` + "\n" +
			`Deployment default/web: spec.template.metadata.annotations: declared {"mine":"x"}, live not there (web/deployment.yaml:13)`},
	} {
		t.Run(name, func(t *testing.T) {
			obj := copied(m.Object.(*appsv1.Deployment))
			tt.edit(obj, &obj.Spec.Template.Spec, &obj.Spec.Template.Spec.Containers[0])
			before, declared := copied(obj), fmt.Sprint(m.Declared)
			d := compare(t, m, obj)
			got := ""
			if d != nil {
				got = strings.Join(d.Text(), "\n")
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if !sameObject(before, obj) || declared != fmt.Sprint(m.Declared) {
				t.Error("an argument was changed")
			}
		})
	}
}

func TestCompareDeleted(t *testing.T) {
	ms := manifests(t, "a.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n"+web)
	for i, want := range []string{
		"Namespace a: declared, deleted live (a.yaml:1)",
		"Deployment default/web: declared, deleted live (a.yaml:5)",
	} {
		if got := compare(t, ms[i], nil).Text(); len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCompareRefusesDoubleItems(t *testing.T) {
	m := manifests(t, "a.yaml", strings.Replace(web, "env: []", "env: [{name: A, value: x}, {name: A}]", 1))[0]
	obj := copied(m.Object)
	if _, err := live.Compare(m, obj); err == nil || !strings.Contains(err.Error(), "Deployment default/web: ") || !strings.Contains(err.Error(), ".env has") {
		t.Errorf("error %v", err)
	}
}

// TestR14_TextOfSecrets looks for the declared and the live value in all that is
// said about a Secret.
func TestR14_TextOfSecrets(t *testing.T) {
	m := manifests(t, "s.yaml", `apiVersion: v1
kind: Secret
metadata:
  name: db
  labels: {a: b}
  annotations: {last: '{"data":{"password":"aHVzaA=="}}'}
data: {password: aHVzaA==, gone: aHVzaA==}
stringData: {token: hush}
type: Opaque
`)[0]
	obj := copied(m.Object.(*corev1.Secret))
	obj.Data = map[string][]byte{"password": []byte("is live"), "token": []byte("is live"), "more": []byte("is live")}
	obj.Annotations["last"] = `{"data":{"password":"is live"}}`
	obj.Labels["a"] = "c"
	got := strings.Join(compare(t, m, obj).Text(), "\n")
	want := `Secret default/db: data.gone: declared, live not there (s.yaml:7)
Secret default/db: data.password: differs (s.yaml:7)
Secret default/db: data.token: differs (s.yaml:8)
Secret default/db: metadata.annotations.last: differs (s.yaml:6)
Secret default/db: metadata.labels.a: declared b, live c (s.yaml:5)`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	obj.Data = nil
	all := got + strings.Join(compare(t, m, obj).Text(), "\n") + fmt.Sprintf("%+v", compare(t, m, obj).Fields)
	for _, secret := range []string{"hush", "is live", "aHVzaA", "aXMgbGl2ZQ"} {
		if strings.Contains(all, secret) {
			t.Errorf("says %q: %s", secret, all)
		}
	}
}

func sameObject(a, b api.Object) bool {
	x, errA := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	y, errB := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	return errA == nil && errB == nil && fmt.Sprint(x) == fmt.Sprint(y)
}
