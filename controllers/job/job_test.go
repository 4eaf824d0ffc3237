package job

import (
	"context"
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

// Whatever order the node, the clock, a user's changes and deletes, the death of
// the process and a cache that is behind come in, never more than parallelism pods
// are active, no index runs twice, and each pod is counted once. The world judges
// every transaction.
func TestR7_NeverTooManyPodsAndEachCountedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		flip := func(name string) bool { return rapid.Bool().Draw(rt, name) }
		number := func(name string, from, to int) int { return rapid.IntRange(from, to).Draw(rt, name) }
		job := newJob(func(s *batchv1.JobSpec) {
			s.Parallelism, s.Completions, s.BackoffLimit = ptr(int32(number("parallelism", 1, 4))), ptr(int32(number("completions", 1, 6))), ptr(int32(number("limit", 0, 5)))
			if flip("replace failed only") {
				s.PodReplacementPolicy = ptr(batchv1.Failed)
			}
			if flip("indexed") {
				s.CompletionMode = ptr(batchv1.IndexedCompletion)
				if flip("limit per index") {
					s.BackoffLimitPerIndex, s.BackoffLimit = ptr(int32(number("index limit", 0, 2))), nil
				}
			}
		})
		w := newWorld(t, rt, job)
		dies, after := false, false
		w.crash = func(int) (bool, bool) { return dies, after }
		for range 200 {
			switch what := number("what", 0, 15); what {
			case 0, 1, 2, 3, 4:
				if pods := w.pods(); len(pods) > 0 {
					w.move(pods[number("pod", 0, len(pods)-1)], number("ok", 0, 3) > 0)
				}
			case 5:
				w.now = w.now.Add(time.Duration(number("seconds", -30, 90)) * time.Second)
			case 6:
				for _, p := range w.pods() {
					if p.DeletionTimestamp == nil && flip("delete") {
						p.DeletionTimestamp = &metav1.Time{Time: w.now}
						w.do(store.Update, p)
						break
					}
				}
			case 7:
				w.change(func(s *batchv1.JobSpec) { s.Parallelism = ptr(int32(number("new parallelism", 0, 4))) })
			case 8:
				w.change(func(s *batchv1.JobSpec) { s.Suspend = ptr(flip("suspend")) })
			case 9:
				dies, after = true, flip("after the write")
				w.loop.Wake(store.KeyOf(job))
				w.loop.Step(context.Background())
				dies = false
				w.start()
			default:
				// Several looks without news: the later ones see a cache that is behind.
				for range number("looks", 1, 3) {
					w.loop.Wake(store.KeyOf(job))
					w.loop.Step(context.Background())
				}
				if flip("news") {
					storetest.Settle(t, w.st)
				}
			}
		}
		storetest.Settle(t, w.st)
		w.change(func(s *batchv1.JobSpec) { s.Parallelism, s.Suspend = ptr(int32(3)), ptr(false) })
		for range 60 {
			w.rest()
			w.now = w.now.Add(11 * time.Minute)
			for _, p := range w.pods() {
				w.move(p, true)
			}
		}
		w.rest()
		w.settled()
	})
}

// The process dies before and after each of its writes, one at a time: the Job
// ends with the very same count as without a crash.
func TestR7_ACrashBetweenAnyTwoWritesCountsThePodsOnce(t *testing.T) {
	for name, spec := range map[string]func(*batchv1.JobSpec){
		"NonIndexed": func(s *batchv1.JobSpec) {},
		"Indexed":    func(s *batchv1.JobSpec) { s.CompletionMode = ptr(batchv1.IndexedCompletion) },
		"a limit per index": func(s *batchv1.JobSpec) {
			s.CompletionMode, s.BackoffLimitPerIndex = ptr(batchv1.IndexedCompletion), ptr(int32(1))
		},
		"failing":             func(s *batchv1.JobSpec) { s.BackoffLimit = ptr(int32(1)) },
		"replacing Failed":    func(s *batchv1.JobSpec) { s.PodReplacementPolicy = ptr(batchv1.Failed) },
		"ignoring disruption": ignoring(onExit("Ignore", "In", 1)),
	} {
		t.Run(name, func(t *testing.T) {
			run := func(crash func(int) (bool, bool)) (string, int) {
				w := newWorld(t, t, newJob(func(s *batchv1.JobSpec) {
					s.Completions, s.Parallelism = ptr(int32(5)), ptr(int32(2))
					spec(s)
				}))
				w.crash = crash
				ends := 0
				for range 80 {
					w.rest()
					w.now = w.now.Add(11 * time.Minute)
					for _, p := range w.pods() {
						before := len(w.ended)
						ok := ends%3 != 1
						if i, is := indexOf(w.job(), p); is {
							ok = i != 1 // index 1 always fails
						}
						w.move(p, ok)
						ends += len(w.ended) - before
					}
					if _, over := finished(w.job()); over {
						break
					}
				}
				w.rest()
				w.settled()
				return w.summary(), w.commits
			}
			want, writes := run(nil)
			if writes < 4 {
				t.Fatalf("only %d writes: %s", writes, want)
			}
			t.Logf("%d writes: %s", writes, want)
			for n := 1; n <= writes; n++ {
				for _, after := range []bool{false, true} {
					if got, _ := run(func(commit int) (bool, bool) { return commit == n, after }); got != want {
						t.Errorf("died at write %d, after it took effect %t: %s\nwithout a crash: %s", n, after, got, want)
					}
				}
			}
		})
	}
}

func TestEventsOfAJob(t *testing.T) {
	w := newWorld(t, t, newJob(nil))
	w.rest()
	w.change(func(s *batchv1.JobSpec) { s.Suspend = ptr(true) })
	w.rest()
	if pods := w.pods(); len(pods) != 0 {
		t.Fatalf("suspended, and there is %s", pods[0].Name)
	}
	w.change(func(s *batchv1.JobSpec) { s.Suspend = ptr(false) })
	for range 4 {
		w.rest()
		for _, p := range w.pods() {
			w.move(p, true)
		}
	}
	w.rest()
	w.settled()
	got := w.events()
	for reason, n := range map[string]int{"SuccessfulCreate": 2, "SuccessfulDelete": 1, "Suspended": 1, "Resumed": 1, "Completed": 1} {
		if got[reason] != n {
			t.Errorf("%d events %s, want %d: %v", got[reason], reason, n, got)
		}
	}
}

// The suite of Kubernetes: "should adopt matching orphans and release non-matching
// pods".
func TestAdoptsOrphansAndLetsGoOfStrangers(t *testing.T) {
	job := newJob(func(s *batchv1.JobSpec) { s.Parallelism, s.Completions = ptr(int32(2)), ptr(int32(9)) })
	w := newWorld(t, t, job)
	w.rest()
	orphan := w.pods()[0]
	orphan.OwnerReferences = nil
	w.do(store.Update, orphan)
	w.rest()
	if p := w.st.Get(store.KeyOf(orphan)).(*corev1.Pod); !metav1.IsControlledBy(p, job) || !tracked(p) || len(p.Finalizers) != 1 || len(w.pods()) != 2 {
		t.Fatalf("not adopted: %+v, %d pods", p.ObjectMeta, len(w.pods()))
	}
	stranger := w.pods()[1]
	stranger.Labels = map[string]string{"app": "other"}
	w.do(store.Update, stranger)
	w.rest()
	if p := w.st.Get(store.KeyOf(stranger)).(*corev1.Pod); metav1.GetControllerOf(p) != nil || tracked(p) || len(w.pods()) != 3 {
		t.Fatalf("not let go: %+v, %d pods", p.ObjectMeta, len(w.pods()))
	}
	if s := w.job().Status; s.Active != 2 || s.Failed != 0 {
		t.Errorf("status %+v", s)
	}
}

// Pods that a Job left behind are not held by its finalizer for ever.
func TestPodsWithoutAJobAreReleased(t *testing.T) {
	w := newWorld(t, t, newJob(func(s *batchv1.JobSpec) { s.Parallelism, s.Completions = ptr(int32(2)), ptr(int32(2)) }))
	w.rest()
	w.do(store.Delete, w.job())
	orphan := w.pods()[0]
	orphan.OwnerReferences = nil
	w.do(store.Update, orphan)
	w.rest()
	for _, p := range w.pods() {
		if tracked(p) {
			t.Errorf("%s is still held", p.Name)
		}
	}
}

// A pod that may not be created is told of, and tried again.
func TestARefusedPodIsToldOf(t *testing.T) {
	job := newJob(nil)
	job.Namespace = "default"
	w := newWorld(t, t, job)
	ns := w.st.Get(store.Key{GroupResource: api.Namespaces(), Name: "default"})
	w.do(store.Delete, ns)
	w.rest()
	if got := w.events()["FailedCreate"]; got != 1 || len(w.pods()) != 0 || w.job().Status.Active != 0 {
		t.Fatalf("events %v, %d pods", w.events(), len(w.pods()))
	}
	again := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	store.Stamp(again, w.now)
	w.do(store.Create, again)
	w.now = w.loop.Next()
	w.rest()
	if len(w.pods()) != 1 {
		t.Errorf("%d pods once it may", len(w.pods()))
	}
}
