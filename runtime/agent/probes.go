package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/probe"
)

// probes are those of all containers of the node: one schedule, and one goroutine that
// sleeps until something of it is due. Agent.mu guards it.
type probes struct {
	schedule *probe.Schedule[*watch]
	sleeping time.Time // until when the goroutine sleeps; zero: until it is woken
	wake     chan struct{}
}

// watch is one probe of one attempt of a container.
type watch struct {
	watched
	e    *entry
	item *probe.Item[*watch]
	// How often a readiness probe was asked in vain before its first success; negative:
	// it has succeeded, or is of another kind.
	early int
	cut   func() // ends the check that is under way; nil: none is
}

// watched is what a watch is of.
type watched struct {
	container string
	kind      probe.Kind
	id        string // of the attempt
}

// Checks at one time, if Config says nothing: over the network they mostly wait, and a
// command is the start of a program.
const (
	defaultProbes   = 200
	defaultCommands = 8
	slowProbe       = 10 * time.Second // from then on a check keeps no other waiting
)

// probed lists what is to be asked of a pod's containers now: as long as one has not
// started only its startup probe, then the others; of a pod that is being deleted only
// whether it is ready.
func (o observed) probed(now time.Time) (out []watched) {
	deleting := o.pod != nil && o.pod.DeletionTimestamp != nil
	if o.pod == nil || !o.wanted || o.sandbox == nil || o.ending(now) && !deleting {
		return nil
	}
	for _, list := range [][]corev1.Container{o.pod.Spec.InitContainers, o.pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if c.StartupProbe == nil && c.ReadinessProbe == nil && c.LivenessProbe == nil {
				continue
			}
			cur, ok := o.current(c.Name)
			if !ok || cur.Phase != Running {
				continue
			}
			h := o.health(c, cur)
			for _, kind := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
				startup := kind == probe.Startup
				if kind.Of(c) == nil || !h.greeted || h.sick != "" || startup == h.started || deleting && kind != probe.Readiness {
					continue
				}
				out = append(out, watched{c.Name, kind, cur.ID})
			}
		}
	}
	return out
}

// watchOver has what is to be asked of a pod's containers on the schedule, and nothing
// else of it. Agent.mu is held.
func (a *Agent) watchOver(e *entry, now time.Time) {
	wanted := e.observed(nil).probed(now)
	if len(wanted) == 0 && len(e.watches) == 0 {
		return
	}
	e.watches = slices.DeleteFunc(e.watches, func(w *watch) bool {
		if slices.Contains(wanted, w.watched) {
			return false
		}
		a.probes.schedule.Remove(w.item)
		if w.cut != nil {
			w.cut()
		}
		return true
	})
	for _, of := range wanted {
		if slices.ContainsFunc(e.watches, func(w *watch) bool { return w.watched == of }) {
			continue
		}
		w := &watch{watched: of, e: e, early: -1}
		cur, _ := e.observed(nil).current(of.container)
		if c := containerNamed(e.pod, of.container); of.kind == probe.Readiness && !e.observed(nil).health(c, cur).ready {
			w.early = 0
		}
		p := of.kind.Of(containerNamed(e.pod, of.container))
		w.item = a.probes.schedule.Add(w, a.firstProbe(e, of, p, now), p.Exec != nil)
		e.watches = append(e.watches, w)
	}
	a.probes.stir()
}

// firstProbe is when a container is asked first. What ran before this agent is asked
// within a period, not all of it at once.
func (a *Agent) firstProbe(e *entry, of watched, p *corev1.Probe, now time.Time) time.Time {
	cur, _ := e.observed(nil).current(of.container)
	at := cur.StartedAt.Add(time.Duration(p.InitialDelaySeconds) * time.Second)
	if at.After(now) {
		return at
	}
	if !cur.StartedAt.Before(a.born) {
		return now
	}
	return now.Add(spread(periodOf(p), string(e.uid), of.container, string(of.kind)))
}

func periodOf(p *corev1.Probe) time.Duration {
	return time.Duration(cmp.Or(p.PeriodSeconds, 10)) * time.Second
}

// pause is the time to the next check. Until a container has been ready once, each that
// finds it not ready costs whoever waits for it: it is asked again after 1 s, 2 s, 4 s …,
// at most its period. How many failures there are makes no difference as long as it is
// not ready; successes are counted a period apart.
func (w *watch) pause(p *corev1.Probe, found probe.Result) time.Duration {
	period := periodOf(p)
	if found == probe.Success {
		w.early = -1
	}
	if w.early < 0 {
		return period
	}
	soon := min(time.Second<<min(w.early, 16), period)
	w.early++
	return soon
}

// stir wakes the goroutine if something is due before it wakes by itself.
func (p *probes) stir() {
	if next := p.schedule.Next(); !next.IsZero() && (p.sleeping.IsZero() || next.Before(p.sleeping)) {
		notify(p.wake)
	}
}

// examine asks what is due until ctx ends.
func (a *Agent) examine(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		a.mu.Lock()
		now := a.cfg.Now()
		for it := a.probes.schedule.Take(now); it != nil; it = a.probes.schedule.Take(now) {
			wg.Go(func() { a.check(ctx, it) })
		}
		next, sleep := a.probes.schedule.Next(), time.Hour
		a.probes.sleeping = next
		if !next.IsZero() {
			sleep = max(next.Sub(now), 0)
		}
		a.mu.Unlock()
		timer.Reset(sleep)
		select {
		case <-ctx.Done():
			return
		case <-a.probes.wake:
		case <-timer.C:
		}
	}
}

// Probe asks what is due first; false when nothing is. It is for who steps the agent.
func (a *Agent) Probe(ctx context.Context) bool {
	a.mu.Lock()
	it := a.probes.schedule.Take(a.cfg.Now())
	a.mu.Unlock()
	if it != nil {
		a.check(ctx, it)
	}
	return it != nil
}

// NextProbe is when the first probe is due; zero when none is.
func (a *Agent) NextProbe() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.probes.schedule.Next()
}

// check asks once and takes in the answer.
func (a *Agent) check(ctx context.Context, it *probe.Item[*watch]) {
	w := it.Value
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	a.mu.Lock()
	w.cut = cut
	e := w.e
	pod, ip := e.pod, first(e.observed(a.hostIPs()).addresses())
	a.mu.Unlock()
	c := containerNamed(pod, w.container)
	p := w.kind.Of(c)
	slow := time.AfterFunc(slowProbe, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.probes.schedule.Yield(it)
		a.probes.stir()
	})
	answer := probe.Answer{Message: "the pod has no address"}
	if ip != "" || p.Exec != nil {
		answer = a.cfg.Probe(ctx, probe.Request{
			Handler: p.ProbeHandler, Timeout: time.Duration(cmp.Or(p.TimeoutSeconds, 1)) * time.Second, IP: ip, Container: c, ID: w.id,
		})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w.cut = nil
	slow.Stop()
	now := a.cfg.Now()
	period := w.pause(p, answer.Result)
	wanted := a.probes.schedule.Done(it, period, now)
	a.probes.stir()
	if wanted && ctx.Err() == nil {
		a.answered(e, w, c, answer, now)
	}
}

// answered takes in what a probe found. Agent.mu is held.
func (a *Agent) answered(e *entry, w *watch, c *corev1.Container, answer probe.Answer, now time.Time) {
	o := e.observed(nil)
	cur, ok := o.current(w.container)
	if !ok || cur.ID != w.id || cur.Phase != Running {
		return
	}
	switch {
	case answer.Result == probe.Failure:
		a.event(e.pod, c.Name, corev1.EventTypeWarning, "Unhealthy", string(w.kind)+" probe failed: "+answer.Message, now)
	case answer.Result == probe.Unknown:
		a.event(e.pod, c.Name, corev1.EventTypeWarning, "Unhealthy", string(w.kind)+" probe errored and resulted in unknown state: "+answer.Message, now)
		return
	case answer.Warning != "":
		a.event(e.pod, c.Name, corev1.EventTypeWarning, "ProbeWarning", string(w.kind)+" probe warning: "+answer.Warning, now)
	}
	before := o.health(c, cur)
	after := before.judge(w.kind, answer.Result, w.kind.Of(c))
	e.record.health[c.Name] = after
	if after.started != before.started || after.ready != before.ready || after.sick != before.sick {
		a.wake(e)
	}
}
