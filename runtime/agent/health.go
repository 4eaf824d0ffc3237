package agent

import (
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/probe"
)

// health is what hooks and probes have said of one attempt of a container.
type health struct {
	id      string // of the attempt
	greeted bool   // its postStart hook is over, if it has one
	started bool   // its startup probe has succeeded, if it has one
	ready   bool   // so has its readiness probe
	sick    string // why it is to be killed: a kind of probe or hookFailed; "": it is not
	tallies map[probe.Kind]probe.Tally
}

// hookFailed is the sickness of a container whose postStart hook failed.
const hookFailed = "PostStartHook"

// up says that the container counts as started.
func (h health) up() bool { return h.greeted && h.started && h.sick == "" }

// health of an attempt that runs. Of one that nothing is known of, the newest status
// says it: so a restarted agent takes it over as it was (R8).
func (o observed) health(c *corev1.Container, cur ContainerState) health {
	if h, ok := o.record.health[c.Name]; ok && h.id == cur.ID {
		return h
	}
	h := health{
		id: cur.ID, greeted: c.Lifecycle == nil || c.Lifecycle.PostStart == nil,
		started: c.StartupProbe == nil, ready: c.ReadinessProbe == nil,
	}
	if s := lastStatus(&o.record.last, c.Name); s != nil && s.ContainerID == engine+cur.ID && s.State.Running != nil {
		h.greeted = true
		h.started = h.started || s.Started != nil && *s.Started
		h.ready = h.ready || s.Ready
	}
	return h
}

// judge adds what a probe found to what is known.
func (h health) judge(kind probe.Kind, r probe.Result, p *corev1.Probe) health {
	tallies := map[probe.Kind]probe.Tally{}
	for k, t := range h.tallies {
		tallies[k] = t
	}
	tallies[kind] = tallies[kind].Add(r, p)
	h.tallies = tallies
	switch verdict := tallies[kind].Verdict; {
	case verdict == probe.Unknown:
	case kind == probe.Readiness:
		h.ready = verdict == probe.Success
	case verdict == probe.Failure:
		h.sick = string(kind)
	case kind == probe.Startup:
		h.started = true
	}
	return h
}
