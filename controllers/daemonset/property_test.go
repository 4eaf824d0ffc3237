package daemonset

import (
	"context"
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// livePods are the pods as the backend has them, which the cache may not show yet.
func (w *world) livePods() []*corev1.Pod {
	page, err := w.Store.ListAt(context.Background(), api.Pods(), "shop", 0, 0, "")
	if err != nil {
		w.Fatalf("list pods: %v", err)
	}
	var out []*corev1.Pod
	for _, obj := range page.Objects {
		out = append(out, obj.(*corev1.Pod))
	}
	return out
}

// try commits without making the cache catch up.
func (w *world) try(op store.Op) {
	w.Helper()
	if _, err := w.Store.Commit(context.Background(), store.Txn{Ops: []store.Op{op}}); err != nil {
		w.Fatalf("commit: %v", err)
	}
}

// judge looks at a transaction of the controller against what the backend holds
// just before it, which its cache may be behind. The verdict counts only if the
// transaction then happens. nodes all suit.
func (w *world) judge(nodes, most int, surge bool) func(store.Txn) string {
	return func(t store.Txn) string {
		obj, _, err := w.Store.GetAt(context.Background(), store.Key{GroupResource: api.DaemonSets(), Namespace: "shop", Name: "logs"}, 0)
		if err != nil {
			w.Fatalf("get the set: %v", err)
		}
		set := obj.(*appsv1.DaemonSet)
		available, there := map[string]int{}, map[string]map[string]bool{}
		is := func(p *corev1.Pod) bool {
			ok, _ := podset.Available(p, set.Spec.MinReadySeconds, w.Now)
			return ok && podset.Active(p)
		}
		before := map[string]*corev1.Pod{}
		for _, p := range w.livePods() {
			before[p.Name] = p
			n := nodeOf(p)
			if podset.Ended(p) && p.DeletionTimestamp != nil {
				continue // it runs no more
			}
			if there[n] == nil {
				there[n] = map[string]bool{}
			}
			there[n][p.Name] = p.DeletionTimestamp == nil
			if is(p) {
				available[n]++
			}
		}
		deleted, bare := false, ""
		for _, op := range t.Ops {
			p, ok := op.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			n := nodeOf(p)
			switch {
			case op.Verb == store.Create && !surge && len(there[n]) > 0:
				return fmt.Sprintf("a pod is made for %s, which has one", n)
			case op.Verb == store.Create:
				stay := 0
				for _, stays := range there[n] {
					if stays {
						stay++
					}
				}
				if stay > 1 {
					return fmt.Sprintf("a pod is made for %s, which has %d", n, stay)
				}
			case op.Verb == store.Delete || p.DeletionTimestamp != nil:
				if there[n] != nil {
					there[n][p.Name] = false
				}
				if was := before[p.Name]; was != nil && is(was) {
					deleted = true
					available[n]--
					if available[n] == 0 {
						bare = n
					}
				}
			}
		}
		left := 0
		for _, k := range available {
			if k > 0 {
				left++
			}
		}
		if surge {
			if bare != "" {
				return fmt.Sprintf("R6: the available pod of %s goes, and it has no other", bare)
			}
			return ""
		}
		if deleted && left < nodes-most {
			return fmt.Sprintf("R6: an available pod goes, %d nodes of %d have one left, %d may lack it", left, nodes, most)
		}
		return ""
	}
}

// TestR6_NoStepGoesBeyondTheLimits lets pods get ready, lose it, fail, be deleted
// and stopped in any order, changes the template meanwhile, and keeps the
// controller's cache behind at will. Without surge no node ever has two pods, and
// no step leaves more than maxUnavailable nodes without an available one by deleting
// one. At the end all comes to what is declared.
func TestR6_NoStepGoesBeyondTheLimits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := []string{"n1", "n2", "n3", "n4", "n5"}[:rapid.IntRange(1, 5).Draw(rt, "nodes")]
		w := newWorld(t, rt, nodes...)
		surge := rapid.Bool().Draw(rt, "surge")
		n := rapid.IntRange(1, 3).Draw(rt, "limit")
		set, most := logs(limit("0", fmt.Sprint(n))), n
		if surge {
			set, most = logs(limit(fmt.Sprint(n), "0")), 0
		}
		set.Spec.MinReadySeconds = rapid.SampledFrom([]int32{0, 0, 10}).Draw(rt, "minReadySeconds")
		w.Create(set)
		w.Judge = w.judge(len(nodes), most, surge)
		step := func(*rapid.T) { w.Loop.Step(context.Background()) }
		onPod := func(do func(p *corev1.Pod)) func(*rapid.T) {
			return func(t *rapid.T) {
				if pods := w.livePods(); len(pods) > 0 {
					do(pods[rapid.IntRange(0, len(pods)-1).Draw(t, "pod")])
				}
			}
		}
		status := func(ready bool) func(p *corev1.Pod) {
			return func(p *corev1.Pod) {
				if !podset.Terminal(p) {
					w.try(store.Op{Verb: store.Update, Object: w.running(p, ready)})
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"controller":       step,
			"controller again": step,
			"cache": func(t *rapid.T) {
				if _, err := w.Store.Step(context.Background()); err != nil {
					t.Fatalf("step: %v", err)
				}
			},
			"cache all":          func(*rapid.T) { w.Sync() },
			"controller, synced": func(t *rapid.T) { w.Sync(); step(t) },
			"ready":              onPod(status(true)),
			"ready too":          onPod(status(true)),
			"unready":            onPod(status(false)),
			"fails": onPod(func(p *corev1.Pod) {
				p.Spec.NodeName, p.Status.Phase = nodeOf(p), corev1.PodFailed
				w.try(store.Op{Verb: store.Update, Object: p})
			}),
			"is deleted": onPod(func(p *corev1.Pod) {
				for _, op := range podset.Remove(p, w.Now) {
					w.try(op)
				}
			}),
			"is gone": onPod(func(p *corev1.Pod) {
				if p.DeletionTimestamp != nil {
					w.try(store.Op{Verb: store.Delete, Object: p})
				}
			}),
			"template": func(t *rapid.T) {
				obj, _, err := w.Store.GetAt(context.Background(), store.KeyOf(set), 0)
				if err != nil {
					t.Fatalf("get: %v", err)
				}
				live := obj.(*appsv1.DaemonSet)
				of(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "image"))(live)
				live.Generation++
				w.try(store.Op{Verb: store.Update, Object: live})
			},
			// The cache is up to date but for one pod, and the controller decides.
			"surprise": func(t *rapid.T) {
				w.Sync()
				onPod(status(false))(t)
				step(t)
			},
			"all are ready": func(*rapid.T) {
				for _, p := range w.livePods() {
					status(true)(p)
				}
			},
			"time": func(*rapid.T) { w.Now = w.Now.Add(5 * time.Second) },
		})
		// Now let the nodes work, and it comes to an end.
		w.Sync()
		w.Judge = nil
		for range 40 {
			w.Now = w.Now.Add(5 * time.Minute)
			w.work()
		}
		st, want := w.set().Status, int32(len(nodes))
		if st.UpdatedNumberScheduled != want || st.NumberAvailable != want || st.DesiredNumberScheduled != want || len(w.pods()) != len(nodes) {
			rt.Fatalf("did not converge: status %+v, pods %s", st, w.picture())
		}
	})
}
