package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ServiceAllocation is the name of the Allocation of the Services' cluster IPs and
// node ports.
const ServiceAllocation = "services"

// Allocation is the lock of a set of which the cluster gives out each member once.
// It says nothing about who has which: the objects that have them do. Every
// transaction that takes a member writes it, on the condition that it is as it was
// when the author read who has what; so of two that take at once, one decides again.
type Allocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

func (a *Allocation) DeepCopyObject() runtime.Object {
	out := *a
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}
