package simulate

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
)

// ownedPods are an object's pods; why says what is wrong with one of them.
func (w *World) ownedPods(uid types.UID, image string) (pods []*corev1.Pod, why string) {
	for _, o := range w.truth.Owned(uid) {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		pods = append(pods, pod)
		if pod.DeletionTimestamp != nil || pod.Spec.Containers[0].Image != image {
			return nil, "still has pod " + pod.Name
		}
		if !w.runs(pod) {
			return nil, "has pod " + pod.Name + ", which does not run on " + pod.Spec.NodeName
		}
	}
	return pods, ""
}

// inOrder says what a StatefulSet lacks: pods 0 to replicas-1 run what is declared.
func (w *World) inOrder(want, live *appsv1.StatefulSet) string {
	image := want.Spec.Template.Spec.Containers[0].Image
	if *live.Spec.Replicas != *want.Spec.Replicas || live.Spec.Template.Spec.Containers[0].Image != image {
		return "has drifted"
	}
	pods, why := w.ownedPods(live.UID, image)
	if why != "" {
		return why
	}
	names := map[string]bool{}
	for _, pod := range pods {
		names[pod.Name] = true
	}
	for i := range *want.Spec.Replicas {
		if name := fmt.Sprintf("%s-%d", live.Name, i); !names[name] {
			return "has no pod " + name
		}
	}
	if st := live.Status; len(pods) != int(*want.Spec.Replicas) || st.ReadyReplicas != *want.Spec.Replicas || st.CurrentRevision != st.UpdateRevision {
		return fmt.Sprintf("has %d pods, %d ready, revision %s of %s", len(pods), st.ReadyReplicas, st.CurrentRevision, st.UpdateRevision)
	}
	return ""
}

// everywhere says what a DaemonSet lacks: one pod on each node.
func (w *World) everywhere(want, live *appsv1.DaemonSet) string {
	image := want.Spec.Template.Spec.Containers[0].Image
	if live.Spec.Template.Spec.Containers[0].Image != image {
		return "has drifted"
	}
	pods, why := w.ownedPods(live.UID, image)
	if why != "" {
		return why
	}
	on := map[string]int{}
	for _, pod := range pods {
		on[pod.Spec.NodeName]++
	}
	for _, n := range w.nodes {
		if on[n.name] != 1 {
			return fmt.Sprintf("has %d pods on %s", on[n.name], n.name)
		}
	}
	if st := live.Status; len(pods) != len(w.nodes) || int(st.NumberReady) != len(pods) || int(st.UpdatedNumberScheduled) != len(pods) {
		return fmt.Sprintf("has %d pods, %d ready, %d updated", len(pods), st.NumberReady, st.UpdatedNumberScheduled)
	}
	return ""
}

// reachable says what is wrong with a Service's slices: every ready pod is in them as
// ready, and none that is gone is in them at all.
func (w *World) reachable(live *corev1.Service) string {
	entered := map[types.UID]bool{}
	for _, o := range w.truth.List(api.EndpointSlices(), live.Namespace) {
		slice := o.(*discoveryv1.EndpointSlice)
		if slice.Labels[discoveryv1.LabelServiceName] != live.Name {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil {
				entered[e.TargetRef.UID] = entered[e.TargetRef.UID] || e.Conditions.Ready != nil && *e.Conditions.Ready
			}
		}
	}
	selector := labels.SelectorFromSet(live.Spec.Selector)
	for _, o := range w.truth.List(api.Pods(), live.Namespace) {
		pod := o.(*corev1.Pod)
		if !selector.Matches(labelsOf(pod)) || !active(pod) {
			continue
		}
		if ready := available(pod, 0, w.trace.began); ready != entered[pod.UID] {
			return fmt.Sprintf("has pod %s, ready %v, in its slices as ready %v", pod.Name, ready, entered[pod.UID])
		}
		delete(entered, pod.UID)
	}
	for _, uid := range slices.Sorted(maps.Keys(entered)) {
		return fmt.Sprintf("leads to pod %s, which is gone", uid)
	}
	return ""
}
