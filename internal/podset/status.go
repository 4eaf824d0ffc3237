package podset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Replicas is how many pods a ReplicaSet asks for; one if it does not say.
func Replicas(rs *appsv1.ReplicaSet) int {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return int(*rs.Spec.Replicas)
}

// After is what a ReplicaSet's pods are once a transaction is done.
type After struct {
	Active      []*corev1.Pod // that stay
	Created     int           // new ones, not ready yet
	Terminating int
	Failure     string // why pods could not be created; "" when they could
}

// Status is the status of a ReplicaSet with those pods. Its conditions keep the
// times at which they changed.
func Status(rs *appsv1.ReplicaSet, after After, now time.Time) appsv1.ReplicaSetStatus {
	st := appsv1.ReplicaSetStatus{
		Replicas:             int32(len(after.Active) + after.Created),
		FullyLabeledReplicas: int32(after.Created),
		ObservedGeneration:   rs.Generation,
		Conditions:           failureCondition(rs.Status.Conditions, after.Failure, now),
	}
	template := labels.SelectorFromValidatedSet(rs.Spec.Template.Labels)
	for _, p := range after.Active {
		if template.Matches(labels.Set(p.Labels)) {
			st.FullyLabeledReplicas++
		}
		if Ready(p) {
			st.ReadyReplicas++
		}
		if ok, _ := Available(p, rs.Spec.MinReadySeconds, now); ok {
			st.AvailableReplicas++
		}
	}
	terminating := int32(after.Terminating)
	st.TerminatingReplicas = &terminating
	return st
}

func failureCondition(conditions []appsv1.ReplicaSetCondition, failure string, now time.Time) []appsv1.ReplicaSetCondition {
	is := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	at := slices.IndexFunc(conditions, is)
	switch {
	case failure == "" && at < 0:
		return conditions
	case failure == "":
		out := slices.DeleteFunc(slices.Clone(conditions), is)
		if len(out) == 0 {
			return nil
		}
		return out
	case at >= 0 && conditions[at].Message == failure:
		return conditions
	}
	c := appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
		Message: failure, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	if at >= 0 {
		c.LastTransitionTime = conditions[at].LastTransitionTime
	}
	return append(slices.DeleteFunc(slices.Clone(conditions), is), c)
}
