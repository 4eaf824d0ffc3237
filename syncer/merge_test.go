package syncer

import (
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// manifests decodes files; it fails the test on a problem.
func manifests(t testing.TB, path, text string) []*api.Manifest {
	t.Helper()
	decoded, problems := api.DecodeFile(path, []byte(text), api.DecodeOptions{DefaultNamespace: "default"})
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	var out []*api.Manifest
	for i := range decoded {
		out = append(out, &decoded[i])
	}
	return out
}

func manifest(t testing.TB, text string) *api.Manifest {
	t.Helper()
	return manifests(t, "a.yaml", text)[0]
}

func born(m *api.Manifest) api.Object {
	obj := m.Object.DeepCopyObject().(api.Object)
	store.Stamp(obj, time.Unix(1000, 0))
	prepare(obj)
	return obj
}

const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {mine: x}}
    spec:
      nodeSelector: {disk: ssd}
      containers:
      - name: web
        image: web:1
        resources: {limits: {cpu: 1000m}}
        ports:
        - {containerPort: 53, protocol: TCP}
        - {containerPort: 53, protocol: UDP}
        livenessProbe: {httpGet: {path: /, port: 80}}
      - name: side
        image: side:1
`

func edit(text string, oldnew ...string) string { return strings.NewReplacer(oldnew...).Replace(text) }

func TestMerge(t *testing.T) {
	type d = *appsv1.Deployment
	for _, tt := range []struct {
		name  string
		next  string
		live  func(d)
		check func(t *testing.T, out d, changed []string)
	}{
		{"the same manifest changes nothing", web, nil, func(t *testing.T, _ d, changed []string) {
			if len(changed) != 0 {
				t.Errorf("changed %v", changed)
			}
		}},
		{"another spelling of the same value changes nothing", edit(web, "1000m", `"1"`), nil, func(t *testing.T, _ d, changed []string) {
			if len(changed) != 0 {
				t.Errorf("changed %v", changed)
			}
		}},
		{"undeclared fields stay", edit(web, "web:1", "web:2"), func(d d) {
			d.Annotations = map[string]string{"other": "x"}
			d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
			d.Spec.Template.Spec.PriorityClassName = "high"
			d.Status.Replicas = 3
		}, func(t *testing.T, out d, changed []string) {
			c := out.Spec.Template.Spec.Containers[0]
			if c.Image != "web:2" || len(c.Env) != 1 || out.Annotations["other"] != "x" || out.Status.Replicas != 3 || out.Spec.Template.Spec.PriorityClassName != "high" {
				t.Errorf("lost something: %+v", out)
			}
			if got := strings.Join(changed, " "); got != `spec.template.spec.containers[name="web"].image` {
				t.Errorf("changed %s", got)
			}
		}},
		{"one of 53/TCP and 53/UDP goes", edit(web, "        - {containerPort: 53, protocol: UDP}\n", ""), nil, func(t *testing.T, out d, _ []string) {
			p := out.Spec.Template.Spec.Containers[0].Ports
			if len(p) != 1 || p[0].Protocol != corev1.ProtocolTCP {
				t.Errorf("ports %v", p)
			}
		}},
		{"removed replicas leave the live value", edit(web, "  replicas: 3\n", ""), func(d d) { n := int32(7); d.Spec.Replicas = &n }, func(t *testing.T, out d, _ []string) {
			if *out.Spec.Replicas != 7 {
				t.Errorf("replicas %d", *out.Spec.Replicas)
			}
		}},
		{"a removed probe goes with its defaults", edit(web, "        livenessProbe: {httpGet: {path: /, port: 80}}\n", ""), nil, func(t *testing.T, out d, _ []string) {
			if p := out.Spec.Template.Spec.Containers[0].LivenessProbe; p != nil {
				t.Errorf("probe %+v", p)
			}
		}},
		{"a probe changes its handler", edit(web, "httpGet: {path: /, port: 80}", "tcpSocket: {port: 80}"), nil, func(t *testing.T, out d, _ []string) {
			p := out.Spec.Template.Spec.Containers[0].LivenessProbe
			if p == nil || p.HTTPGet != nil || p.TCPSocket == nil {
				t.Errorf("probe %+v", p)
			}
		}},
		{"from RollingUpdate by default to Recreate", edit(web, "  replicas: 3\n", "  replicas: 3\n  strategy: {type: Recreate}\n"), nil, func(t *testing.T, out d, _ []string) {
			if out.Spec.Strategy.RollingUpdate != nil || out.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
				t.Errorf("strategy %+v", out.Spec.Strategy)
			}
			if errs := api.ValidateUpdate(out, out); len(errs) > 0 {
				t.Error(errs)
			}
		}},
		{"a removed container goes, others stay", edit(web, "      - name: side\n        image: side:1\n", ""), func(d d) {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "injected", Image: "i"})
		}, func(t *testing.T, out d, _ []string) {
			var names []string
			for _, c := range out.Spec.Template.Spec.Containers {
				names = append(names, c.Name)
			}
			if got := strings.Join(names, " "); got != "web injected" {
				t.Errorf("containers %s", got)
			}
		}},
		{"a default that follows a declared field follows it", edit(web, "web:1", "web"), nil, func(t *testing.T, out d, _ []string) {
			if p := out.Spec.Template.Spec.Containers[0].ImagePullPolicy; p != corev1.PullAlways {
				t.Errorf("pull policy %s", p)
			}
		}},
		{"a declared map entry goes, another's stays", edit(web, ", annotations: {mine: x}", ""), func(d d) {
			d.Spec.Template.Annotations["other"] = "x"
		}, func(t *testing.T, out d, _ []string) {
			if a := out.Spec.Template.Annotations; len(a) != 1 || a["other"] != "x" {
				t.Errorf("annotations %v", a)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base, next := manifest(t, web), manifest(t, tt.next)
			live := born(base)
			if tt.live != nil {
				tt.live(live.(d))
			}
			before := live.DeepCopyObject()
			out, changed, err := merge(base, next, live)
			if err != nil {
				t.Fatal(err)
			}
			tt.check(t, out.(d), changed)
			if !equalObjects(before, live) {
				t.Error("live was changed")
			}
			next2, changed, err := merge(next, next, out)
			if err != nil || len(changed) > 0 {
				t.Errorf("a second merge changes %v, %v: %+v", changed, err, next2)
			}
		})
	}
}
