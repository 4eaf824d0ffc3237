package node

import (
	"context"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type fixture struct {
	t    *testing.T
	st   *store.Store
	now  time.Time
	loop *reconcile.Loop
}

func setUp(t *testing.T) *fixture {
	f := &fixture{t: t, st: storetest.Open(t), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	f.loop = New(Config{Store: f.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return f.now }})
	f.st.OnEvents(f.loop.Handle)
	return f
}

func (f *fixture) commit(verb store.Verb, obj api.Object) {
	f.t.Helper()
	if _, err := f.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) settle() {
	f.t.Helper()
	for {
		storetest.Settle(f.t, f.st)
		if !f.loop.Step(context.Background()) {
			return
		}
	}
}

func (f *fixture) node() *corev1.Node {
	return f.st.Get(store.Key{GroupResource: api.Nodes(), Name: "n1"}).(*corev1.Node)
}

func (f *fixture) pod() *corev1.Pod {
	return f.st.Get(store.Key{GroupResource: api.Pods(), Namespace: "default", Name: "p"}).(*corev1.Pod)
}

// healthy adds another node, so that not all are lost.
func (f *fixture) healthy() {
	f.t.Helper()
	other := readyNode()
	other.Name, other.UID = "n2", "other-uid"
	f.commit(store.Create, other)
	f.commit(store.Create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n2"}})
}

func readyNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

func TestLostNodeIsNotReadyAndComesBack(t *testing.T) {
	f := setUp(t)
	f.healthy()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"}}
	f.commit(store.Create, readyNode())
	f.commit(store.Create, lease)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "pod-uid"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	f.commit(store.Create, pod)
	f.settle()
	if n := f.node(); ready(n) != corev1.ConditionTrue || tainted(n) {
		t.Fatalf("a node with a lease: ready %s, taints %v", ready(n), n.Spec.Taints)
	}

	f.commit(store.Delete, lease)
	f.settle()
	if ready(f.node()) != corev1.ConditionTrue {
		t.Fatal("acted before the margin was over")
	}
	f.now = f.now.Add(Margin)
	f.settle()
	if n := f.node(); ready(n) != corev1.ConditionUnknown || len(n.Spec.Taints) != 2 {
		t.Fatalf("a lost node: ready %s, taints %v", ready(n), n.Spec.Taints)
	}
	if c := f.pod().Status.Conditions[0]; c.Status != corev1.ConditionFalse || f.pod().DeletionTimestamp != nil {
		t.Fatalf("a pod of a lost node: %+v", c)
	}

	back := f.node().DeepCopy()
	back.Status.Conditions[0].Status = corev1.ConditionTrue
	again := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"}}
	f.commit(store.Create, again)
	f.commit(store.Update, back)
	f.settle()
	if n := f.node(); ready(n) != corev1.ConditionTrue || tainted(n) {
		t.Fatalf("a node that came back: ready %s, taints %v", ready(n), n.Spec.Taints)
	}
}

func TestLeaseThatComesBackWithinTheMarginChangesNothing(t *testing.T) {
	f := setUp(t)
	f.commit(store.Create, readyNode())
	f.settle()
	f.now = f.now.Add(Margin / 2)
	f.commit(store.Create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"}})
	f.now = f.now.Add(Margin)
	f.settle()
	if n := f.node(); ready(n) != corev1.ConditionTrue || tainted(n) {
		t.Fatalf("ready %s, taints %v", ready(n), n.Spec.Taints)
	}
}

// A session that begins between the look and the write wins.
func TestNodeThatCameBackMeanwhileIsNotWrittenOver(t *testing.T) {
	f := setUp(t)
	f.commit(store.Create, readyNode())
	storetest.Settle(t, f.st)
	for f.loop.Step(context.Background()) { // sees the lease missing and waits
	}
	f.now = f.now.Add(Margin)
	f.commit(store.Create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"}})
	for range 3 {
		f.loop.Step(context.Background()) // decides on a cache that is behind
	}
	f.settle()
	if n := f.node(); ready(n) != corev1.ConditionTrue || tainted(n) {
		t.Fatalf("ready %s, taints %v", ready(n), n.Spec.Taints)
	}
}
