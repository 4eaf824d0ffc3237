package job

import (
	"context"
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// world is a store with one Job and a scripted node.
type world struct {
	t     *rapid.T
	store *store.Store
	now   time.Time
	names int
}

func (w *world) commit(op store.Op) {
	if _, err := w.store.Commit(context.Background(), store.Txn{Ops: []store.Op{op}}); err != nil {
		w.t.Fatalf("%s: %v", op.Verb, err)
	}
}

func (w *world) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, o := range w.store.List(api.Pods(), "default") {
		out = append(out, o.(*corev1.Pod))
	}
	return out
}

// node moves one pod on: it is bound, runs, ends well or badly, or goes.
func (w *world) node(pick int, ok bool) (succeeded string) {
	pods := w.pods()
	if len(pods) == 0 {
		return ""
	}
	p := pods[pick%len(pods)].DeepCopy()
	switch {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		if p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
			w.commit(store.Op{Verb: store.Delete, Object: p})
		}
		return ""
	case p.Spec.NodeName == "":
		p.Spec.NodeName = "n1"
	case p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil:
		p.Status.Phase = corev1.PodRunning
	case ok && p.DeletionTimestamp == nil:
		p.Status.Phase = corev1.PodSucceeded
		succeeded = p.Name
	default:
		p.Status.Phase = corev1.PodFailed
		if p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
			w.commit(store.Op{Verb: store.Delete, Object: p})
			return ""
		}
	}
	w.commit(store.Op{Verb: store.Update, Object: p})
	return succeeded
}

// Whatever order the node, the clock, a user's delete and a cache that is behind
// come in, never more than parallelism pods are active, and each pod that
// succeeded is counted once.
func TestR7_NeverTooManyPodsAndEachCountedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st := storetest.Open(t)
		w := &world{t: rt, store: st, now: noon}
		parallelism := int32(rapid.IntRange(1, 4).Draw(rt, "parallelism"))
		completions := int32(rapid.IntRange(1, 6).Draw(rt, "completions"))
		job := newJob(func(s *batchv1.JobSpec) {
			s.Parallelism, s.Completions, s.BackoffLimit = &parallelism, &completions, ptr(int32(rapid.IntRange(0, 5).Draw(rt, "limit")))
		})
		store.Stamp(job, noon)
		w.commit(store.Op{Verb: store.Create, Object: job})
		storetest.Settle(t, st)
		loop := New(Config{
			Store: st, Fence: func() store.Fence { return store.Fence{} },
			Now:    func() time.Time { return w.now },
			Suffix: func() string { w.names++; return fmt.Sprintf("%05d", w.names) },
		})
		st.OnEvents(loop.Handle)

		succeeded := map[string]bool{}
		for range 300 {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1, 2, 3:
				storetest.Settle(t, st)
				if name := w.node(rapid.IntRange(0, 20).Draw(rt, "pod"), rapid.IntRange(0, 3).Draw(rt, "ok") > 0); name != "" {
					succeeded[name] = true
				}
			case 4:
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 60).Draw(rt, "seconds")) * time.Second)
			case 5:
				storetest.Settle(t, st)
				if pods := w.pods(); len(pods) > 0 && pods[0].DeletionTimestamp == nil && pods[0].Spec.NodeName != "" {
					p := pods[0].DeepCopy()
					p.DeletionTimestamp = &metav1.Time{Time: w.now}
					w.commit(store.Op{Verb: store.Update, Object: p})
				}
			case 6:
				storetest.Settle(t, st)
			default:
				// Several looks without news: the later ones see a cache that is behind.
				for range rapid.IntRange(1, 3).Draw(rt, "looks") {
					loop.Wake(store.KeyOf(job))
					loop.Step(context.Background())
				}
			}
			storetest.Settle(t, st)
			active, _ := split(w.pods())
			if len(active) > int(parallelism) {
				rt.Fatalf("%d active pods, parallelism is %d", len(active), parallelism)
			}
		}
		// Let everything come to rest, then compare the count.
		for range 200 {
			storetest.Settle(t, st)
			if !loop.Step(context.Background()) {
				w.now = w.now.Add(11 * time.Minute)
				for i := range w.pods() {
					if name := w.node(i, true); name != "" {
						succeeded[name] = true
					}
				}
			}
		}
		storetest.Settle(t, st)
		got := st.Get(store.KeyOf(job)).(*batchv1.Job)
		if _, over := finished(got); !over {
			rt.Fatalf("the Job never ended: %+v", got.Status)
		}
		if condition(&got.Status, batchv1.JobComplete) != nil && int(got.Status.Succeeded) != len(succeeded) {
			rt.Fatalf("status says %d succeeded, %d pods did", got.Status.Succeeded, len(succeeded))
		}
		if int(got.Status.Succeeded) > len(succeeded) {
			rt.Fatalf("status says %d succeeded, only %d pods did", got.Status.Succeeded, len(succeeded))
		}
		for _, p := range w.pods() {
			if tracked(p) {
				rt.Fatalf("pod %s is still held by the finalizer", p.Name)
			}
		}
	})
}
