package job

import (
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

// verdict is the condition that says that the Job's fate is decided while pods
// may still be ending; nil while it is not.
func verdict(status *batchv1.JobStatus) *batchv1.JobCondition {
	if c := condition(status, batchv1.JobSuccessCriteriaMet); c != nil {
		return c
	}
	return condition(status, batchv1.JobFailureTarget)
}

// end records the Job's end, for the reason of its verdict.
func end(status *batchv1.JobStatus, v batchv1.JobCondition, now time.Time) {
	if v.Type == batchv1.JobFailureTarget {
		set(status, batchv1.JobFailed, corev1.ConditionTrue, v.Reason, v.Message, now)
		return
	}
	status.CompletionTime = &metav1.Time{Time: now}
	set(status, batchv1.JobComplete, corev1.ConditionTrue, v.Reason, v.Message, now)
}

// set gives the status a condition and says whether that changed it. One that
// would only say false is not added.
func set(status *batchv1.JobStatus, t batchv1.JobConditionType, is corev1.ConditionStatus, reason, message string, now time.Time) bool {
	at := metav1.Time{Time: now}
	c := batchv1.JobCondition{Type: t, Status: is, Reason: reason, Message: message, LastProbeTime: at, LastTransitionTime: at}
	for i := range status.Conditions {
		if old := status.Conditions[i]; old.Type == t {
			if old.Status == is {
				return false
			}
			status.Conditions[i] = c
			return true
		}
	}
	if is == corev1.ConditionTrue {
		status.Conditions = append(status.Conditions, c)
	}
	return is == corev1.ConditionTrue
}
