package statefulset

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
// transaction then happens. running is what nodes run, by name: a pod whose object
// is gone before its node has stopped it is nowhere in the store.
func (w *world) judge(running map[string]string) func(store.Txn) string {
	return func(t store.Txn) string {
		obj, _, err := w.Store.GetAt(context.Background(), store.Key{GroupResource: api.StatefulSets(), Namespace: "shop", Name: "db"}, 0)
		if err != nil {
			w.Fatalf("get the set: %v", err)
		}
		set := obj.(*appsv1.StatefulSet)
		want, budget := int(*set.Spec.Replicas), allowed(set)
		available, there := map[int]bool{}, map[int]*corev1.Pod{}
		for _, p := range w.livePods() {
			n, _ := ordinalOf("db", p.Name)
			there[n] = p
			ok, _ := podset.Available(p, set.Spec.MinReadySeconds, w.Now)
			available[n] = ok && podset.Active(p)
		}
		ordered := set.Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement
		rolled := false
		for _, op := range t.Ops {
			p, ok := op.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			n, _ := ordinalOf("db", p.Name)
			switch {
			case op.Verb == store.Create && running[p.Name] != "":
				return fmt.Sprintf("R10: %s is made while a node runs one of that name", p.Name)
			case op.Verb == store.Create && ordered:
				for i := range n {
					if !available[i] {
						return fmt.Sprintf("%s is made, and db-%d is not available", p.Name, i)
					}
				}
			case op.Verb == store.Delete || op.Verb == store.Update && p.DeletionTimestamp != nil:
				if ordered && n >= want {
					for i := range there {
						if i > n {
							return fmt.Sprintf("%s goes before db-%d, which is still there", p.Name, i)
						}
					}
				}
				rolled = rolled || available[n] && n < want
				available[n] = false
			}
		}
		left := 0
		for n, ok := range available {
			if ok && n < want {
				left++
			}
		}
		if rolled && left < want-budget {
			return fmt.Sprintf("R6: an available pod goes, %d are left of %d, %d may be missing", left, want, budget)
		}
		return ""
	}
}

// allowed is maxUnavailable, worked out apart from the code under test.
func allowed(set *appsv1.StatefulSet) int {
	u := set.Spec.UpdateStrategy.RollingUpdate
	if u == nil {
		return 0
	}
	v := u.MaxUnavailable.String()
	if percent, ok := strings.CutSuffix(v, "%"); ok {
		n, _ := strconv.Atoi(percent)
		return max(1, n*int(*set.Spec.Replicas)/100)
	}
	n, _ := strconv.Atoi(v)
	return n
}

// TestR10_NoNameRunsTwiceAndNoOrdinalIsSkipped lets pods get ready, lose it, fail,
// be deleted and stopped in any order, changes template, size and strategy
// meanwhile, and keeps the controller's cache behind at will. No step makes a pod
// whose name a node still runs (R10), skips an ordinal or ends one before a higher
// one with OrderedReady, or goes below maxUnavailable (R6). At the end all comes to
// what is declared.
func TestR10_NoNameRunsTwiceAndNoOrdinalIsSkipped(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt)
		running := map[string]string{} // by name: the uid of what a node runs
		limit := rapid.SampledFrom([]string{"1", "2", "50%", "100%"})
		set := db(int32(rapid.IntRange(0, 6).Draw(rt, "replicas")), maxUnavailable(limit.Draw(rt, "maxUnavailable")))
		if rapid.Bool().Draw(rt, "parallel") {
			parallel(set)
		}
		set.Spec.MinReadySeconds = rapid.SampledFrom([]int32{0, 0, 10}).Draw(rt, "minReadySeconds")
		w.Create(set)
		w.Judge = w.judge(running)
		step := func(*rapid.T) { w.Loop.Step(context.Background()) }
		onPod := func(do func(p *corev1.Pod)) func(*rapid.T) {
			return func(t *rapid.T) {
				if pods := w.livePods(); len(pods) > 0 {
					do(pods[rapid.IntRange(0, len(pods)-1).Draw(t, "pod")])
				}
			}
		}
		onSet := func(do func(t *rapid.T, s *appsv1.StatefulSet)) func(*rapid.T) {
			return func(t *rapid.T) {
				obj, _, err := w.Store.GetAt(context.Background(), store.KeyOf(set), 0)
				if err != nil {
					t.Fatalf("get: %v", err)
				}
				live := obj.(*appsv1.StatefulSet)
				do(t, live)
				live.Generation++
				w.try(store.Op{Verb: store.Update, Object: live})
			}
		}
		status := func(ready bool) func(p *corev1.Pod) {
			return func(p *corev1.Pod) {
				if podset.Terminal(p) {
					return
				}
				running[p.Name] = string(p.UID)
				w.try(store.Op{Verb: store.Update, Object: w.running(p, ready)})
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
			"ready":              onPod(status(true)),
			"ready too":          onPod(status(true)),
			"unready":            onPod(status(false)),
			"controller, synced": func(t *rapid.T) { w.Sync(); step(t) },
			"fails, and runs": onPod(func(p *corev1.Pod) {
				if running[p.Name] == string(p.UID) && !podset.Terminal(p) {
					p.Status.Phase = corev1.PodFailed
					p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
					w.try(store.Op{Verb: store.Update, Object: p})
				}
			}),
			"ends": onPod(func(p *corev1.Pod) {
				if p.Spec.NodeName != "" {
					delete(running, p.Name)
					p.Status.Phase, p.Status.ContainerStatuses = corev1.PodFailed, nil
					w.try(store.Op{Verb: store.Update, Object: p})
				}
			}),
			"is deleted": onPod(func(p *corev1.Pod) {
				for _, op := range podset.Remove(p, w.Now) {
					w.try(op)
				}
			}),
			"is gone": onPod(func(p *corev1.Pod) {
				if p.DeletionTimestamp != nil {
					delete(running, p.Name)
					w.try(store.Op{Verb: store.Delete, Object: p})
				}
			}),
			"template": onSet(func(t *rapid.T, s *appsv1.StatefulSet) {
				image(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "image"))(s)
			}),
			"size":   onSet(func(t *rapid.T, s *appsv1.StatefulSet) { replicas(int32(rapid.IntRange(0, 6).Draw(t, "replicas")))(s) }),
			"limits": onSet(func(t *rapid.T, s *appsv1.StatefulSet) { maxUnavailable(limit.Draw(t, "maxUnavailable"))(s) }),
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
			w.Now = w.Now.Add(11 * time.Second)
			w.work()
		}
		live := w.set()
		st, want := live.Status, *live.Spec.Replicas
		if st.UpdatedReplicas != want || st.AvailableReplicas != want || st.Replicas != want || want > 0 && st.CurrentRevision != st.UpdateRevision {
			rt.Fatalf("did not converge: want %d, status %+v, pods %s", want, st, w.picture())
		}
	})
}

// TestR13_TheNextRevisionIsNeverBlocked: whatever revisions came before and wherever
// they got stuck, a good one is rolled out without hands.
func TestR13_TheNextRevisionIsNeverBlocked(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt)
		set := db(int32(rapid.IntRange(1, 5).Draw(rt, "replicas")), maxUnavailable(rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "maxUnavailable")))
		if rapid.Bool().Draw(rt, "parallel") {
			parallel(set)
		}
		images := rapid.SampledFrom([]string{"a", "b", "bad1", "bad2"})
		image(images.Draw(rt, "first"))(set)
		w.Create(set)
		for range rapid.IntRange(1, 4).Draw(rt, "revisions") {
			for range rapid.IntRange(0, 3).Draw(rt, "rounds") {
				w.Settle()
				for _, p := range w.pods() {
					switch {
					case p.DeletionTimestamp != nil:
						w.Commit(store.Op{Verb: store.Delete, Object: p})
					case !podset.Terminal(p):
						w.run(p, !strings.HasPrefix(p.Spec.Containers[0].Image, "bad") && rapid.IntRange(0, 5).Draw(rt, "luck") > 0)
					}
				}
			}
			w.change(image(images.Draw(rt, "image")))
		}
		w.change(image("good"))
		w.work()
		for range *set.Spec.Replicas { // each pod of the last good revision may be waited for
			w.later(patience)
			w.work()
		}
		live := w.set()
		if st, want := live.Status, *live.Spec.Replicas; st.UpdatedReplicas != want || st.AvailableReplicas != want || st.Replicas != want {
			rt.Fatalf("it is stuck: status %+v, pods %s", st, w.picture())
		}
	})
}
