package job

import (
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile/reconciletest"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// raise gives the quota another bound.
func (w *world) raise(name corev1.ResourceName, n string) {
	w.Helper()
	q := w.st.Get(store.KeyOf(reconciletest.Quota("default", name, n))).(*corev1.ResourceQuota).DeepCopy()
	q.Status.Hard = corev1.ResourceList{name: resource.MustParse(n)}
	w.do(store.Update, q)
}

// retries lets the controller try again for a while, and says how often it wrote.
func (w *world) retries(d time.Duration) int {
	w.Helper()
	before, end := w.commits, w.now.Add(d)
	for range 1000 {
		w.rest()
		next := w.loop.Next()
		if next.IsZero() || next.After(end) {
			w.now = end
			return w.commits - before
		}
		w.now = next
	}
	w.Fatalf("the controller does not back off")
	return 0
}

// TestQuotaIsFilledAndTold: as many pods are made as fit, the rest is told in an
// event and made when there is room; meanwhile the tries become rare.
func TestQuotaIsFilledAndTold(t *testing.T) {
	for name, job := range map[string]*batchv1.Job{
		"NonIndexed": newJob(func(s *batchv1.JobSpec) { n := int32(10); s.Completions, s.Parallelism = &n, &n }),
		"Indexed":    indexedJob(10, 10),
	} {
		t.Run(name, func(t *testing.T) {
			job.Name, job.Namespace, job.UID, job.ResourceVersion = "work", "default", "", ""
			st := reconciletest.OpenBounded(t)
			if _, err := st.Commit(t.Context(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: stamped(reconciletest.Quota("default", corev1.ResourcePods, "3"))}}}); err != nil {
				t.Fatal(err)
			}
			w := newWorldOn(t, t, st, job)
			w.retries(time.Minute)
			if n := len(w.pods()); n != 3 || w.job().Status.Active != 3 {
				t.Fatalf("%d pods were made and %d are told of, 3 fit", n, w.job().Status.Active)
			}
			told := ""
			for _, obj := range w.st.List(api.Events(), "default") {
				if e := obj.(*corev1.Event); e.Reason == "FailedCreate" {
					told += e.Message
				}
			}
			if !strings.Contains(told, "Error creating: ") || !strings.Contains(told, "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3") {
				t.Errorf("the events say %q", told)
			}
			w.retries(time.Hour)
			if n := w.retries(time.Hour); n > 300 { // each try asks for 7, 3, 1 and no pods, once a minute
				t.Errorf("%d writes in an hour in which nothing changed", n)
			}
			w.raise(corev1.ResourcePods, "20")
			w.retries(time.Hour)
			if n := len(w.pods()); n != 10 {
				t.Errorf("%d pods, want 10", n)
			}
		})
	}
}

func stamped(q *corev1.ResourceQuota) *corev1.ResourceQuota {
	store.Stamp(q, noon)
	return q
}
