package probe

import (
	corev1 "k8s.io/api/core/v1"
)

// Kind of a probe, as events call it.
type Kind string

const (
	Startup   Kind = "Startup"
	Readiness Kind = "Readiness"
	Liveness  Kind = "Liveness"
)

// Of is a container's probe of a kind; nil when it has none.
func (k Kind) Of(c *corev1.Container) *corev1.Probe {
	switch k {
	case Startup:
		return c.StartupProbe
	case Readiness:
		return c.ReadinessProbe
	default:
		return c.LivenessProbe
	}
}

// Result of one check, or of several together.
type Result string

const (
	Unknown Result = "" // not asked yet, or it could not be asked
	Success Result = "success"
	Failure Result = "failure"
)

// Tally is what the results of one probe have come to so far.
type Tally struct {
	Verdict Result // Unknown until a threshold was reached
	last    Result
	run     int32 // how often last came in a row
}

// Add counts one more result. A verdict changes when the result's threshold is
// reached.
func (t Tally) Add(r Result, p *corev1.Probe) Tally {
	if r == Unknown {
		return t
	}
	if t.last != r {
		t.last, t.run = r, 0
	}
	t.run = min(t.run+1, 1<<30)
	threshold := p.SuccessThreshold
	if r == Failure {
		threshold = p.FailureThreshold
		if threshold <= 0 {
			threshold = 3
		}
	}
	if t.run >= threshold {
		t.Verdict = r
	}
	return t
}
