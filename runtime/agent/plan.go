package agent

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// verb is what a step does.
type verb string

const (
	wait          verb = ""               // nothing to do now
	makeSandbox   verb = "make sandbox"   // or mend it
	fetchImage    verb = "fetch image"    // for one container
	start         verb = "start"          // one attempt of one container
	drain         verb = "drain"          // no new connection of a Service comes to the pod
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
	ids       []string      // stop, remove
	names     []string      // stop: the containers of ids
	grace     time.Duration // stop
	replace   bool          // stop: for a new image
	why       string
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
	case terminal(report(o, now).Phase):
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
	if d, done := stopAll(o, now, graceOf(o.pod), "the pod has ended"); !done {
		return d
	}
	if o.sandbox == nil || !o.sandbox.Ready {
		return decision{}
	}
	return unlessTrouble(o.record.sandbox, now, step{verb: stopSandbox, why: "the pod has ended"})
}

// stopAll stops the regular containers, then the sidecars; done says that
// nothing runs any more.
func stopAll(o observed, now time.Time, grace time.Duration, why string) (d decision, done bool) {
	live, unsure := o.live()
	if len(live) == 0 {
		if unsure {
			return decision{wake: now.Add(unsureAgain)}, false
		}
		return decision{}, true
	}
	var late []ContainerState
	s := step{verb: stop, grace: grace, why: why}
	for _, c := range live {
		if o.pod != nil && isSidecar(o.pod, c.Name) {
			late = append(late, c)
			continue
		}
		s.ids, s.names = append(s.ids, c.ID), append(s.names, c.Name)
	}
	if len(s.ids) == 0 {
		for _, c := range late {
			s.ids, s.names = append(s.ids, c.ID), append(s.names, c.Name)
		}
	}
	return unlessTrouble(o.record.sandbox, now, s), false
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
		return time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	default:
		return defaultGrace
	}
}

func isSidecar(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return sidecar(&pod.Spec.InitContainers[i])
		}
	}
	return false
}

// advance brings a pod that should run one step closer to it.
func advance(o observed, now time.Time) decision {
	var d decision
	begun := o.begun()
	for i := range o.pod.Spec.InitContainers {
		c := &o.pod.Spec.InitContainers[i]
		if begun && !sidecar(c) {
			continue
		}
		if d.step = next(o, c, now, initRestarts, &d); d.step.verb != wait {
			return d
		}
		cur, ok := o.current(c.Name)
		ready := ok && (sidecar(c) && cur.Phase == Running || !sidecar(c) && cur.Phase == Exited && cur.ExitCode == 0)
		if !ready && !begun {
			return d // the next one starts after this one
		}
	}
	over := true
	for i := range o.pod.Spec.Containers {
		c := &o.pod.Spec.Containers[i]
		if d.step = next(o, c, now, restarts, &d); d.step.verb != wait {
			return d
		}
		cur, ok := o.current(c.Name)
		over = over && ok && cur.Phase == Exited && !restarts(o.pod, c, cur.ExitCode)
	}
	if over {
		stopping, _ := stopAll(o, now, graceOf(o.pod), "the pod's containers have ended")
		return stopping
	}
	if old := tidy(o); old.verb != wait {
		removed := unlessTrouble(o.record.sandbox, now, old)
		d.wakeAt(removed.wake)
		d.step = removed.step
	}
	return d
}

// next is the step that one container needs now, if any.
func next(o observed, c *corev1.Container, now time.Time, again func(*corev1.Pod, *corev1.Container, int32) bool, d *decision) step {
	cur, exists := o.current(c.Name)
	s := step{verb: start, container: c.Name, why: "the pod is new"}
	if exists {
		switch cur.Phase {
		case Running:
			if outdated(cur, c) {
				return step{verb: stop, ids: []string{cur.ID}, names: []string{c.Name}, grace: graceOf(o.pod), replace: true,
					why: fmt.Sprintf("Container %s definition changed, will be restarted", c.Name)}
			}
			return step{}
		case Unknown:
			d.wakeAt(now.Add(unsureAgain))
			return step{}
		case Created: // the agent or the engine died between make and start
			removed := unlessTrouble(o.record.sandbox, now, step{verb: remove, ids: []string{cur.ID}, why: "it was never started"})
			d.wakeAt(removed.wake)
			return removed.step
		}
		at, delay := restartAt(o.record.crashes[c.Name], has(o.record.crashes, c.Name), cur)
		if attempt, ok := o.record.replace[c.Name]; ok && attempt == cur.Attempt {
			at, delay = now, 0
		} else if !again(o.pod, c, cur.ExitCode) {
			return step{}
		}
		if now.Before(at) {
			d.wakeAt(at)
			d.waiting = append(d.waiting, c.Name)
			return step{}
		}
		s.attempt, s.delay, s.why = cur.Attempt+1, delay, "it ended"
	}
	return prepare(o, c, now, s, d)
}

// prepare puts what a start needs before it: the sandbox, then the image.
func prepare(o observed, c *corev1.Container, now time.Time, s step, d *decision) step {
	if o.sandbox == nil || !o.sandbox.Ready {
		made := unlessTrouble(o.record.sandbox, now, step{verb: makeSandbox, why: "a container needs it"})
		d.wakeAt(made.wake)
		return made.step
	}
	if t, ok := o.record.troubles[c.Name]; ok {
		if until := t.backoff.until(); now.Before(until) {
			d.wakeAt(until)
			if turn := t.backoff.Since.Add(pullShown); t.reason == errImagePull && now.Before(turn) {
				d.wakeAt(turn) // the reason shown changes
			}
			return step{}
		}
	}
	if p, ok := o.record.images[c.Name]; !ok || p.asked != c.Image {
		return step{verb: fetchImage, container: c.Name, why: s.why}
	}
	return s
}

func has[V any](m map[string]V, k string) bool { _, ok := m[k]; return ok }

// tidy removes a dead attempt that is older than the one before the newest,
// which stays for the last state and the previous log.
func tidy(o observed) step {
	if o.sandbox == nil {
		return step{}
	}
	list := o.sandbox.Containers
	for i := 0; i+2 < len(list); i++ {
		if list[i].Name == list[i+2].Name && (list[i].Phase == Exited || list[i].Phase == Created) {
			return step{verb: remove, ids: []string{list[i].ID}, why: "two newer attempts exist"}
		}
	}
	return step{}
}
