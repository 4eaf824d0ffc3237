package statefulset

import (
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile/reconciletest"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// TestQuotaIsFilledAndTold: as many pods are made as fit, the rest is told in an
// event and made when there is room; meanwhile the tries become rare.
func TestQuotaIsFilledAndTold(t *testing.T) {
	w := newWorldOn(t, reconciletest.OpenBounded(t))
	w.FillsQuota(db(10, parallel), func() int { return len(w.pods()) }, func(told string) {
		if !strings.Contains(told, "Create Pod db-3 in StatefulSet db failed error: ") {
			t.Errorf("the events say %q", told)
		}
	})
}

// TestQuotaOfClaims: pods whose claims do not fit are not made; a claim that a
// pending pod has lost and that does not fit again is told of.
func TestQuotaOfClaims(t *testing.T) {
	w := newWorldOn(t, reconciletest.OpenBounded(t))
	w.Create(reconciletest.Quota("shop", corev1.ResourcePersistentVolumeClaims, "2"))
	w.Create(db(4, parallel, retain("Retain", "Retain")))
	w.Retries(time.Minute)
	claims := w.Store.List(api.PersistentVolumeClaims(), "shop")
	if len(w.pods()) != 2 || len(claims) != 2 {
		t.Fatalf("%d pods and %d claims, 2 fit", len(w.pods()), len(claims))
	}
	if told := strings.Join(w.Events("shop", "FailedCreate"), "\n"); !strings.Contains(told, "exceeded quota: q, requested: persistentvolumeclaims=1") {
		t.Errorf("the events say %q", told)
	}
	w.change(replicas(2))
	w.Retries(time.Minute)
	w.Raise("shop", corev1.ResourcePersistentVolumeClaims, "1")
	w.Commit(store.Op{Verb: store.Delete, Object: claims[0]})
	w.Retries(time.Minute)
	if told := strings.Join(w.Events("shop", "FailedCreate"), "\n"); !strings.Contains(told, "Create Claim in StatefulSet db failed error: ") {
		t.Errorf("the events say %q", told)
	}
	w.Raise("shop", corev1.ResourcePersistentVolumeClaims, "4")
	w.Retries(time.Hour)
	if n := len(w.Store.List(api.PersistentVolumeClaims(), "shop")); n != 2 {
		t.Errorf("%d claims, want 2", n)
	}
}
