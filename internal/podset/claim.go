package podset

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Claim is which pods an owner has, takes and lets go.
type Claim struct {
	Pods    Pods          // that it has after the claim
	Adopt   []*corev1.Pod // of them, those it does not control yet
	Release []*corev1.Pod // controlled, active, and not matched any more
}

// ClaimPods decides on the pods that an owner controls and on the orphans that its
// selector matches. An owner that is being deleted adopts nothing: pass none.
func ClaimPods(selector labels.Selector, controlled, orphans []*corev1.Pod) Claim {
	var c Claim
	var mine []*corev1.Pod
	for _, p := range controlled {
		if Active(p) && !selector.Matches(labels.Set(p.Labels)) {
			c.Release = append(c.Release, p)
			continue
		}
		mine = append(mine, p)
	}
	for _, p := range orphans {
		if Active(p) && selector.Matches(labels.Set(p.Labels)) {
			c.Adopt = append(c.Adopt, p)
			mine = append(mine, p)
		}
	}
	c.Pods = Split(mine)
	return c
}
