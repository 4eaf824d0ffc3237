package replicaset

import (
	"strings"
	"testing"

	"headway.dev/headway/reconcile/reconciletest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestQuotaIsFilledAndTold: as many pods are made as fit, the rest is told as
// Kubernetes tells it (ReplicaFailure, FailedCreate), and made when there is room.
func TestQuotaIsFilledAndTold(t *testing.T) {
	w := newWorldOn(t, reconciletest.OpenBounded(t))
	w.FillsQuota(web(10), func() int { return len(w.pods()) }, func(string) {
		failed := ""
		for _, c := range w.set().Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				failed = c.Reason + ": " + c.Message
			}
		}
		if !strings.HasPrefix(failed, "FailedCreate: ") || !strings.Contains(failed, reconciletest.PodsRefused) {
			t.Errorf("the condition says %q", failed)
		}
	})
}
