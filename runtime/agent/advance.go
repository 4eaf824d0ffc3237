package agent

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/probe"
)

// advance brings a pod that should run one step closer to it.
func advance(o observed, now time.Time) decision {
	if o.over() {
		d, _ := stopAll(o, now, graceOf(o.pod), "the pod's containers have ended")
		return d
	}
	var d decision
	if d.step = debug(o, now, &d); d.step.verb != wait {
		return d
	}
	begun, inits := o.begun(), o.pod.Spec.InitContainers
	for i := range inits {
		c := &inits[i]
		if begun && !sidecar(c) {
			continue
		}
		if d.step = next(o, c, now, &d); d.step.verb != wait {
			return d
		}
		if !begun && !o.passed(i) {
			return d // the next one starts after this one
		}
	}
	for i := range o.pod.Spec.Containers {
		if d.step = next(o, &o.pod.Spec.Containers[i], now, &d); d.step.verb != wait {
			return d
		}
	}
	if old := tidy(o); old.verb != wait {
		d.try(o, now, old)
	}
	return d
}

// over says that every regular container has run and ended for good.
func (o observed) over() bool {
	for i := range o.pod.Spec.Containers {
		c := &o.pod.Spec.Containers[i]
		if cur, ok := o.current(c.Name); !ok || cur.Phase != Exited || o.again(c, cur) {
			return false
		}
	}
	return true
}

// begun says that the initialization of this sandbox is over: a regular container
// lives, or was started in it. When a sandbox is lost with all that ran in it, the
// whole sequence runs again.
func (o observed) begun() bool {
	for i := range o.pod.Spec.Containers {
		if cur, ok := o.current(o.pod.Spec.Containers[i].Name); ok && (cur.Phase != Exited || o.here(cur)) {
			return true
		}
	}
	return false
}

// here says that an attempt was started in the sandbox as it is now.
func (o observed) here(c ContainerState) bool { return o.sandbox != nil && c.Made == o.sandbox.Made }

// passed says that the i-th init container lets the next one start: it has ended
// well, or, of a sidecar, it has started once.
func (o observed) passed(i int) bool {
	c := &o.pod.Spec.InitContainers[i]
	cur, ok := o.current(c.Name)
	switch {
	case !ok || !o.here(cur):
		return false
	case !sidecar(c):
		return cur.Phase == Exited && cur.ExitCode == 0
	case cur.Phase == Running && o.health(c, cur).up():
		return true
	}
	for j := i + 1; j < len(o.pod.Spec.InitContainers); j++ { // it had, and crashed since
		if later, ok := o.current(o.pod.Spec.InitContainers[j].Name); ok && o.here(later) {
			return true
		}
	}
	return false
}

// isInit says whether a container of the pod's spec is an init container.
func (o observed) isInit(c *corev1.Container) bool {
	for i := range o.pod.Spec.InitContainers {
		if o.pod.Spec.InitContainers[i].Name == c.Name {
			return true
		}
	}
	return false
}

// again says whether a dead attempt has a successor.
func (o observed) again(c *corev1.Container, dead ContainerState) bool {
	if debugNamed(o.pod, c.Name) != nil {
		return false
	}
	if attempt, ok := o.record.replace[c.Name]; ok && attempt == dead.Attempt {
		return true
	}
	if !o.isInit(c) {
		return restarts(o.pod, c, dead.ExitCode)
	}
	return initRestarts(o.pod, c, dead.ExitCode) || o.repeats(c, dead)
}

// repeats says that an init container has done its work for a sandbox that is gone.
func (o observed) repeats(c *corev1.Container, dead ContainerState) bool {
	return !sidecar(c) && dead.ExitCode == 0 && !o.here(dead) && !o.begun()
}

// try takes a step, unless the last one of its kind failed and it is too early for
// another.
func (d *decision) try(o observed, now time.Time, s step) {
	tried := unlessTrouble(o.record.sandbox, now, s)
	d.wakeAt(tried.wake)
	d.step = tried.step
}

// next is the step that one container needs now, if any.
func next(o observed, c *corev1.Container, now time.Time, d *decision) step {
	cur, exists := o.current(c.Name)
	s := step{verb: start, container: c.Name, why: "the pod is new"}
	if exists {
		switch cur.Phase {
		case Running:
			return keep(o, c, cur, now, d)
		case Unknown:
			d.wakeAt(now.Add(unsureAgain))
			return step{}
		case Created: // the agent or the engine died between make and start
			d.try(o, now, step{verb: remove, ids: []string{cur.ID}, why: "it was never started"})
			return d.step
		}
		if !o.again(c, cur) {
			return step{}
		}
		at, delay := o.restartAt(c.Name, cur)
		if attempt, ok := o.record.replace[c.Name]; ok && attempt == cur.Attempt || o.isInit(c) && o.sandbox != nil && !o.here(cur) {
			at, delay = now, 0
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

// keep is the step that a running container needs.
func keep(o observed, c *corev1.Container, cur ContainerState, now time.Time, d *decision) step {
	h, s := o.health(c, cur), step{}
	switch {
	case outdated(cur, c):
		s = stopOne(o, cur, graceOf(o.pod), now)
		s.replace, s.said = true, fmt.Sprintf("Container %s definition changed, will be restarted", c.Name)
	case h.sick == hookFailed:
		s = stopOne(o, cur, graceOf(o.pod), now)
		s.said = "FailedPostStartHook"
	case h.sick != "":
		s = stopOne(o, cur, graceOfProbe(o.pod, probe.Kind(h.sick).Of(c)), now)
		s.said = fmt.Sprintf("Container %s failed %s probe", c.Name, strings.ToLower(h.sick))
		if o.again(c, ContainerState{ExitCode: 137, Attempt: cur.Attempt, Made: cur.Made}) {
			s.said += ", will be restarted"
		}
	case !h.greeted:
		return step{verb: greet, container: c.Name, ids: []string{cur.ID}, why: "it has started"}
	default:
		return step{}
	}
	s.why = s.said
	d.try(o, now, s)
	return d.step
}

// graceOfProbe is what a container gets that failed a probe.
func graceOfProbe(pod *corev1.Pod, p *corev1.Probe) time.Duration {
	if p != nil && p.TerminationGracePeriodSeconds != nil {
		return api.Seconds(*p.TerminationGracePeriodSeconds)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return api.Seconds(*s)
	}
	return defaultGrace
}

// prepare puts what a start needs before it: the sandbox, then the image.
func prepare(o observed, c *corev1.Container, now time.Time, s step, d *decision) step {
	if o.sandbox == nil || !o.sandbox.Ready {
		d.try(o, now, step{verb: makeSandbox, why: "a container needs it"})
		return d.step
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
