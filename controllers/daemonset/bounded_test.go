package daemonset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/reconcile/reconciletest"
	corev1 "k8s.io/api/core/v1"
)

// TestQuotaIsFilledAndTold: as many pods are made as fit, the rest is told in an
// event and made when there is room; meanwhile the tries become rare.
func TestQuotaIsFilledAndTold(t *testing.T) {
	var nodes []string
	for i := range 10 {
		nodes = append(nodes, fmt.Sprintf("n%d", i))
	}
	w := newWorldOn(t, reconciletest.OpenBounded(t), nodes...)
	w.Create(reconciletest.Quota("shop", corev1.ResourcePods, "3"))
	w.Create(logs())
	w.Retries(time.Minute)
	if n := len(w.pods()); n != 3 {
		t.Fatalf("%d pods were made, 3 fit", n)
	}
	if told := strings.Join(w.Events("shop", "FailedCreate"), "\n"); !strings.Contains(told, "Error creating: ") || !strings.Contains(told, "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3") {
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
