package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lastWindow is what a container gets after its stop signal although a hook, or the
// containers that were stopped before it, have used its grace up.
const lastWindow = 2 * time.Second

// stop stops containers, each after its preStop hook and after those of a lower rank.
// When it is cut short, or the agent is killed, the next turn goes on: from the signal
// if that was sent, else from the hook.
func (a *Agent) stop(ctx context.Context, e *entry, pod *corev1.Pod, s step) {
	a.mu.Lock()
	now := a.cfg.Now()
	for _, v := range s.victims {
		message := s.said
		if message == "" {
			message = "Stopping container " + v.name
		}
		a.event(pod, v.name, corev1.EventTypeNormal, "Killing", message, now)
		if !has(e.record.stops, v.id) {
			e.record.stops[v.id] = now
		}
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.grace+lastWindow+engineTimeout)
	defer cancel()
	errs, over := make([]error, len(s.victims)), make([]chan struct{}, len(s.victims))
	for i := range over {
		over[i] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for i, v := range s.victims {
		var before []chan struct{}
		for j, other := range s.victims {
			if other.rank < v.rank {
				before = append(before, over[j])
			}
		}
		wg.Go(func() {
			defer close(over[i])
			errs[i] = a.stopContainer(ctx, e, pod, v, before)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return // cut short: the next turn decides again, perhaps with less grace
	}
	err := errors.Join(errs...)
	if looked := a.look(ctx, e); err == nil {
		err = looked
	}
	a.stopped(e, pod, s, err)
}

// stopContainer stops one container; those of before come first, as long as there is
// grace left.
func (a *Agent) stopContainer(ctx context.Context, e *entry, pod *corev1.Pod, v victim, before []chan struct{}) error {
	began := time.Now()
	if v.hook {
		a.preStop(ctx, e, pod, v)
	}
	timer := time.NewTimer(v.grace - time.Since(began))
	defer timer.Stop()
waiting:
	for _, over := range before {
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			break waiting
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	left := max(v.grace-time.Since(began), min(v.grace, lastWindow))
	return a.cfg.Runtime.StopContainer(ctx, v.id, left)
}

// stopped notes the outcome of a stop.
func (a *Agent) stopped(e *entry, pod *corev1.Pod, s step, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	live, _ := e.observed(nil).live()
	for _, v := range s.victims {
		if s.replace {
			if cur, ok := e.observed(nil).current(v.name); ok {
				e.record.replace[v.name] = cur.Attempt
			}
		}
		switch lives := slices.ContainsFunc(live, func(c ContainerState) bool { return c.ID == v.id }); {
		case !lives:
			delete(e.record.stops, v.id)
			delete(e.record.hooked, v.id)
		case err == nil:
			err = errors.New("a container still runs after it was stopped")
		}
	}
	if err == nil {
		e.record.sandbox = trouble{}
		return
	}
	e.refresh = true
	now := a.cfg.Now()
	e.record.sandbox = trouble{reason: "FailedKillPod", message: err.Error(), backoff: e.record.sandbox.backoff.next(now, errorFirst, errorMost)}
	a.event(pod, "", corev1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error(), now)
}
