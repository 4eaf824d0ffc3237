package event_test

import (
	"fmt"
	"testing"

	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// TestRefusedTriesUseNothingUp: events of transactions that were refused leave the
// bounds as they were, so that the refusal can be told of.
func TestRefusedTriesUseNothingUp(t *testing.T) {
	f := open(t)
	try := func() (ops []store.Op) {
		for i := range 20 {
			ops = append(ops, f.rec.Op(pod("web"), corev1.EventTypeNormal, "SuccessfulCreate", fmt.Sprintf("Created pod: web-%d", i))...)
		}
		return ops
	}
	for range 5 {
		ops := try()
		if len(ops) != 20 {
			t.Fatalf("%d events of 20", len(ops))
		}
		f.rec.Undo(append(ops, store.Op{Verb: store.Create, Object: pod("web-1")}))
	}
	f.rec.Undo(nil)
	if n := len(try()) + len(try()); n != 25 {
		t.Errorf("%d events in a burst, the bound is 25", n)
	}
}
