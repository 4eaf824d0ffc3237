package nodes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Documented in tasks/administer-cluster/extended-resource-node: an extended resource
// that is patched into a node's status stays there; what the agent knows is its own.
func TestExtendedResourcesOfANodeStay(t *testing.T) {
	list := func(words ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(words); i += 2 {
			out[corev1.ResourceName(words[i])] = resource.MustParse(words[i+1])
		}
		return out
	}
	live, facts := &corev1.Node{}, &corev1.Node{}
	live.Status.Capacity = list("cpu", "2", "hugepages-2Mi", "4Mi", "example.com/dongle", "4")
	live.Status.Allocatable = list("cpu", "1", "example.com/dongle", "3")
	facts.Status.Capacity, facts.Status.Allocatable = list("cpu", "8"), list("cpu", "7")
	got := mergeNode(live, facts).Status
	if dongles := got.Capacity["example.com/dongle"]; len(got.Capacity) != 2 || dongles.Value() != 4 || got.Capacity.Cpu().Value() != 8 {
		t.Errorf("capacity %v", got.Capacity)
	}
	if dongles := got.Allocatable["example.com/dongle"]; len(got.Allocatable) != 2 || dongles.Value() != 3 || got.Allocatable.Cpu().Value() != 7 {
		t.Errorf("allocatable %v", got.Allocatable)
	}
	if len(facts.Status.Capacity) != 1 {
		t.Errorf("the agent's facts were changed: %v", facts.Status.Capacity)
	}
}
