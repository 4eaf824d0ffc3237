package agent

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/probe"
)

// A readiness probe is asked sooner until its first success, and never after it.
func TestReadinessIsAskedSooner(t *testing.T) {
	p := &corev1.Probe{PeriodSeconds: 10}
	w := &watch{}
	var took []time.Duration
	for range 6 {
		took = append(took, w.pause(p, probe.Failure))
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if took[i] != want*time.Second {
			t.Errorf("pauses %v", took)
		}
	}
	for _, found := range []probe.Result{probe.Success, probe.Failure, probe.Unknown, probe.Success} {
		if got := w.pause(p, found); got != 10*time.Second {
			t.Errorf("after the first success, %s: %s", found, got)
		}
	}
	if got := (&watch{}).pause(&corev1.Probe{PeriodSeconds: 1}, probe.Failure); got != time.Second {
		t.Errorf("more often than its period: %s", got)
	}
	if got := (&watch{early: -1}).pause(p, probe.Failure); got != 10*time.Second {
		t.Errorf("another probe: %s", got)
	}
}
