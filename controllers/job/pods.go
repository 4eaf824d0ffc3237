package job

import (
	"cmp"
	"slices"

	"headway.dev/headway/internal/podset"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// tracked says whether the pod still waits to be counted.
func tracked(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) }

// failed says whether a pod counts as failed. One that is being deleted does, but
// under podReplacementPolicy Failed only when no node has it, so that nothing is
// to end.
func failed(p *corev1.Pod, onlyFailedPods bool) bool {
	switch p.Status.Phase {
	case corev1.PodFailed:
		return true
	case corev1.PodSucceeded:
		return false
	}
	return p.DeletionTimestamp != nil && (!onlyFailedPods || p.Spec.NodeName == "")
}

// split parts the pods that are not finished into active and terminating ones.
func split(pods []*corev1.Pod) (active, terminating []*corev1.Pod) {
	for _, p := range pods {
		switch {
		case podset.Terminal(p) || p.DeletionTimestamp != nil && p.Spec.NodeName == "":
		case p.DeletionTimestamp != nil:
			terminating = append(terminating, p)
		default:
			active = append(active, p)
		}
	}
	return active, terminating
}

// leastAdvanced sorts pods by how little would be lost with them: unscheduled,
// pending, unready, then the youngest.
func leastAdvanced(pods []*corev1.Pod) []*corev1.Pod {
	rank := func(p *corev1.Pod) int {
		switch {
		case p.Spec.NodeName == "":
			return 0
		case p.Status.Phase != corev1.PodRunning:
			return 1
		case !podset.Ready(p):
			return 2
		}
		return 3
	}
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	})
}

// restarts adds up the container restarts of pods with restartPolicy OnFailure,
// which count against the limit as failed pods do.
func restarts(job *batchv1.Job, pods []*corev1.Pod) (n int32) {
	if job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return 0
	}
	for _, p := range pods {
		if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			n += c.RestartCount
		}
	}
	return n
}

func ready(pods []*corev1.Pod) (n int32) {
	for _, p := range pods {
		if podset.Ready(p) {
			n++
		}
	}
	return n
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func onlyFailed(job *batchv1.Job) bool {
	return job.Spec.PodReplacementPolicy != nil && *job.Spec.PodReplacementPolicy == batchv1.Failed
}
