package api

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SelectJob gives a new Job the selector by its uid and the template labels that
// go with it, as Kubernetes does when a Job is created. A Job with its own
// selector (manualSelector) is left alone. The Job must have its name and uid.
func SelectJob(job *batchv1.Job) {
	if job.Spec.ManualSelector != nil && *job.Spec.ManualSelector {
		return
	}
	labels := map[string]string{}
	for k, v := range job.Spec.Template.Labels {
		labels[k] = v
	}
	uid := string(job.UID)
	for k, v := range map[string]string{
		"job-name": job.Name, batchv1.JobNameLabel: job.Name,
		"controller-uid": uid, batchv1.ControllerUidLabel: uid,
	} {
		if _, set := labels[k]; !set {
			labels[k] = v
		}
	}
	job.Spec.Template.Labels = labels
	selector := &metav1.LabelSelector{}
	if job.Spec.Selector != nil {
		selector = job.Spec.Selector.DeepCopy()
	}
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	if _, set := selector.MatchLabels[batchv1.ControllerUidLabel]; !set {
		selector.MatchLabels[batchv1.ControllerUidLabel] = uid
	}
	job.Spec.Selector = selector
}
