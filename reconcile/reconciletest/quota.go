package reconciletest

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/admission"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
)

// OpenBounded is a store that enforces LimitRanges and ResourceQuotas.
func OpenBounded(t testing.TB) *store.Store {
	t.Helper()
	st := store.New(memory.New(), store.Options{Seal: storetest.SealKey(), Bounds: store.Bounds{Limit: admission.Limit, Charge: admission.Charge}})
	if err := st.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	return st
}

// Quota is the ResourceQuota q of a namespace, for one resource.
func Quota(namespace string, name corev1.ResourceName, n string) *corev1.ResourceQuota {
	hard := corev1.ResourceList{name: resource.MustParse(n)}
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard}}
}

// Raise gives that quota another bound.
func (w *World) Raise(namespace string, name corev1.ResourceName, n string) {
	w.Helper()
	q := w.Store.Get(store.KeyOf(Quota(namespace, name, n))).(*corev1.ResourceQuota).DeepCopy()
	q.Status.Hard = corev1.ResourceList{name: resource.MustParse(n)}
	w.Update(q)
}

// Retries lets the controller try again for a while, and says how often it wrote.
func (w *World) Retries(d time.Duration) int {
	w.Helper()
	before, end := w.Commits, w.Now.Add(d)
	for range 1000 {
		w.Settle()
		next := w.Loop.Next()
		if next.IsZero() || next.After(end) {
			w.Now = end
			return w.Commits - before
		}
		w.Now = next
	}
	w.Fatalf("the controller does not back off")
	return 0
}
