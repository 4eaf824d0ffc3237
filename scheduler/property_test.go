package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// truth is the state of the backend, not of any cache.
func truth(t testing.TB, kv store.KV) *store.Store {
	t.Helper()
	s := store.New(kv, store.Options{Seal: storetest.SealKey()})
	if err := s.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestR11_HardConstraintsHold lets the scheduler work on a cache that lags, over
// a backend that loses writes and answers, while people change nodes and pods. At
// the moment of each bind the node must allow it.
func TestR11_HardConstraintsHold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kv := memory.New()
		w := &world{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		w.st = truth(t, kv)
		batch := rapid.SampledFrom([]int{1, 2, 50}).Draw(rt, "batch")
		w.loop = newLoop(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }}, batch)
		w.st.OnEvents(w.loop.Handle)

		fault := "" // operation that fails while the loop works
		kv.Fail(func(op string) error {
			if op == fault {
				return fmt.Errorf("cut: %w", store.ErrUnavailable)
			}
			return nil
		})
		pods, nodes := 0, 0
		bound := map[types.UID]bool{}
		user := func(verb store.Verb, obj api.Object) {
			_, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}})
			if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
				rt.Fatal(err)
			}
		}
		some := func(label string, words ...string) []string {
			return rapid.SliceOfN(rapid.SampledFrom(words), 0, 3).Draw(rt, label)
		}
		anyPod := func() *corev1.Pod {
			all := w.pods()
			if len(all) == 0 {
				return nil
			}
			return rapid.SampledFrom(all).Draw(rt, "which").DeepCopy()
		}
		addNode := func() {
			if nodes == 4 {
				return
			}
			nodes++
			name := fmt.Sprintf("n%d", nodes)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
			user(store.Create, aNode(t, node, []string{"cpu=2", "memory=2Gi", "pods=4"}))
			user(store.Create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}})
		}
		work := func(*rapid.T) {
			fault = rapid.SampledFrom([]string{"", "", "commit", "committed"}).Draw(rt, "fault")
			for range rapid.IntRange(1, 4).Draw(rt, "steps") {
				w.loop.Step(context.Background())
				checkBinds(rt, truth(t, kv), bound)
				fault = ""
			}
		}
		addNode()
		storetest.Settle(t, w.st)
		rt.Repeat(map[string]func(*rapid.T){
			"node": func(*rapid.T) { addNode() },
			"edit": func(*rapid.T) {
				all := w.st.List(api.Nodes(), "")
				if len(all) == 0 {
					return
				}
				n := rapid.SampledFrom(all).Draw(rt, "node").(*corev1.Node)
				user(store.Update, aNode(t, n.DeepCopy(), some("with", "cpu=1", "cpu=3", "memory=1Gi", "pods=2", "taint=a=b:NoSchedule", "taint=a=c:NoExecute", "label:zone=a", "unschedulable", "notready")))
			},
			"pods": func(*rapid.T) {
				for range rapid.IntRange(1, 4).Draw(rt, "pods") {
					pods++
					asks := append(some("asks", "memory=1Gi", "port=80@10.0.0.1", "select:zone=a", "tolerate=a=b:NoSchedule", "tolerate=a", "owner=o", "priority=5", "priority=-5", "label:app=x", "apart=kubernetes.io/hostname:app=x"), rapid.SampledFrom([]string{"cpu=500m", "cpu=1", "cpu=2", "port=80"}).Draw(rt, "ask"))
					user(store.Create, aPod(t, fmt.Sprintf("p%d", pods), w.now, asks))
				}
			},
			"end": func(*rapid.T) {
				if pod := anyPod(); pod != nil {
					pod.Status.Phase = corev1.PodFailed
					user(store.Update, pod)
				}
			},
			"relabel": func(*rapid.T) {
				if pod := anyPod(); pod != nil {
					pod.Labels = map[string]string{"at": fmt.Sprint(pods)}
					user(store.Update, pod)
				}
			},
			"delete": func(*rapid.T) {
				if pod := anyPod(); pod != nil {
					user(store.Delete, pod)
				}
			},
			"see": func(*rapid.T) {
				for range rapid.IntRange(1, 12).Draw(rt, "revisions") {
					if _, err := w.st.Step(context.Background()); err != nil {
						rt.Fatal(err)
					}
				}
			},
			"see all":   func(*rapid.T) { storetest.Settle(t, w.st) },
			"work":      work,
			"work more": work,
			"wait": func(*rapid.T) {
				if next := w.loop.Next(); !next.IsZero() {
					w.now = next
				}
			},
			"": func(rt *rapid.T) { checkBinds(rt, truth(t, kv), bound) },
		})
		for range 1_000 {
			storetest.Settle(t, w.st)
			if w.loop.Step(context.Background()) {
				checkBinds(rt, truth(t, kv), bound)
				continue
			}
			next := w.loop.Next()
			if next.IsZero() {
				break
			}
			w.now = next
		}
		nobodyForgotten(rt, truth(t, kv))
	})
}

// checkBinds looks at the binds made since the last call.
func checkBinds(t *rapid.T, s *store.Store, known map[types.UID]bool) {
	for _, obj := range s.List(api.Pods(), "") {
		pod := obj.(*corev1.Pod)
		if pod.Spec.NodeName == "" || known[pod.UID] {
			continue
		}
		known[pod.UID] = true
		if why := oracleOf(s).objection(pod, pod.Spec.NodeName); why != "" {
			t.Fatalf("%s is bound to %s: %v", pod.Name, pod.Spec.NodeName, why)
		}
	}
}

// nobodyForgotten demands that a pod without a node fits nowhere.
func nobodyForgotten(t *rapid.T, s *store.Store) {
	b := newView(s).look()
	for _, obj := range s.List(api.Pods(), "") {
		pod := obj.(*corev1.Pod)
		if !ours(pod) {
			continue
		}
		if d := plan(b, []*corev1.Pod{pod})[0]; d.node != nil {
			t.Fatalf("%s waits although it fits on %s", pod.Name, d.node.Name)
		}
		if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != ""
		}) {
			t.Fatalf("%s waits without a word", pod.Name)
		}
	}
}
