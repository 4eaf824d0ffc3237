package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// finished returns when the Job ended.
func finished(job *batchv1.Job) (time.Time, bool) {
	for _, t := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if c := condition(&job.Status, t); c != nil {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// condition returns the condition of that type if it is true.
func condition(status *batchv1.JobStatus, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == t && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// mark records that the Job's fate is decided while pods may still be ending.
func mark(status *batchv1.JobStatus, reason, message string, now time.Time) {
	t := batchv1.JobFailureTarget
	if reason == batchv1.JobReasonCompletionsReached {
		t = batchv1.JobSuccessCriteriaMet
	}
	add(status, t, reason, message, now)
}

// end records the Job's end.
func end(status *batchv1.JobStatus, reason, message string, now time.Time) {
	if reason == batchv1.JobReasonCompletionsReached {
		status.CompletionTime = &metav1.Time{Time: now}
		add(status, batchv1.JobComplete, reason, message, now)
		return
	}
	add(status, batchv1.JobFailed, reason, message, now)
}

func add(status *batchv1.JobStatus, t batchv1.JobConditionType, reason, message string, now time.Time) {
	if condition(status, t) != nil {
		return
	}
	at := metav1.Time{Time: now}
	status.Conditions = append(status.Conditions, batchv1.JobCondition{
		Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastProbeTime: at, LastTransitionTime: at,
	})
}

func ready(pods []*corev1.Pod) int32 {
	var n int32
	for _, p := range pods {
		if isReady(p) {
			n++
		}
	}
	return n
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// endOf is when a pod ended, as well as its status tells.
func endOf(p *corev1.Pod) time.Time {
	var at time.Time
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	switch {
	case !at.IsZero():
		return at
	case p.DeletionTimestamp != nil:
		return p.DeletionTimestamp.Time
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	if at.IsZero() {
		at = p.CreationTimestamp.Time
	}
	return at
}

// tracked says whether the pod still waits to be counted.
func tracked(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) }
