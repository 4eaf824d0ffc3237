package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/probe"
)

// greet runs a container's postStart hook. Nothing else happens to the pod meanwhile,
// as in Kubernetes, unless it is deleted. An agent that dies before the outcome is on
// record runs it again: a hook is called at least once.
func (a *Agent) greet(ctx context.Context, e *entry, pod *corev1.Pod, s step) {
	c := containerNamed(pod, s.container)
	err := a.hook(ctx, e, pod, c, c.Lifecycle.PostStart, s.ids[0])
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	o := e.observed(nil)
	cur, ok := o.current(c.Name)
	if !ok || cur.ID != s.ids[0] {
		return
	}
	h := o.health(c, cur)
	if h.greeted = err == nil; err != nil {
		h.sick = hookFailed
		a.event(pod, c.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: "+err.Error(), a.cfg.Now())
	}
	e.record.health[c.Name] = h
}

// preStop runs a container's preStop hook for as long as there is grace.
func (a *Agent) preStop(ctx context.Context, e *entry, pod *corev1.Pod, v victim) {
	c := containerNamed(pod, v.name)
	hooked, cancel := context.WithTimeout(ctx, v.grace)
	defer cancel()
	err := a.hook(hooked, e, pod, c, c.Lifecycle.PreStop, v.id)
	if ctx.Err() != nil {
		return // cut short: it may be called again
	}
	a.mu.Lock()
	e.record.hooked[v.id] = true
	a.mu.Unlock()
	if err == nil {
		return
	}
	if hooked.Err() != nil {
		err = fmt.Errorf("it did not end within the grace period of %s", v.grace)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.event(pod, c.Name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: "+err.Error(), a.cfg.Now())
}

// hook runs a hook of a container. What a command prints is in no error: it may be a
// secret (R14).
func (a *Agent) hook(ctx context.Context, e *entry, pod *corev1.Pod, c *corev1.Container, h *corev1.LifecycleHandler, id string) error {
	switch {
	case h.Exec != nil:
		code, _, err := a.exec(ctx, id, h.Exec.Command, 0, nil)
		if err == nil && code != 0 {
			err = fmt.Errorf("the command ended with exit code %d", code)
		}
		return err
	case h.HTTPGet != nil:
		a.mu.Lock()
		ip := first(e.observed(a.hostIPs()).addresses())
		a.mu.Unlock()
		_, err := probe.Get(ctx, h.HTTPGet, ip, c, 0) // whatever it answers, it was told
		return err
	case h.Sleep != nil:
		timer := time.NewTimer(api.Seconds(h.Sleep.Seconds))
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	case h.TCPSocket != nil:
		return errors.New("a hook cannot be a tcpSocket")
	}
	return errors.New("the hook says nothing that could be done")
}

// exec runs a command in a container.
func (a *Agent) exec(ctx context.Context, id string, command []string, timeout time.Duration, out io.Writer) (code int32, killed bool, err error) {
	code, err = a.cfg.Runtime.Exec(ctx, ExecRequest{ID: id, Command: command, Timeout: timeout, Stdout: out, Stderr: out})
	return code, errors.Is(err, ErrKilled), err
}
