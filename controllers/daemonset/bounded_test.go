package daemonset

import (
	"fmt"
	"strings"
	"testing"

	"headway.dev/headway/reconcile/reconciletest"
)

// TestQuotaIsFilledAndTold: as many pods are made as fit, the rest is told in an
// event and made when there is room; meanwhile the tries become rare.
func TestQuotaIsFilledAndTold(t *testing.T) {
	var nodes []string
	for i := range 10 {
		nodes = append(nodes, fmt.Sprintf("n%d", i))
	}
	w := newWorldOn(t, reconciletest.OpenBounded(t), nodes...)
	w.FillsQuota(logs(), func() int { return len(w.pods()) }, func(told string) {
		if !strings.Contains(told, "Error creating: ") {
			t.Errorf("the events say %q", told)
		}
	})
}
