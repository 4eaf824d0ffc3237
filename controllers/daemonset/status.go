package daemonset

import (
	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// status is the set's status as it is once the plan is done. A node's oldest pod
// speaks for it.
func (d *decision) status() appsv1.DaemonSetStatus {
	st := appsv1.DaemonSetStatus{ObservedGeneration: d.set.Generation, CollisionCount: d.update.Collisions, Conditions: d.set.Status.Conditions}
	for _, n := range d.nodes {
		var first *corev1.Pod
		for _, pod := range d.pods[n.Name] {
			if first == nil && !(d.removed[pod] && podset.GoesAtOnce(pod)) {
				first = pod
			}
		}
		placed := first != nil || d.created[n.Name]
		switch {
		case !d.runs[n.Name] && placed:
			st.NumberMisscheduled++
		case d.runs[n.Name]:
			st.DesiredNumberScheduled++
			if placed {
				st.CurrentNumberScheduled++
			}
			if first == nil && placed || first != nil && hashOf(first) == d.hash {
				st.UpdatedNumberScheduled++
			}
			if first != nil && podset.Ready(first) {
				st.NumberReady++
			}
			if first != nil && d.available(first) {
				st.NumberAvailable++
			}
		}
	}
	st.NumberUnavailable = st.DesiredNumberScheduled - st.NumberAvailable
	return st
}
