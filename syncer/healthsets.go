package syncer

import (
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statefulSetHealth is as kubectl rollout status judges: with a partition only the
// pods above it need be of the newest revision, with OnDelete none.
func statefulSetHealth(s *appsv1.StatefulSet, r store.Reader) (State, string) {
	want := replicas(s.Spec.Replicas)
	updated := want
	switch u := s.Spec.UpdateStrategy.RollingUpdate; {
	case s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
		updated = 0
	case u != nil && u.Partition != nil:
		updated = max(0, want-*u.Partition)
	}
	if s.Status.ObservedGeneration < s.Generation {
		return Progressing, fmt.Sprintf("0/%d ready", want)
	}
	progress := fmt.Sprintf("%d/%d ready", min(s.Status.AvailableReplicas, want), want)
	if updated > 0 && s.Status.UpdatedReplicas < updated {
		progress = fmt.Sprintf("%s, %d of %d updated", progress, s.Status.UpdatedReplicas, updated)
		return troubled(progress, updatedPods(s, r))
	}
	switch {
	case s.Status.AvailableReplicas < want:
		return troubled(progress, pods(r.Owned(s.UID)))
	case s.Status.Replicas > want:
		return Progressing, fmt.Sprintf("%s, %d to stop", progress, s.Status.Replicas-want)
	case updated > 0 && staleRevision(s, s.Status.UpdateRevision, &s.Spec.Template, r):
		return Progressing, progress + ", of the settings before"
	}
	return Healthy, progress
}

// daemonSetHealth is as kubectl rollout status judges: with OnDelete no pod need be
// of the newest revision.
func daemonSetHealth(d *appsv1.DaemonSet, r store.Reader) (State, string) {
	want, rolling := d.Status.DesiredNumberScheduled, d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType
	if d.Status.ObservedGeneration < d.Generation {
		return Progressing, fmt.Sprintf("0/%d ready", want)
	}
	progress := fmt.Sprintf("%d/%d ready", d.Status.NumberAvailable, want)
	if rolling && d.Status.UpdatedNumberScheduled < want {
		progress = fmt.Sprintf("%s, %d of %d updated", progress, d.Status.UpdatedNumberScheduled, want)
		return troubled(progress, updatedPods(d, r))
	}
	switch {
	case d.Status.NumberAvailable < want:
		return troubled(progress, pods(r.Owned(d.UID)))
	case rolling && staleRevision(d, "", &d.Spec.Template, r):
		return Progressing, progress + ", of the settings before"
	}
	return Healthy, progress
}

// staleRevision says whether a commit has changed a ConfigMap or a Secret that the
// template reads since its newest revision was made (D13): the rollout is about to
// begin. name is that revision's; "" for the last of the history.
func staleRevision(owner api.Object, name string, t *corev1.PodTemplateSpec, r store.Reader) bool {
	rev := newestRevision(owner, r)
	return rev != nil && (name == "" || rev.Name == name) && !podset.SameRefs(podset.RecordedRefs(rev), podset.Refs(r, owner.GetNamespace(), t))
}

// newestRevision is the last revision of an owner's history; nil when there is none.
func newestRevision(owner api.Object, r store.Reader) *appsv1.ControllerRevision {
	var history []*appsv1.ControllerRevision
	for _, o := range r.Owned(owner.GetUID()) {
		if rev, ok := o.(*appsv1.ControllerRevision); ok && metav1.IsControlledBy(rev, owner) {
			history = append(history, rev)
		}
	}
	if len(history) == 0 {
		return nil
	}
	podset.SortRevisions(history)
	return history[len(history)-1]
}

// updatedPods are the pods of an owner that are of its newest revision; when there
// are none, all of them: one that is stuck may hold the newest back.
func updatedPods(owner api.Object, r store.Reader) []*corev1.Pod {
	all := pods(r.Owned(owner.GetUID()))
	rev := newestRevision(owner, r)
	if rev == nil {
		return all
	}
	hash := podset.Revision{To: rev}.Hash()
	var out []*corev1.Pod
	for _, p := range all {
		if label := p.Labels[appsv1.ControllerRevisionHashLabelKey]; label == rev.Name || label == hash {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return all
	}
	return out
}
