package replicaset

import (
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is what differs between the two kinds that this package works. Plans are
// made of ReplicaSets; what is read and written is the object itself.
type kind struct {
	name      string // of the kind, as controller references have it
	loop      string
	component string // as Kubernetes names it in Events
	resource  schema.GroupResource
	set       func(api.Object) *appsv1.ReplicaSet // nil when it is none
	reported  func(api.Object, appsv1.ReplicaSetStatus) api.Object
}

func replicaSets() kind {
	return kind{
		name: "ReplicaSet", loop: "replicaset", component: "replicaset-controller", resource: api.ReplicaSets(),
		set: func(obj api.Object) *appsv1.ReplicaSet {
			rs, ok := obj.(*appsv1.ReplicaSet)
			if !ok {
				return nil
			}
			return rs
		},
		reported: func(obj api.Object, status appsv1.ReplicaSetStatus) api.Object {
			out := *obj.(*appsv1.ReplicaSet)
			out.ObjectMeta = *out.ObjectMeta.DeepCopy()
			out.Status = status
			return &out
		},
	}
}

func replicationControllers() kind {
	return kind{
		name: "ReplicationController", loop: "replicationcontroller", component: "replication-controller", resource: api.ReplicationControllers(),
		set: asSet,
		reported: func(obj api.Object, status appsv1.ReplicaSetStatus) api.Object {
			out := *obj.(*corev1.ReplicationController)
			out.ObjectMeta = *out.ObjectMeta.DeepCopy()
			out.Status = corev1.ReplicationControllerStatus{
				Replicas: status.Replicas, FullyLabeledReplicas: status.FullyLabeledReplicas, ReadyReplicas: status.ReadyReplicas,
				AvailableReplicas: status.AvailableReplicas, ObservedGeneration: status.ObservedGeneration,
			}
			for _, c := range status.Conditions {
				out.Status.Conditions = append(out.Status.Conditions, corev1.ReplicationControllerCondition{
					Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
				})
			}
			return &out
		},
	}
}

// asSet is a ReplicationController as a ReplicaSet. Its selector is the map of
// labels that a pod must have; it does not tell of terminating pods.
func asSet(obj api.Object) *appsv1.ReplicaSet {
	rc, ok := obj.(*corev1.ReplicationController)
	if !ok || rc.Spec.Template == nil {
		return nil
	}
	set := &appsv1.ReplicaSet{
		ObjectMeta: rc.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{Replicas: rc.Spec.Replicas, MinReadySeconds: rc.Spec.MinReadySeconds, Template: *rc.Spec.Template,
			Selector: &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}},
		Status: appsv1.ReplicaSetStatus{
			Replicas: rc.Status.Replicas, FullyLabeledReplicas: rc.Status.FullyLabeledReplicas, ReadyReplicas: rc.Status.ReadyReplicas,
			AvailableReplicas: rc.Status.AvailableReplicas, ObservedGeneration: rc.Status.ObservedGeneration,
		},
	}
	for _, c := range rc.Status.Conditions {
		set.Status.Conditions = append(set.Status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return set
}

// deployed says whether a Deployment controls the set.
func deployed(set api.Object) bool {
	ref := metav1.GetControllerOfNoCopy(set)
	return ref != nil && ref.Kind == "Deployment"
}

// key is the key of the kind's object of a name.
func (k kind) key(namespace, name string) store.Key {
	return store.Key{GroupResource: k.resource, Namespace: namespace, Name: name}
}
