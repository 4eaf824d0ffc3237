package api

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// HorizontalPodAutoscalers is the resource of what says how many pods there are to be
// by what they use.
func HorizontalPodAutoscalers() schema.GroupResource {
	return gr("autoscaling", "horizontalpodautoscalers")
}

// AnnotationRescales is where an autoscaler's controller keeps which changes it has
// made lately, for its policies.
const AnnotationRescales = Group + "/rescales"

// Scalable are the kinds that have replicas for an autoscaler to set.
func Scalable() []schema.GroupResource {
	return []schema.GroupResource{Deployments(), ReplicaSets(), StatefulSets(), ReplicationControllers()}
}

// ScaleTarget is what an autoscaler sets the replicas of, in its own namespace; not ok
// for a kind that has none. As in Kubernetes the version in its apiVersion does not
// matter.
func ScaleTarget(a *autoscalingv2.HorizontalPodAutoscaler) (resource schema.GroupResource, name string, ok bool) {
	ref := a.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return resource, ref.Name, false
	}
	for _, target := range Scalable() {
		if k, known := ResourceKind(target); known && k.Group == gv.Group && k.Kind == ref.Kind {
			return target, ref.Name, true
		}
	}
	return resource, ref.Name, false
}

// Scale is what Kubernetes' scale subresource says of an object.
type Scale struct {
	Replicas int32           // wanted
	Running  int32           // that there are
	Selector labels.Selector // of its pods
}

// ScaleOf reads the scale of an object of a Scalable kind.
func ScaleOf(obj Object) (Scale, error) {
	var replicas *int32
	var running int32
	var selector *metav1.LabelSelector
	switch o := obj.(type) {
	case *appsv1.Deployment:
		replicas, running, selector = o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *appsv1.ReplicaSet:
		replicas, running, selector = o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *appsv1.StatefulSet:
		replicas, running, selector = o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *corev1.ReplicationController:
		replicas, running, selector = o.Spec.Replicas, o.Status.Replicas, &metav1.LabelSelector{MatchLabels: o.Spec.Selector}
	default:
		return Scale{}, fmt.Errorf("%T has no replicas", obj)
	}
	out := Scale{Replicas: 1, Running: running}
	if replicas != nil {
		out.Replicas = *replicas
	}
	var err error
	if out.Selector, err = metav1.LabelSelectorAsSelector(selector); err != nil {
		return out, fmt.Errorf("selector of %s: %w", obj.GetName(), err)
	}
	return out, nil
}

// WithReplicas is a copy of an object of a Scalable kind that wants another number of
// pods, as a write through the scale subresource leaves it.
func WithReplicas(obj Object, n int32) (Object, error) {
	out := obj.DeepCopyObject().(Object)
	switch o := out.(type) {
	case *appsv1.Deployment:
		o.Spec.Replicas = &n
	case *appsv1.ReplicaSet:
		o.Spec.Replicas = &n
	case *appsv1.StatefulSet:
		o.Spec.Replicas = &n
	case *corev1.ReplicationController:
		o.Spec.Replicas = &n
	default:
		return nil, fmt.Errorf("%T has no replicas", obj)
	}
	out.SetGeneration(obj.GetGeneration() + 1)
	return out, nil
}

// autoscalerRules are the rows of a HorizontalPodAutoscaler's spec.
func autoscalerRules() []FieldRule {
	const (
		noSource = "there is no source of such metrics: only of the cpu and memory of pods"
		byPod    = "cpu and memory are compared for each pod"
	)
	metric := func(path string) []FieldRule {
		return slices.Concat(
			only(path+"name", "only cpu and memory are measured", "cpu", "memory"),
			only(path+"target.type", byPod, "Utilization", "AverageValue"),
			acted(path, "target.averageUtilization target.averageValue"),
			refused(byPod, path, "target.value"),
		)
	}
	behavior := func(path string) []FieldRule {
		return acted(path, "stabilizationWindowSeconds selectPolicy tolerance policies[].type policies[].value policies[].periodSeconds")
	}
	return slices.Concat(
		acted("spec.", "minReplicas maxReplicas scaleTargetRef.apiVersion scaleTargetRef.name"),
		only("spec.scaleTargetRef.kind", "no other kind has replicas to set", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"),
		only("spec.metrics[].type", noSource, "Resource", "ContainerResource"),
		refused(noSource, "spec.metrics[].", "pods object external"),
		metric("spec.metrics[].resource."),
		acted("spec.metrics[].containerResource.", "container"), metric("spec.metrics[].containerResource."),
		behavior("spec.behavior.scaleUp."), behavior("spec.behavior.scaleDown."),
	)
}
