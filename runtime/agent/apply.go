package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What one call of the engine may take. A stop takes its grace on top; a fetch
// is bounded by the Runtime.
const engineTimeout = 2 * time.Minute

// apply performs one step and merges its outcome. It is idempotent: whatever was
// done before a crash is found again by the next look.
func (a *Agent) apply(ctx context.Context, e *entry, pod *corev1.Pod, s step) {
	switch s.verb {
	case fetchImage:
		a.fetch(ctx, e, pod, s)
		return
	case stop:
		a.stop(ctx, e, pod, s)
		return
	case greet:
		a.greet(ctx, e, pod, s)
		return
	case drain:
		a.drain(e, s)
		return
	}
	select {
	case a.width <- struct{}{}:
		defer func() { <-a.width }()
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	switch s.verb {
	case makeSandbox:
		a.makeSandbox(ctx, e, pod)
	case start:
		a.start(ctx, e, pod, s)
	case remove:
		a.remove(ctx, e, s)
	case stopSandbox:
		err := a.cfg.Runtime.StopSandbox(ctx, e.uid)
		if err == nil {
			err = a.empty(ctx, e.uid)
		}
		a.sandboxDone(ctx, e, pod, err, "FailedKillPod", "stop the pod's sandbox")
		if err == nil {
			a.mu.Lock()
			if e.sandbox != nil { // what it says is believed until the next look at everything
				stopped := *e.sandbox
				stopped.Ready = false
				e.set(&stopped)
			}
			e.refresh = false
			a.mu.Unlock()
		}
	case removeSandbox:
		err := a.cfg.Runtime.RemoveSandbox(ctx, e.uid)
		if err == nil {
			err = a.empty(ctx, e.uid)
		}
		a.sandboxDone(ctx, e, pod, err, "FailedKillPod", "remove the pod's sandbox")
		if err == nil {
			a.mu.Lock()
			e.refresh = false
			if e.sandbox != nil {
				a.flow.admit(e.sandbox.IPs)
			}
			e.set(nil)
			e.record.clean = true
			notify(a.upkeep.wake) // what it had may go now
			a.mu.Unlock()
		}
	}
}

func (a *Agent) makeSandbox(ctx context.Context, e *entry, pod *corev1.Pod) {
	if !a.fill(ctx, e, pod) {
		return
	}
	state, err := a.cfg.Runtime.EnsureSandbox(ctx, SandboxSpec{Pod: pod})
	if err == nil && !state.Ready {
		err = errors.New("it was made but is not ready")
	}
	if err != nil {
		a.mu.Lock()
		e.record.clean = false // something of it may be there
		a.mu.Unlock()
		a.sandboxDone(ctx, e, pod, err, "FailedCreatePodSandBox", "create the pod's sandbox")
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	sortContainers(state.Containers)
	e.set(&state)
	a.flow.admit(state.IPs) // they may have been a pod's that was dropped
	e.record.sandbox = trouble{}
}

// sandboxDone notes the outcome of work on a sandbox.
func (a *Agent) sandboxDone(ctx context.Context, e *entry, pod *corev1.Pod, err error, reason, doing string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.refresh = true
	if err == nil {
		e.record.sandbox = trouble{}
		return
	}
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	now := a.cfg.Now()
	e.record.sandbox = trouble{reason: reason, message: err.Error(), backoff: e.record.sandbox.backoff.next(now, errorFirst, errorMost)}
	a.event(pod, "", corev1.EventTypeWarning, reason, fmt.Sprintf("Could not %s: %v", doing, err), now)
}

// drain begins to take a pod out of every Service.
func (a *Agent) drain(e *entry, s step) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.record.drain = a.cfg.Now().Add(s.delay)
	if e.sandbox != nil {
		a.flow.drop(e.uid, e.sandbox.IPs)
	}
}

func (a *Agent) fetch(ctx context.Context, e *entry, pod *corev1.Pod, s step) {
	c := containerNamed(pod, s.container)
	a.mu.Lock()
	ring, missing := keyring(pod, a.things)
	if len(missing) > 0 {
		a.event(pod, "", corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			fmt.Sprintf("Unable to use some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, "; ")), a.cfg.Now())
	}
	a.mu.Unlock()
	pulls := false
	defer func() {
		if pulls {
			a.stock(ctx)
		}
	}()
	image, err := a.cfg.Runtime.EnsureImage(ctx, ImageRequest{
		Reference: c.Image, Policy: c.ImagePullPolicy, Keyring: ring,
		Progress: func(reason, message string) {
			a.mu.Lock()
			defer a.mu.Unlock()
			pulls = pulls || reason == "Pulling"
			a.event(pod, c.Name, corev1.EventTypeNormal, reason, message, a.cfg.Now())
		},
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		e.record.images[c.Name] = present{asked: c.Image, image: image}
		if has(e.record.pulls, c.Name) { // a trouble of another kind is not over
			delete(e.record.pulls, c.Name)
			delete(e.record.troubles, c.Name)
		}
		return
	}
	if ctx.Err() != nil {
		return // interrupted: the pod is not what it was
	}
	reason := errImagePull
	var known *ImageError
	if errors.As(err, &known) {
		reason = known.Reason
	}
	now := a.cfg.Now()
	b := e.record.pulls[c.Name].next(now, pullFirst, pullMost)
	if known != nil {
		b.Delay = max(b.Delay, known.RetryAfter)
	}
	e.record.pulls[c.Name] = b
	e.record.troubles[c.Name] = trouble{reason: reason, message: err.Error(), backoff: b}
	if reason == errImagePull {
		a.event(pod, c.Name, corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", c.Image, err), now)
		a.event(pod, c.Name, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", c.Image), now)
	}
	a.event(pod, c.Name, corev1.EventTypeWarning, "Failed", "Error: "+reason, now)
}

func (a *Agent) start(ctx context.Context, e *entry, pod *corev1.Pod, s step) {
	c := containerNamed(pod, s.container)
	a.mu.Lock()
	image := e.record.images[c.Name].image
	o := e.observed(a.hostIPs())
	vars, err := environment(surroundings{
		pod: pod, podIPs: o.addresses(), hostIPs: o.hostIPs, allocatable: a.node.Status.Allocatable, objects: a.things, links: a.flow.links(pod),
	}, c)
	var cmd, args []string
	if err == nil {
		cmd, args, err = command(c, vars)
	}
	if err == nil {
		err = checkUser(pod, c, image)
	}
	var target string
	if err == nil {
		target, err = o.target(c.Name)
	}
	if err != nil {
		a.failed(e, pod, c, trouble{reason: configError, message: err.Error(), forObject: true})
		a.mu.Unlock()
		return
	}
	a.mu.Unlock()

	mounts, err := a.mounts(ctx, pod, c, vars)
	if err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		if ctx.Err() == nil {
			a.failed(e, pod, c, trouble{reason: configError, message: err.Error(), forObject: true})
		}
		return
	}
	state, err := a.cfg.Runtime.StartContainer(ctx, ContainerSpec{
		Pod: pod, Container: c, Attempt: s.attempt, Image: image, Env: envList(vars), Command: cmd, Args: args, Mounts: mounts, Target: target, Hash: specHash(c),
	})
	if err == nil && state.Phase != Running && state.Phase != Exited {
		err = fmt.Errorf("it was started but is %s", state.Phase)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.attempt > 0 {
		e.record.crashes[c.Name] = restarted(s.attempt, s.delay)
	}
	if err != nil {
		delete(e.record.images, c.Name) // it may be the image that is gone
		e.refresh = true                // and the attempt may exist, dead
		reason := "RunContainerError"
		if unmade := (*CreateError)(nil); errors.As(err, &unmade) {
			reason = "CreateContainerError"
		}
		a.failed(e, pod, c, trouble{reason: reason, message: err.Error()})
		return
	}
	delete(e.record.troubles, c.Name)
	delete(e.record.replace, c.Name)
	if c.ImagePullPolicy == corev1.PullAlways {
		delete(e.record.images, c.Name) // asked for again at the next start
	}
	e.put(state)
	now := a.cfg.Now()
	a.event(pod, c.Name, corev1.EventTypeNormal, "Created", "Container created", now)
	a.event(pod, c.Name, corev1.EventTypeNormal, "Started", "Container started", now)
}

// failed notes why a container cannot be started now.
func (a *Agent) failed(e *entry, pod *corev1.Pod, c *corev1.Container, t trouble) {
	now := a.cfg.Now()
	before := e.record.troubles[c.Name]
	t.backoff = before.backoff.next(now, errorFirst, errorMost)
	if before.reason != t.reason {
		t.backoff = backoff{}.next(now, errorFirst, errorMost)
	}
	e.record.troubles[c.Name] = t
	a.event(pod, c.Name, corev1.EventTypeWarning, "Failed", "Error: "+t.message, now)
}

func (a *Agent) remove(ctx context.Context, e *entry, s step) {
	for _, id := range s.ids {
		if err := a.cfg.Runtime.RemoveContainer(ctx, id); err != nil {
			a.mu.Lock()
			e.refresh = true
			e.record.sandbox = trouble{reason: "FailedRemove", message: err.Error(), backoff: e.record.sandbox.backoff.next(a.cfg.Now(), errorFirst, errorMost)}
			a.mu.Unlock()
			a.log.Error("dead container stays", "pod", e.uid, "container", id, "error", err)
			return
		}
		a.mu.Lock()
		e.drop(id)
		a.mu.Unlock()
	}
}
