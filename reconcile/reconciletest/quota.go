package reconciletest

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
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

// PodsRefused is what FillsQuota's quota says of a fourth pod.
const PodsRefused = "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"

// FillsQuota gives a namespace room for three pods and creates what wants ten: as many are
// made as fit, the rest is told of in an event and tried ever more rarely, and made when
// there is room. pods says how many there are; refused looks, while there is none, at what
// the events say and at whatever else tells of it.
func (w *World) FillsQuota(obj api.Object, pods func() int, refused func(told string)) {
	w.Helper()
	namespace := obj.GetNamespace()
	w.Create(Quota(namespace, corev1.ResourcePods, "3"))
	w.Create(obj)
	w.Retries(time.Minute)
	if n := pods(); n != 3 {
		w.Fatalf("%d pods were made, 3 fit", n)
	}
	told := strings.Join(w.Events(namespace, "FailedCreate"), "\n")
	if !strings.Contains(told, PodsRefused) {
		w.Errorf("the events do not say %q: %s", PodsRefused, told)
	}
	refused(told)
	w.Retries(time.Hour)
	if n := w.Retries(time.Hour); n > 60 {
		w.Errorf("%d writes in an hour in which nothing changed", n)
	}
	w.Raise(namespace, corev1.ResourcePods, "20")
	w.Retries(time.Hour)
	if n := pods(); n != 10 {
		w.Errorf("%d pods, want 10", n)
	}
}
