package store

import (
	"bytes"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testCodec(t testing.TB) codec {
	t.Helper()
	sealer, err := newSealer(bytes.Repeat([]byte{1}, SealKeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return codec{sealer: sealer, specs: newSpecs()}
}

// templated is the n-th pod of one template.
func templated(n int) *corev1.Pod {
	memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceCPU: resource.MustParse("100m")}
	var env []corev1.EnvVar
	for i := range 10 {
		env = append(env, corev1.EnvVar{Name: fmt.Sprint("NAME_", i), Value: fmt.Sprint("value-", i)})
	}
	container := corev1.Container{
		Name: "web", Image: "registry.example.org/team/web:v1.2.3", Args: []string{"--listen=:8080", "--verbose"}, Env: env,
		Ports:          []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Resources:      corev1.ResourceRequirements{Requests: memory, Limits: memory},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}},
		VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web"}},
	}
	sidecar := container
	sidecar.Name = "sidecar"
	grace := int64(30)
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("web-7d4b9c-%05d", n), UID: "u",
			Labels:          map[string]string{"app": "web", "pod-template-hash": "7d4b9c"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c", UID: "rs", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%03d", n%100), RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{container, sidecar}, ServiceAccountName: "default", SchedulerName: "default-scheduler",
			Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.1.%d.%d", n/250, n%250)},
	}
	Stamp(p, time.Unix(1_700_000_000, 0))
	return p
}

func encoded(t testing.TB, c codec, obj api.Object) Entry {
	t.Helper()
	key := KeyOf(obj)
	kind, _ := api.ResourceKind(key.GroupResource)
	value, err := c.encode(kind, key.Path(), obj)
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Key: key.Path(), Value: value, ModRevision: 7}
}

func decoded(t testing.TB, c codec, e Entry) api.Object {
	t.Helper()
	_, kind, ok := ParsePath(e.Key)
	if !ok {
		t.Fatalf("path %s", e.Key)
	}
	obj, err := c.decode(kind, e)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestSpecsAreShared: two pods of one template on different nodes hold the same
// containers in memory, each with its own node; and both are as written.
func TestSpecsAreShared(t *testing.T) {
	c := testCodec(t)
	var got []*corev1.Pod
	for n := range 2 {
		want := templated(n)
		p := decoded(t, c, encoded(t, c, want)).(*corev1.Pod)
		want.ResourceVersion = "7"
		if !equality.Semantic.DeepEqual(p, want) {
			t.Errorf("got %+v\nwant %+v", p, want)
		}
		got = append(got, p)
	}
	if unsafe.SliceData(got[0].Spec.Containers) != unsafe.SliceData(got[1].Spec.Containers) {
		t.Error("the containers are not shared")
	}
	if got[0].Spec.NodeName == got[1].Spec.NodeName {
		t.Error("the nodes are shared")
	}
	other := templated(3)
	other.Spec.Containers[0].Image = "another"
	if p := decoded(t, c, encoded(t, c, other)).(*corev1.Pod); p.Spec.Containers[0].Image != "another" {
		t.Error("another template's spec was shared")
	}
}

// TestSpecsForget: what is remembered is bounded, and what is in use stays.
func TestSpecsForget(t *testing.T) {
	c := testCodec(t)
	used := encoded(t, c, templated(0))
	first := decoded(t, c, used).(*corev1.Pod)
	for n := range 5 * specsPerGeneration {
		p := templated(n)
		p.Spec.Hostname = fmt.Sprint("h", n)
		decoded(t, c, encoded(t, c, p))
		if n%100 == 0 {
			if p := decoded(t, c, used).(*corev1.Pod); unsafe.SliceData(p.Spec.Containers) != unsafe.SliceData(first.Spec.Containers) {
				t.Fatalf("after %d others the spec in use was decoded again", n)
			}
		}
	}
	if n := len(c.specs.young) + len(c.specs.old); n > 2*specsPerGeneration {
		t.Errorf("%d specs are remembered", n)
	}
}

// TestEncodeLeavesTheObject: a refused commit must not have changed the caller's
// object, and neither the version nor the type stands in the value.
func TestEncodeLeavesTheObject(t *testing.T) {
	c := testCodec(t)
	for _, obj := range []api.Object{templated(1), &api.Source{ObjectMeta: metav1.ObjectMeta{Name: "main"}}} {
		obj.SetResourceVersion("12345678")
		kind, _ := api.KindOf(obj)
		obj.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
		e := encoded(t, c, obj)
		if obj.GetResourceVersion() != "12345678" || obj.GetObjectKind().GroupVersionKind() != kind.GroupVersionKind {
			t.Errorf("%s was changed", kind.Kind)
		}
		if bytes.Contains(e.Value, []byte("12345678")) || bytes.Contains(e.Value, []byte(`"kind"`)) {
			t.Errorf("%s: value %q", kind.Kind, e.Value)
		}
		if got := decoded(t, c, e); got.GetResourceVersion() != "7" || !got.GetObjectKind().GroupVersionKind().Empty() {
			t.Errorf("%s: decoded version %s of %v", kind.Kind, got.GetResourceVersion(), got.GetObjectKind().GroupVersionKind())
		}
	}
}

func TestPaths(t *testing.T) {
	for path, want := range map[string]string{
		"/headway/core/pods/default/web":               "pods default/web",
		"/headway/core/nodes/_/n1":                     "nodes n1",
		"/headway/apps/deployments/default/web":        "deployments.apps default/web",
		"/headway/headway.dev/sources/_/main":          "sources.headway.dev main",
		"/headway/_election/leader":                    "",
		"/headway/core/pods/default":                   "",
		"/headway/core/pods/default/":                  "",
		"/headway/core/pods/default/a/b":               "",
		"/headway/core/pods/_/web":                     "", // needs a namespace
		"/headway/core/nodes/default/n1":               "", // has none
		"/headway/core/unicorns/default/x":             "",
		"/other/core/pods/default/web":                 "",
		"/headway/coordination.k8s.io/leases/kube/n-1": "leases.coordination.k8s.io kube/n-1",
	} {
		key, _, ok := ParsePath(path)
		if ok != (want != "") || ok && (key.String() != want || key.Path() != path) {
			t.Errorf("%s: %s (%s), %t; want %q", path, key, key.Path(), ok, want)
		}
	}
}

// FuzzDecode: whatever bytes stand in the backend, decoding them ends, does not
// panic, and what it accepts is encoded to something it accepts as the same.
func FuzzDecode(f *testing.F) {
	c := testCodec(f)
	f.Add("/headway/core/pods/default/web", encoded(f, c, templated(1)).Value)
	f.Add("/headway/core/secrets/default/s", encoded(f, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"a": []byte("b")}}).Value)
	f.Add("/headway/headway.dev/sources/_/main", encoded(f, c, &api.Source{ObjectMeta: metav1.ObjectMeta{Name: "main"}}).Value)
	f.Add("/headway/core/pods/default/web", []byte{1, 0x12, 0x02, 0x52, 0x00, 0x12, 0x00})
	f.Add("/headway/core/pods/default/web", []byte{1, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, path string, value []byte) {
		key, kind, ok := ParsePath(path)
		if !ok {
			return
		}
		if key.Path() != path {
			t.Fatalf("path %q became %q", path, key.Path())
		}
		obj, err := c.decode(kind, Entry{Key: path, Value: value, ModRevision: 7})
		if err != nil {
			return
		}
		again, err := c.encode(kind, path, obj)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		same, err := c.decode(kind, Entry{Key: path, Value: again, ModRevision: 7})
		if err != nil || !equality.Semantic.DeepEqual(obj, same) {
			t.Fatalf("%v: %+v became %+v", err, obj, same)
		}
	})
}

// FuzzCut: cutting a field out of a message takes exactly that field.
func FuzzCut(f *testing.F) {
	pod, err := templated(1).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pod)
	f.Add([]byte{0x12, 0x01, 0x00, 0x12, 0x01, 0x00})
	f.Fuzz(func(t *testing.T, msg []byte) {
		rest, content, err := cut(bytes.Clone(msg), podFieldSpec)
		if err != nil {
			return
		}
		if _, again, err := cut(rest, podFieldSpec); err != nil || again != nil {
			t.Fatalf("the rest still has %q, %v", again, err)
		}
		if content == nil && !bytes.Equal(rest, msg) || len(rest)+len(content) > len(msg) {
			t.Fatalf("cut %q into %q and %q", msg, rest, content)
		}
	})
}
