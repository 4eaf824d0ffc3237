package podset

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Pods are the pods of one owner, told apart. A pod that is both terminal and
// being deleted is dead.
type Pods struct {
	Active      []*corev1.Pod // neither terminal nor being deleted
	Terminating []*corev1.Pod // being deleted, not yet known stopped
	Dead        []*corev1.Pod // Succeeded or Failed
}

// Split tells pods apart and keeps their order.
func Split(pods []*corev1.Pod) Pods {
	var out Pods
	for _, p := range pods {
		switch {
		case Terminal(p):
			out.Dead = append(out.Dead, p)
		case p.DeletionTimestamp != nil:
			out.Terminating = append(out.Terminating, p)
		default:
			out.Active = append(out.Active, p)
		}
	}
	return out
}

// Terminal says whether the pod has ended for good.
func Terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Ended says whether the pod has ended for good and none of its containers is known
// to run (R10). Its agent tells the end only then; who else writes Failed may not.
func Ended(p *corev1.Pod) bool {
	if !Terminal(p) {
		return false
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].State.Running != nil {
				return false
			}
		}
	}
	return true
}

// Active says whether the pod counts: neither terminal nor being deleted.
func Active(p *corev1.Pod) bool { return !Terminal(p) && p.DeletionTimestamp == nil }

// Ready says whether the pod's Ready condition holds.
func Ready(p *corev1.Pod) bool {
	_, ok := readySince(p)
	return ok
}

func readySince(p *corev1.Pod) (time.Time, bool) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time, c.Status == corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// UnreadySince is when a pod that is not ready was ready last, or when it was made.
func UnreadySince(p *corev1.Pod) time.Time {
	if since, ready := readySince(p); !ready && !since.IsZero() {
		return since
	}
	return p.CreationTimestamp.Time
}

// Available says whether the pod has been ready for minReadySeconds. When it is
// ready but not for long enough, wait is the time that is left.
func Available(p *corev1.Pod, minReadySeconds int32, now time.Time) (ok bool, wait time.Duration) {
	since, ready := readySince(p)
	if !ready {
		return false, 0
	}
	if minReadySeconds <= 0 {
		return true, 0
	}
	need := time.Duration(minReadySeconds) * time.Second
	if since.IsZero() {
		return false, need
	}
	if left := need - now.Sub(since); left > 0 {
		return false, left
	}
	return true, 0
}

// Closed says whether a namespace is being deleted, so that nothing may be
// created in it.
func Closed(ns *corev1.Namespace) bool {
	return ns != nil && (ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating)
}

// Refused says whether a transaction failed because what it makes may not be there,
// such as for a ResourceQuota or a LimitRange.
func Refused(err error) bool { return apierrors.IsForbidden(err) }
