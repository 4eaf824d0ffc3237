package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	engine           = "containerd://"
	errImagePull     = "ErrImagePull"
	imagePullBackOff = "ImagePullBackOff"
	crashLoopBackOff = "CrashLoopBackOff"
	configError      = "CreateContainerConfigError"
	deadlineExceeded = "DeadlineExceeded"
)

// report is the pod's status as it is now. It is pure, and equal inputs give
// equal statuses: times are whole seconds, and a transition's time is kept while
// nothing transits. That a pod has ended is held back while anything of it may live:
// by the phase others give its room, its name and its place in a Job away.
func report(o observed, now time.Time) corev1.PodStatus {
	out := draft(o, now)
	if last := &o.record.last; terminal(out.Phase) && !terminal(last.Phase) {
		if live, unsure := o.live(); len(live) > 0 || unsure {
			out.Phase, out.Reason, out.Message = last.Phase, last.Reason, last.Message
			if out.Phase == "" {
				out.Phase = corev1.PodPending
			}
			out.Conditions = slices.DeleteFunc(out.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
		}
	}
	return out
}

// draft is report, with the phase that the pod has when what is being stopped has
// stopped.
func draft(o observed, now time.Time) corev1.PodStatus {
	last := &o.record.last
	out := corev1.PodStatus{
		ObservedGeneration: o.pod.Generation,
		Phase:              corev1.PodPending,
		Reason:             last.Reason,
		Message:            last.Message,
		NominatedNodeName:  last.NominatedNodeName,
		StartTime:          last.StartTime,
		QOSClass:           last.QOSClass,
		PodIP:              last.PodIP,
		PodIPs:             last.PodIPs,
	}
	if out.QOSClass == "" {
		out.QOSClass = qosClass(o.pod)
	}
	if out.StartTime == nil {
		t := seconds(now)
		if o.sandbox != nil && !o.sandbox.CreatedAt.IsZero() && o.sandbox.CreatedAt.Before(now) {
			t = seconds(o.sandbox.CreatedAt) // an earlier agent began it
		}
		out.StartTime = &t
	}
	ips := o.addresses()
	if len(ips) > 0 {
		out.PodIP, out.PodIPs = ips[0], nil
		for _, ip := range ips {
			out.PodIPs = append(out.PodIPs, corev1.PodIP{IP: ip})
		}
	}
	out.HostIP = first(o.hostIPs)
	for _, ip := range o.hostIPs {
		out.HostIPs = append(out.HostIPs, corev1.HostIP{IP: ip})
	}

	ending := o.ending(now)
	begun := o.begun()
	if ending && !o.started() && (o.verdict(now) != nil || terminal(last.Phase)) { // it never was to run
		o.phase(&out, now)
		o.conditions(&out, now)
		return out
	}
	for i := range o.pod.Spec.InitContainers {
		out.InitContainerStatuses = append(out.InitContainerStatuses, o.container(&o.pod.Spec.InitContainers[i], now, ending, true, begun))
	}
	for i := range o.pod.Spec.Containers {
		out.ContainerStatuses = append(out.ContainerStatuses, o.container(&o.pod.Spec.Containers[i], now, ending, false, begun))
	}
	for i := range o.pod.Spec.EphemeralContainers {
		s := o.container(asContainer(&o.pod.Spec.EphemeralContainers[i]), now, ending, false, begun)
		s.Ready, s.Started = false, nil // nobody is sent to it
		out.EphemeralContainerStatuses = append(out.EphemeralContainerStatuses, s)
	}
	o.phase(&out, now)
	o.conditions(&out, now)
	return out
}

// gone says that the pod is deleted and nothing of it is left on the node.
func (o observed) gone() bool {
	return o.pod != nil && o.pod.DeletionTimestamp != nil && o.sandbox == nil && o.record.clean
}

// ending says that no container of the pod starts any more.
func (o observed) ending(now time.Time) bool {
	return o.pod.DeletionTimestamp != nil || terminal(o.record.last.Phase) || o.verdict(now) != nil
}

// started says that something was made of the pod, or told of one of its containers.
func (o observed) started() bool {
	last := &o.record.last
	return o.sandbox != nil || len(last.InitContainerStatuses)+len(last.ContainerStatuses) > 0
}

// addresses are the pod's, once its network is up.
func (o observed) addresses() []string {
	if o.sandbox == nil || !o.sandbox.Ready {
		return nil
	}
	if o.pod.Spec.HostNetwork {
		return o.hostIPs
	}
	return o.sandbox.IPs
}

// container is the status of one container.
func (o observed) container(c *corev1.Container, now time.Time, ending, isInit, begun bool) (out corev1.ContainerStatus) {
	out = corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	started := false
	defer func() { out.Started = &started }()
	cur, exists := o.current(c.Name)
	t, troubled := o.record.troubles[c.Name]
	waiting := func() *corev1.ContainerStateWaiting {
		if troubled && !ending {
			return waitingFor(t, c, now)
		}
		if len(o.pod.Spec.InitContainers) > 0 && !begun { // of an init container, too
			return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
		}
		return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	if !exists {
		if begun && isInit && !sidecar(c) { // its remains are gone, its work is done
			out.Ready = true
		}
		out.State.Waiting = waiting()
		if o.gone() {
			out.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container was not started before the pod was deleted"}}
		}
		return out
	}
	out.RestartCount = int32(cur.Attempt)
	out.ImageID = cur.ImageID
	if cur.Image != "" {
		out.Image = cur.Image
	}
	if cur.ID != "" {
		out.ContainerID = engine + cur.ID
	}
	if cur.StopSignal != "" {
		out.StopSignal = &cur.StopSignal
	}
	if prev, ok := o.previous(c.Name); ok && prev.Phase == Exited {
		out.LastTerminationState.Terminated = terminated(prev)
	}
	switch cur.Phase {
	case Running:
		h := o.health(c, cur)
		if !h.greeted && !ending { // of one that ends it counts that it runs (R10)
			out.State.Waiting = waiting()
			return out
		}
		out.State.Running = &corev1.ContainerStateRunning{StartedAt: seconds(cur.StartedAt)}
		started = h.started
		out.Ready = (!isInit || sidecar(c)) && h.started && h.ready
	case Exited:
		end := terminated(cur)
		at, delay := o.restartAt(c.Name, cur)
		switch {
		case ending || !o.again(c, cur):
			out.State.Terminated = end
			out.Ready = isInit && !sidecar(c) && cur.ExitCode == 0
		case o.repeats(c, cur):
			out.State.Waiting, out.LastTerminationState.Terminated = waiting(), end
		case troubled:
			out.State.Waiting, out.LastTerminationState.Terminated = waiting(), end
		case now.Before(at):
			out.LastTerminationState.Terminated = end
			out.State.Waiting = &corev1.ContainerStateWaiting{Reason: crashLoopBackOff,
				Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", delay, c.Name, o.pod.Name, o.pod.Namespace, o.pod.UID)}
		default:
			out.State.Terminated = end
		}
	case Unknown:
		if s := lastStatus(&o.record.last, c.Name); s != nil {
			started = s.Started != nil && *s.Started
			kept := *s
			kept.Started = nil
			out = kept
		} else {
			out.State.Waiting = waiting()
		}
	default:
		out.State.Waiting = waiting()
	}
	return out
}

// waitingFor shows a trouble; a failed pull is shown as one for a moment, then as
// a wait.
func waitingFor(t trouble, c *corev1.Container, now time.Time) *corev1.ContainerStateWaiting {
	if t.reason == errImagePull && !now.Before(t.backoff.Since.Add(pullShown)) {
		return &corev1.ContainerStateWaiting{Reason: imagePullBackOff, Message: fmt.Sprintf("Back-off pulling image %q: %s: %s", c.Image, errImagePull, t.message)}
	}
	return &corev1.ContainerStateWaiting{Reason: t.reason, Message: t.message}
}

func terminated(c ContainerState) *corev1.ContainerStateTerminated {
	out := &corev1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Signal: c.Signal, Reason: c.Reason, Message: c.Message,
		StartedAt: seconds(c.StartedAt), FinishedAt: seconds(c.FinishedAt),
	}
	if c.ID != "" {
		out.ContainerID = engine + c.ID
	}
	if out.Reason == "" {
		out.Reason = "Error"
		if c.ExitCode == 0 {
			out.Reason = "Completed"
		}
	}
	return out
}

// phase sums the containers up. A pod that has ended stays so.
func (o observed) phase(s *corev1.PodStatus, now time.Time) {
	if terminal(o.record.last.Phase) {
		s.Phase = o.record.last.Phase
		return
	}
	if v := o.verdict(now); v != nil {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, v.Reason, v.Message
		return
	}
	if o.gone() {
		s.Phase = corev1.PodSucceeded
		for _, c := range s.ContainerStatuses {
			if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
				s.Phase = corev1.PodFailed
			}
		}
		return
	}
	s.Phase = o.sum(s)
}

func (o observed) sum(s *corev1.PodStatus) corev1.PodPhase {
	sidecarRuns := false
	for i, c := range s.InitContainerStatuses {
		spec := &o.pod.Spec.InitContainers[i]
		switch {
		case sidecar(spec):
			sidecarRuns = sidecarRuns || c.State.Running != nil
		case c.Ready || o.begun():
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0 && !initRestarts(o.pod, spec, c.State.Terminated.ExitCode):
			return corev1.PodFailed
		default:
			return corev1.PodPending
		}
	}
	var waiting, running, ended, succeeded, again int
	for i, c := range s.ContainerStatuses {
		end := c.State.Terminated
		if end == nil && c.State.Waiting != nil {
			end = c.LastTerminationState.Terminated
		}
		switch {
		case c.State.Running != nil:
			running++
		case end == nil:
			waiting++
		default:
			ended++
			if end.ExitCode == 0 {
				succeeded++
			}
			if c.State.Waiting != nil || restarts(o.pod, &o.pod.Spec.Containers[i], end.ExitCode) {
				again++
			}
		}
	}
	switch {
	case waiting > 0:
		return corev1.PodPending
	case running > 0 || again > 0 || sidecarRuns:
		return corev1.PodRunning
	case succeeded == ended:
		return corev1.PodSucceeded
	default:
		return corev1.PodFailed
	}
}

func (o observed) conditions(s *corev1.PodStatus, now time.Time) {
	set := func(t corev1.PodConditionType, ok bool, reason, message string) {
		c := corev1.PodCondition{Type: t, ObservedGeneration: o.pod.Generation, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: seconds(now)}
		if ok {
			c.Status = corev1.ConditionTrue
		}
		for _, l := range o.record.last.Conditions {
			if l.Type == t && l.Status == c.Status {
				c.LastTransitionTime = l.LastTransitionTime
			}
		}
		s.Conditions = append(s.Conditions, c)
	}
	set(corev1.PodReadyToStartContainers, len(o.addresses()) > 0, "", "")
	var incomplete, unready []string
	for i, c := range s.InitContainerStatuses {
		side := sidecar(&o.pod.Spec.InitContainers[i])
		if side && !(c.Started != nil && *c.Started) || !side && !c.Ready {
			incomplete = append(incomplete, c.Name)
		}
		if side && !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	switch {
	case s.Phase == corev1.PodSucceeded:
		set(corev1.PodInitialized, true, "PodCompleted", "")
	case len(incomplete) > 0 && !o.begun():
		set(corev1.PodInitialized, false, "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %s", incomplete))
	default:
		set(corev1.PodInitialized, true, "", "")
	}
	ready, reason, message := len(unready) == 0, "", ""
	switch {
	case s.Phase == corev1.PodSucceeded:
		ready, reason = false, "PodCompleted"
	case s.Phase == corev1.PodFailed:
		ready, reason = false, "PodFailed"
	case !ready:
		reason, message = "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", unready)
	}
	set(corev1.ContainersReady, ready, reason, message)
	if gates := o.closedGates(); ready && gates != "" {
		ready, reason, message = false, "ReadinessGatesNotReady", gates
	}
	set(corev1.PodReady, ready, reason, message)
	if v := o.verdict(now); v != nil && v.Disrupts {
		set(corev1.DisruptionTarget, true, corev1.PodReasonTerminationByKubelet, v.Message)
	}
}

// closedGates says which readiness gates keep the pod from being ready.
func (o observed) closedGates() string {
	var out []string
	for _, g := range o.pod.Spec.ReadinessGates {
		state := "missing"
		for _, c := range o.pod.Status.Conditions {
			if c.Type == g.ConditionType {
				state = string(c.Status)
			}
		}
		switch state {
		case "missing":
			out = append(out, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case string(corev1.ConditionTrue):
		default:
			out = append(out, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", g.ConditionType, state))
		}
	}
	return strings.Join(out, ", ")
}

// seconds is t as the API keeps it.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}
