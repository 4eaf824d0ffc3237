package statefulset

import (
	"context"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// openBounded is a store that enforces quotas.
func openBounded(t *testing.T) *store.Store {
	t.Helper()
	st := store.New(memory.New(), store.Options{Seal: storetest.SealKey(), Bounds: store.Bounds{Limit: admission.Limit, Charge: admission.Charge}})
	if err := st.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	return st
}

func quotaOf(name corev1.ResourceName, n string) *corev1.ResourceQuota {
	hard := corev1.ResourceList{name: resource.MustParse(n)}
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard}}
}

// raise gives the quota another bound.
func (w *world) raise(name corev1.ResourceName, n string) {
	w.Helper()
	q := w.st.Get(store.KeyOf(quotaOf(name, n))).(*corev1.ResourceQuota).DeepCopy()
	q.Status.Hard = corev1.ResourceList{name: resource.MustParse(n)}
	w.update(q)
}

// retries lets the controller try again for a while, and says how often it wrote.
func (w *world) retries(d time.Duration) int {
	w.Helper()
	before, end := w.commits, w.now.Add(d)
	for range 1000 {
		w.settle()
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
	w := newWorldOn(t, openBounded(t))
	w.create(quotaOf(corev1.ResourcePods, "3"))
	w.create(db(10, parallel))
	w.retries(time.Minute)
	if n := len(w.pods()); n != 3 {
		t.Fatalf("%d pods were made, 3 fit", n)
	}
	told := strings.Join(w.events("FailedCreate"), "\n")
	for _, want := range []string{"Create Pod db-3 in StatefulSet db failed error: ", "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"} {
		if !strings.Contains(told, want) {
			t.Errorf("the event does not say %q: %s", want, told)
		}
	}
	w.retries(time.Hour)
	if n := w.retries(time.Hour); n > 60 {
		t.Errorf("%d writes in an hour in which nothing changed", n)
	}
	w.raise(corev1.ResourcePods, "20")
	w.retries(time.Hour)
	if n := len(w.pods()); n != 10 {
		t.Errorf("%d pods, want 10", n)
	}
}

// TestQuotaOfClaims: pods whose claims do not fit are not made; a claim that a
// pending pod has lost and that does not fit again is told of.
func TestQuotaOfClaims(t *testing.T) {
	w := newWorldOn(t, openBounded(t))
	w.create(quotaOf(corev1.ResourcePersistentVolumeClaims, "2"))
	w.create(db(4, parallel, retain("Retain", "Retain")))
	w.retries(time.Minute)
	claims := w.st.List(api.PersistentVolumeClaims(), "shop")
	if len(w.pods()) != 2 || len(claims) != 2 {
		t.Fatalf("%d pods and %d claims, 2 fit", len(w.pods()), len(claims))
	}
	if told := strings.Join(w.events("FailedCreate"), "\n"); !strings.Contains(told, "exceeded quota: q, requested: persistentvolumeclaims=1") {
		t.Errorf("the events say %q", told)
	}
	w.change(replicas(2))
	w.retries(time.Minute)
	w.raise(corev1.ResourcePersistentVolumeClaims, "1")
	w.commit(store.Op{Verb: store.Delete, Object: claims[0]})
	w.retries(time.Minute)
	if told := strings.Join(w.events("FailedCreate"), "\n"); !strings.Contains(told, "Create Claim in StatefulSet db failed error: ") {
		t.Errorf("the events say %q", told)
	}
	w.raise(corev1.ResourcePersistentVolumeClaims, "4")
	w.retries(time.Hour)
	if n := len(w.st.List(api.PersistentVolumeClaims(), "shop")); n != 2 {
		t.Errorf("%d claims, want 2", n)
	}
}
