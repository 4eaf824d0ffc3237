package job

import (
	"slices"
	"time"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
)

// Back-off between a failure and the pod that replaces it: Kubernetes' figures.
const (
	backoffBase = 10 * time.Second
	backoffMax  = 10 * time.Minute
)

// delay is what is left of the wait after so many failures, the last at a time:
// 10 s, doubled for each further failure, at most 10 minutes. An end in the future
// is a clock that was set back: it never makes the wait longer.
func delay(failures int, last, now time.Time) time.Duration {
	if failures <= 0 {
		return 0
	}
	whole := backoffMax
	if failures < 8 {
		whole = min(backoffBase<<(failures-1), backoffMax)
	}
	return max(0, min(last.Add(whole).Sub(now), whole))
}

// backoff is how long to wait before a failed pod of the Job is replaced, by the
// failures since the last success.
func (l *look) backoff() time.Duration {
	failures := 0
	var newest, success time.Time
	for _, p := range l.pods {
		if p.Status.Phase == corev1.PodSucceeded && endOf(p).After(success) {
			success = endOf(p)
		}
	}
	for _, p := range l.pods {
		at := endOf(p)
		if !failed(p, onlyFailed(l.job())) || !at.After(success) {
			continue
		}
		failures++
		if at.After(newest) {
			newest = at
		}
	}
	return delay(failures, newest, l.now)
}

// indexBackoff is how long to wait before the pod of an index is replaced that
// failed last.
func indexBackoff(p *corev1.Pod, now time.Time) time.Duration {
	counted, ignored := failuresOf(p)
	return delay(counted+ignored+1, endOf(p), now)
}

// endOf is when a pod ended, as well as its status tells: when the last of its
// containers did, when it stopped being ready, when its deletion was asked for.
func endOf(p *corev1.Pod) time.Time {
	if at := containersEnd(p); !at.IsZero() {
		return at
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	if p.DeletionTimestamp != nil {
		var grace int64
		if p.DeletionGracePeriodSeconds != nil {
			grace = *p.DeletionGracePeriodSeconds
		}
		return p.DeletionTimestamp.Add(-api.Seconds(grace))
	}
	return p.CreationTimestamp.Time
}

// containersEnd is when the last container ended; zero while one of them runs.
// Sidecars end after the others, so they count.
func containersEnd(p *corev1.Pod) (at time.Time) {
	containers := slices.Clone(p.Status.ContainerStatuses)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue
		}
		for _, s := range p.Status.InitContainerStatuses {
			if s.Name == c.Name {
				containers = append(containers, s)
			}
		}
	}
	for _, c := range containers {
		t := c.State.Terminated
		if t == nil || t.FinishedAt.IsZero() {
			return time.Time{}
		}
		if t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	return at
}
