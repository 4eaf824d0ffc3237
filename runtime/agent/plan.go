package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/api"
)

// verb is what a step does.
type verb string

const (
	wait          verb = ""               // nothing to do now
	makeSandbox   verb = "make sandbox"   // or mend it
	fetchImage    verb = "fetch image"    // for one container
	start         verb = "start"          // one attempt of one container
	drain         verb = "drain"          // no new connection of a Service comes to the pod
	greet         verb = "greet"          // the postStart hook of a container
	stop          verb = "stop"           // containers
	remove        verb = "remove"         // a dead attempt
	stopSandbox   verb = "stop sandbox"   // of a pod that has ended and stays
	removeSandbox verb = "remove sandbox" // of a pod that goes
	forget        verb = "forget"         // the pod
)

// step is one transition of one pod.
type step struct {
	verb      verb
	container string        // fetchImage, start
	attempt   int           // start
	delay     time.Duration // start: what this attempt waited after its predecessor's end
	ids       []string      // remove, greet
	victims   []victim      // stop
	grace     time.Duration // stop: the longest of the victims'
	replace   bool          // stop: for a new image
	said      string        // stop: what its event says in the place of the usual
	why       string
}

// victim is a container that is to be stopped.
type victim struct {
	id, name string
	rank     int           // it gets its signal when those of a lower rank have ended
	grace    time.Duration // what is left of it
	hook     bool          // its preStop hook comes first
}

// decision is a step, or when to look again if nothing happens before.
type decision struct {
	step step
	wake time.Time // zero: only when something happens
	// waiting names containers that wait for their next attempt, for the event.
	waiting []string
}

func (d *decision) wakeAt(t time.Time) {
	if !t.IsZero() && (d.wake.IsZero() || t.Before(d.wake)) {
		d.wake = t
	}
}

const (
	defaultGrace = 30 * time.Second
	unsureAgain  = 5 * time.Second
)

// plan decides the next transition of one pod.
func plan(o observed, now time.Time) decision {
	switch {
	case o.pod == nil || !o.wanted:
		return leave(o, now)
	case o.pod.DeletionTimestamp != nil:
		if d, waits := drainFirst(o, now); waits {
			return d
		}
		d := leave(o, now)
		if d.step.verb == forget { // the server takes the object away, then the pod is unassigned
			d.step = step{}
		}
		return d
	case terminal(draft(o, now).Phase):
		return finish(o, now)
	}
	d := advance(o, now)
	if at, ok := o.deadline(); ok {
		d.wakeAt(at)
	}
	return d
}

// drainFirst has a pod that runs taken out of every Service before it is told to
// stop: no request comes to it then that it does not know of. Who cannot say in time
// that he has done so is not waited for.
func drainFirst(o observed, now time.Time) (d decision, waits bool) {
	live, _ := o.live()
	bound := min(drainMost, graceOf(o.pod))
	switch r := o.record; {
	case !o.named || len(live) == 0 || bound <= 0:
		return decision{}, false
	case r.drain.IsZero():
		return decision{step: step{verb: drain, delay: bound, why: "the pod is being deleted"}}, true
	case r.dropped && r.drained || !now.Before(r.drain):
		return decision{}, false
	default:
		return decision{wake: r.drain}, true
	}
}

// leave takes everything of the pod off the node.
func leave(o observed, now time.Time) decision {
	if o.sandbox == nil && o.record.clean {
		return decision{step: step{verb: forget}}
	}
	if d, done := stopAll(o, now, graceOf(o.pod), "the pod is being deleted"); !done {
		return d
	}
	return unlessTrouble(o.record.sandbox, now, step{verb: removeSandbox, why: "the pod is gone"})
}

// finish ends what is left of a pod that has succeeded or failed; its dead
// containers stay for their logs.
func finish(o observed, now time.Time) decision {
	grace := graceOf(o.pod)
	if v := o.verdict(now); v != nil && v.Hasty { // what harms the node is not waited for
		grace = min(grace, time.Second)
	}
	if d, done := stopAll(o, now, grace, "the pod has ended"); !done {
		return d
	}
	if o.sandbox == nil || !o.sandbox.Ready {
		return decision{}
	}
	return unlessTrouble(o.record.sandbox, now, step{verb: stopSandbox, why: "the pod has ended"})
}

// stopAll stops what lives: the regular containers at once, then the sidecars, the
// last first. done says that nothing runs any more.
func stopAll(o observed, now time.Time, grace time.Duration, why string) (d decision, done bool) {
	live, unsure := o.live()
	if len(live) == 0 {
		if unsure {
			return decision{wake: now.Add(unsureAgain)}, false
		}
		return decision{}, true
	}
	s := step{verb: stop, why: why}
	for _, c := range live {
		s.add(o, c, o.rank(c.Name), grace, now)
	}
	return unlessTrouble(o.record.sandbox, now, s), false
}

// stopOne stops one container of a pod that goes on.
func stopOne(o observed, c ContainerState, grace time.Duration, now time.Time) step {
	s := step{verb: stop}
	s.add(o, c, 0, grace, now)
	return s
}

// add has one more container stopped. Of its grace goes what an earlier stop of it
// has used up; its hook is called again if it was cut short, never after the signal.
func (s *step) add(o observed, c ContainerState, rank int, grace time.Duration, now time.Time) {
	began, again := o.record.stops[c.ID]
	if again {
		grace = max(grace-now.Sub(began), 0)
	}
	v := victim{id: c.ID, name: c.Name, rank: rank, grace: grace}
	if o.pod != nil && !o.record.hooked[c.ID] && !c.Signalled && grace > 0 {
		spec := containerNamed(o.pod, c.Name)
		v.hook = spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil
	}
	s.victims = append(s.victims, v)
	s.grace = max(s.grace, grace)
}

func unlessTrouble(t trouble, now time.Time, s step) decision {
	if t.is() && now.Before(t.backoff.until()) {
		return decision{wake: t.backoff.until()}
	}
	return decision{step: s}
}

func graceOf(pod *corev1.Pod) time.Duration {
	switch {
	case pod == nil:
		return defaultGrace
	case pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil:
		return api.Seconds(*pod.DeletionGracePeriodSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return api.Seconds(*pod.Spec.TerminationGracePeriodSeconds)
	default:
		return defaultGrace
	}
}

// rank says when a container is stopped: the regular ones and those that only run at
// the start first, then the sidecars in the reverse of their order.
func (o observed) rank(name string) int {
	if o.pod == nil {
		return 0
	}
	inits := o.pod.Spec.InitContainers
	for i := range inits {
		if inits[i].Name == name && sidecar(&inits[i]) {
			return len(inits) - i
		}
	}
	return 0
}
