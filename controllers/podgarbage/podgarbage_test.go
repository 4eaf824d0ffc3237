package podgarbage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: "n1"}}
	p.Status.Phase = corev1.PodRunning
	for _, c := range change {
		c(p)
	}
	return p
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }
func ended(p *corev1.Pod)       { p.Status.Phase = corev1.PodFailed }
func tracked(p *corev1.Pod)     { p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} }

func node(ready corev1.ConditionStatus, taints ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	return n
}

func names(pods []*corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

// TestR10_OnlyTheOperatorsWordRemovesAPod.
func TestR10_OnlyTheOperatorsWordRemovesAPod(t *testing.T) {
	pods := []*corev1.Pod{pod("run"), pod("term", terminating), pod("end", ended), pod("held", terminating, ended, tracked)}
	for name, c := range map[string]struct {
		o            observed
		mark, remove string
		again        time.Duration
	}{
		"a node that is ready":                     {o: observed{node: node(corev1.ConditionTrue), lease: true}},
		"a node that is lost":                      {o: observed{node: node(corev1.ConditionUnknown, corev1.TaintNodeUnreachable)}},
		"out of service and lost":                  {o: observed{node: node(corev1.ConditionUnknown, corev1.TaintNodeOutOfService)}, remove: "term"},
		"out of service and said to be not ready":  {o: observed{node: node(corev1.ConditionFalse, corev1.TaintNodeOutOfService)}, remove: "term"},
		"out of service, but ready":                {o: observed{node: node(corev1.ConditionTrue, corev1.TaintNodeOutOfService)}},
		"out of service, but with a lease":         {o: observed{node: node(corev1.ConditionUnknown, corev1.TaintNodeOutOfService), lease: true}},
		"no node, a moment":                        {o: observed{gone: quarantine - time.Second}, again: time.Second},
		"no node, for good":                        {o: observed{gone: quarantine}, remove: "run term end"},
		"no node, for good, but its agent is here": {o: observed{gone: quarantine, lease: true}, mark: "run", remove: "end"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.pods = pods
			p := decide(c.o)
			if names(p.mark) != c.mark || names(p.remove) != c.remove || p.again != c.again {
				t.Errorf("mark %q, remove %q, again in %v; want %q, %q, %v", names(p.mark), names(p.remove), p.again, c.mark, c.remove, c.again)
			}
		})
	}
}

func TestAPodThatIsToBeCountedIsMadeFailed(t *testing.T) {
	ops := removal(pod("job", tracked), "why", noon)
	if len(ops) != 1 || ops[0].Verb != store.Update {
		t.Fatalf("ops %+v", ops)
	}
	p := ops[0].Object.(*corev1.Pod)
	if p.Status.Phase != corev1.PodFailed || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 0 ||
		len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Type != corev1.DisruptionTarget || p.Status.Conditions[0].Reason != "DeletionByPodGC" {
		t.Errorf("pod %+v %+v", p.ObjectMeta, p.Status)
	}
	if ops := removal(p, "why", noon); len(ops) != 0 {
		t.Errorf("done again: %+v", ops)
	}
}

func TestPodsThatEndedAreBounded(t *testing.T) {
	var pods []api.Object
	for i := range maxEnded + 2 {
		p := pod(fmt.Sprintf("p%d", i), ended)
		p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Duration(i) * time.Second))
		pods = append(pods, p, pod("running"))
	}
	young := pod("evicted", ended)
	young.CreationTimestamp, young.Status.Reason = metav1.NewTime(noon), "Evicted"
	held := pod("held", ended, tracked)
	stops := pod("stops", ended) // R10: Failed, and its containers are still stopping
	stops.CreationTimestamp, stops.Status.Reason = metav1.NewTime(noon), "Evicted"
	stops.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	remove, wait := planEnded(append(pods, young, held, stops))
	if got, want := names(remove), fmt.Sprintf("evicted p%d p%d", maxEnded+1, maxEnded); got != want || wait != sweepSoonest {
		t.Errorf("%s go, next in %v; want %s", got, wait, want)
	}
	if remove, wait := planEnded(pods[:10]); len(remove) != 0 || wait != sweepLatest {
		t.Errorf("few have ended: %s, next in %v", names(remove), wait)
	}
}

type world struct {
	t    testing.TB
	st   *store.Store
	loop *reconcile.Loop
	now  time.Time
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, st: storetest.Open(t), now: noon}
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }})
	w.st.OnEvents(w.loop.Handle)
	w.settle()
	return w
}

func (w *world) commit(verb store.Verb, obj api.Object) {
	w.t.Helper()
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

func (w *world) settle() {
	w.t.Helper()
	for storetest.Settle(w.t, w.st); w.loop.Step(context.Background()); storetest.Settle(w.t, w.st) {
	}
}

func (w *world) wait(d time.Duration) { w.t.Helper(); w.now = w.now.Add(d); w.settle() }

func (w *world) there(name string) bool {
	return w.st.Get(store.Key{GroupResource: api.Pods(), Namespace: "shop", Name: name}) != nil
}

func lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"}}
}

func TestR10_TheOutOfServiceTaintRemovesWhatIsTerminating(t *testing.T) {
	w := newWorld(t)
	w.commit(store.Create, node(corev1.ConditionUnknown, corev1.TaintNodeUnreachable))
	w.commit(store.Create, pod("db-0", terminating))
	w.commit(store.Create, pod("other"))
	w.wait(24 * time.Hour)
	if !w.there("db-0") {
		t.Fatal("removed while nobody knows whether it runs")
	}
	n := w.st.Get(nodeKey("n1")).(*corev1.Node).DeepCopy()
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
	w.commit(store.Update, n)
	if w.there("db-0") || !w.there("other") {
		t.Fatalf("db-0 %v, other %v", w.there("db-0"), w.there("other"))
	}
	other := w.st.Get(store.Key{GroupResource: api.Pods(), Namespace: "shop", Name: "other"}).(*corev1.Pod).DeepCopy()
	terminating(other)
	w.commit(store.Update, other)
	if w.there("other") {
		t.Error("a pod that is deleted later stays")
	}
}

func TestPodsOfADeletedNodeGoAfterTheQuarantine(t *testing.T) {
	w := newWorld(t)
	w.commit(store.Create, node(corev1.ConditionUnknown))
	w.commit(store.Create, pod("web"))
	w.commit(store.Delete, w.st.Get(nodeKey("n1")))
	w.wait(quarantine - time.Second)
	if !w.there("web") {
		t.Fatal("removed too early")
	}
	w.commit(store.Create, node(corev1.ConditionUnknown)) // it was only registering again
	w.wait(quarantine)
	if !w.there("web") {
		t.Fatal("removed though the node is back")
	}
	w.commit(store.Delete, w.st.Get(nodeKey("n1")))
	w.wait(quarantine)
	if w.there("web") {
		t.Error("the pod of a node that is gone stays")
	}
}

// A node whose agent comes back between the look and the write keeps its pods.
func TestAgentThatCameBackMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.commit(store.Create, pod("web"))
	w.now = w.now.Add(quarantine)
	for _, obj := range []api.Object{lease(), node(corev1.ConditionTrue)} {
		if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: obj}}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		w.loop.Step(context.Background()) // decides on a cache that is behind
	}
	w.settle()
	if !w.there("web") {
		t.Error("removed from under its agent")
	}
}

// TestR10_NeverWithoutTheOperator changes a node and its pods in any order, with the
// cache behind, and checks that a pod that had not stopped is gone only when the
// operator had said so.
func TestR10_NeverWithoutTheOperator(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		ctx := context.Background()
		get := func(key store.Key) api.Object {
			obj, _, err := w.st.GetAt(ctx, key, 0)
			if err != nil {
				return nil
			}
			return obj.DeepCopyObject().(api.Object)
		}
		try := func(verb store.Verb, obj api.Object) {
			if _, err := w.st.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
				rt.Fatalf("%s: %v", verb, err)
			}
		}
		for i := range 3 {
			try(store.Create, pod(fmt.Sprintf("p%d", i)))
		}
		try(store.Create, node(corev1.ConditionTrue))
		try(store.Create, lease())
		said := false // the node was gone or out of service at some time, without a lease
		look := func() {
			n, _ := get(nodeKey("n1")).(*corev1.Node)
			if get(store.KeyOf(lease())) == nil && (n == nil || outOfService(n)) {
				said = true
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"lease": func(*rapid.T) {
				if l := get(store.KeyOf(lease())); l != nil {
					try(store.Delete, l)
				} else {
					try(store.Create, lease())
				}
				look()
			},
			"node": func(t *rapid.T) {
				next := node(rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown}).Draw(t, "ready"),
					rapid.SampledFrom([][]string{nil, {corev1.TaintNodeUnreachable}, {corev1.TaintNodeOutOfService}}).Draw(t, "taints")...)
				switch n := get(nodeKey("n1")); {
				case n == nil:
					try(store.Create, next)
				case rapid.Bool().Draw(t, "delete"):
					try(store.Delete, n)
				default:
					next.ResourceVersion = n.GetResourceVersion()
					try(store.Update, next)
				}
				look()
			},
			"mark": func(t *rapid.T) {
				key := store.Key{GroupResource: api.Pods(), Namespace: "shop", Name: fmt.Sprintf("p%d", rapid.IntRange(0, 2).Draw(t, "pod"))}
				if p, ok := get(key).(*corev1.Pod); ok && p.DeletionTimestamp == nil {
					terminating(p)
					try(store.Update, p)
				}
			},
			"wait":       func(*rapid.T) { w.now = w.now.Add(15 * time.Second) },
			"controller": func(*rapid.T) { w.loop.Step(ctx) },
			"cache": func(t *rapid.T) {
				if _, err := w.st.Step(ctx); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				page, err := w.st.ListAt(ctx, api.Pods(), "", 0, 0, "")
				if err != nil {
					t.Fatal(err)
				}
				if len(page.Objects) < 3 && !said {
					t.Fatalf("%d pods are left, and the operator said nothing", len(page.Objects))
				}
			},
		})
	})
}
