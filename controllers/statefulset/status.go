package statefulset

import (
	"slices"

	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// status is the set's status as it is once the plan is done. Pods that are being
// deleted count until they are gone, as current or updated no more.
func (d *decision) status() appsv1.StatefulSetStatus {
	first, end := ordinals(d.set)
	want := int32(end - first)
	collisions := int32(0)
	if d.update.Collisions != nil {
		collisions = *d.update.Collisions
	}
	st := appsv1.StatefulSetStatus{
		ObservedGeneration: d.set.Generation,
		CurrentRevision:    d.current,
		UpdateRevision:     d.update.To.Name,
		CollisionCount:     &collisions,
		Conditions:         d.set.Status.Conditions,
	}
	revision := func(name string) {
		if name == d.current {
			st.CurrentReplicas++
		}
		if name == d.update.To.Name {
			st.UpdatedReplicas++
		}
	}
	for _, s := range slices.Concat(d.replicas, d.condemned) {
		switch {
		case s.creating != nil:
			st.Replicas++
			revision(revisionOf(s.creating))
			continue
		case s.pod == nil, s.removed && podset.GoesAtOnce(s.pod):
			continue
		}
		st.Replicas++
		if s.pod.Status.Phase == corev1.PodRunning && podset.Ready(s.pod) {
			st.ReadyReplicas++
			if ok, _ := podset.Available(s.pod, d.set.Spec.MinReadySeconds, d.now); ok {
				st.AvailableReplicas++
			}
		}
		if s.pod.DeletionTimestamp == nil && !s.removed {
			revision(revisionOf(s.pod))
		}
	}
	if st.UpdatedReplicas == want && st.ReadyReplicas == want && st.Replicas == want {
		// The update is complete: the new revision is the current one.
		st.CurrentRevision, st.CurrentReplicas = st.UpdateRevision, st.UpdatedReplicas
	}
	return st
}
