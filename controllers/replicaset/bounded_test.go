package replicaset

import (
	"strings"
	"testing"
	"time"

	"headway.dev/headway/reconcile/reconciletest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestQuotaIsFilledAndTold: as many pods are made as fit, the rest is told as
// Kubernetes tells it (ReplicaFailure, FailedCreate), and made when there is room.
func TestQuotaIsFilledAndTold(t *testing.T) {
	w := newWorldOn(t, reconciletest.OpenBounded(t))
	w.Create(reconciletest.Quota("shop", corev1.ResourcePods, "3"))
	w.Create(web(10))
	w.Retries(time.Minute)
	if n := len(w.pods()); n != 3 {
		t.Fatalf("%d pods were made, 3 fit", n)
	}
	const refused = "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"
	failed := ""
	for _, c := range w.set().Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			failed = c.Reason + ": " + c.Message
		}
	}
	if !strings.HasPrefix(failed, "FailedCreate: ") || !strings.Contains(failed, refused) {
		t.Errorf("the condition says %q", failed)
	}
	if told := strings.Join(w.Events("shop", "FailedCreate"), "\n"); !strings.Contains(told, refused) {
		t.Errorf("the events say %q", told)
	}
	w.Retries(time.Hour)
	if n := w.Retries(time.Hour); n > 60 {
		t.Errorf("%d writes in an hour in which nothing changed", n)
	}
	w.Raise("shop", corev1.ResourcePods, "20")
	w.Retries(time.Hour)
	if n := len(w.pods()); n != 10 {
		t.Errorf("%d pods, want 10", n)
	}
}
