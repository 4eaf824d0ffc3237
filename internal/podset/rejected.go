package podset

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Back-off between pods of one set that their nodes reject.
const (
	firstRejection = time.Second
	mostRejections = 5 * time.Minute
)

// Rejected says whether the pod's node would not have it: it ended with a reason and
// nothing of it was ever started.
func Rejected(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Spec.NodeName != "" && p.Status.Reason != "" &&
		len(p.Status.ContainerStatuses)+len(p.Status.InitContainerStatuses) == 0
}

// RejectionWait is how long a set that wants so many pods waits until it makes another:
// nothing as long as none was rejected lately, else from a second on, doubled with each
// round. A template that names a node without room would fill the store otherwise.
func RejectionWait(dead []*corev1.Pod, want int, now time.Time) time.Duration {
	var newest time.Time
	count := 0
	for _, p := range dead {
		if at := p.CreationTimestamp.Time; Rejected(p) && now.Sub(at) < 2*mostRejections {
			count++
			if at.After(newest) {
				newest = at
			}
		}
	}
	if count == 0 {
		return 0
	}
	rounds := (count - 1) / max(want, 1)
	delay := mostRejections
	if rounds < 10 {
		delay = min(firstRejection<<rounds, mostRejections)
	}
	// A time to come is a clock that was set back: never wait longer than the delay.
	return max(0, min(newest.Add(delay).Sub(now), delay))
}
