package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// world is a store with the scheduler over it.
type world struct {
	t    testing.TB
	st   *store.Store
	loop *reconcile.Loop
	now  time.Time
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, st: storetest.Open(t), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }})
	w.st.OnEvents(w.loop.Handle)
	return w
}

func (w *world) commit(verb store.Verb, obj api.Object) {
	w.t.Helper()
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.t.Fatal(err)
	}
	storetest.Settle(w.t, w.st)
}

// run steps until nothing is due.
func (w *world) run() {
	w.t.Helper()
	storetest.Settle(w.t, w.st)
	for range 10_000 {
		if !w.loop.Step(context.Background()) {
			return
		}
		storetest.Settle(w.t, w.st)
	}
	w.t.Fatal("the loop does not come to rest")
}

func (w *world) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, obj := range w.st.List(api.Pods(), "") {
		out = append(out, obj.(*corev1.Pod))
	}
	return out
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	for _, pod := range w.pods() {
		if pod.Name == name {
			return pod.DeepCopy()
		}
	}
	w.t.Fatalf("no pod %s", name)
	return nil
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	node, ok := w.st.Get(store.Key{GroupResource: api.Nodes(), Name: name}).(*corev1.Node)
	if !ok {
		w.t.Fatalf("no node %s", name)
	}
	return node.DeepCopy()
}

func (w *world) lease(node string) {
	w.commit(store.Create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}})
}

func aNode(t testing.TB, n *corev1.Node, args []string) *corev1.Node {
	t.Helper()
	list := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")}
	n.Status.Images = nil
	n.Spec, n.Labels = corev1.NodeSpec{}, map[string]string{corev1.LabelHostname: n.Name}
	status := corev1.ConditionTrue
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case key == "cpu" || key == "memory" || key == "pods":
			list[corev1.ResourceName(key)] = resource.MustParse(value)
		case key == "gpu":
			list["example.com/gpu"] = resource.MustParse(value)
		case strings.HasPrefix(key, "label:"):
			n.Labels[strings.TrimPrefix(key, "label:")] = value
		case key == "taint":
			k, v, e := taint(value)
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k, Value: v, Effect: corev1.TaintEffect(e)})
		case key == "image":
			name, size, _ := strings.Cut(value, "@")
			bytes := resource.MustParse(size)
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{name}, SizeBytes: bytes.Value()})
		case arg == "unschedulable":
			n.Spec.Unschedulable = true
		case arg == "notready":
			status = corev1.ConditionFalse
		case arg == "volumes":
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, api.VolumesDirAnnotation, "/volumes")
		case arg == "nolease":
		default:
			t.Fatalf("unknown argument %q", arg)
		}
	}
	n.Status.Allocatable = list
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	return n
}
