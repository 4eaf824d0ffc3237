package daemonset

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// limits resolves maxSurge and maxUnavailable, which round up, for a number of
// nodes.
func limits(set *appsv1.DaemonSet, nodes int) (surge, unavailable int) {
	u := set.Spec.UpdateStrategy.RollingUpdate
	if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType || u == nil {
		return 0, 1
	}
	scaled := func(v *intstr.IntOrString) int {
		if v == nil {
			return 0
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(v, nodes, true)
		if err != nil {
			return 0 // validation has refused it
		}
		return max(n, 0)
	}
	surge, unavailable = scaled(u.MaxSurge), scaled(u.MaxUnavailable)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

func (d *decision) surging() bool {
	surge, _ := limits(d.set, 1)
	return surge > 0
}

// onNode is what a rolling update sees of a node.
type onNode struct {
	name        string
	recent, old *corev1.Pod // neither is being deleted
	crowded     bool        // there are more: manage thins them out first
}

// rolls lists the nodes that suit or have pods, by name.
func (d *decision) rolls() (out []onNode, desired int) {
	names := map[string]bool{}
	for name, runs := range d.runs {
		if runs {
			names[name] = true
			desired++
		}
	}
	for name := range d.pods {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := onNode{name: name}
		for _, pod := range d.pods[name] {
			if pod.DeletionTimestamp != nil {
				continue
			}
			at := &n.old
			if hashOf(pod) == d.hash {
				at = &n.recent
			}
			n.crowded = n.crowded || *at != nil
			*at = pod
		}
		out = append(out, n)
	}
	return out, desired
}

// roll replaces pods of other revisions.
func (d *decision) roll() {
	nodes, desired := d.rolls()
	surge, unavailable := limits(d.set, desired)
	if surge == 0 {
		d.rollInPlace(nodes, unavailable)
	} else {
		d.rollBeside(nodes, surge, desired)
	}
	if len(d.removed) == 0 {
		return
	}
	for _, n := range nodes {
		for _, pod := range []*corev1.Pod{n.recent, n.old} {
			if d.available(pod) && !d.removed[pod] {
				d.witnesses = append(d.witnesses, pod)
			}
		}
	}
}

// rollInPlace deletes old pods, of which manage makes new ones when they are gone:
// those that are not available at once, others while fewer than most nodes lack an
// available pod.
func (d *decision) rollInPlace(nodes []onNode, most int) {
	var candidates []*corev1.Pod
	for _, n := range nodes {
		switch {
		case n.crowded, n.recent == nil && n.old == nil, n.recent != nil && n.old != nil:
			most--
		case n.recent != nil:
			if !d.available(n.recent) {
				most--
			}
		case !d.available(n.old):
			d.remove(n.old, "it is of another revision, and not available")
			most--
		default:
			candidates = append(candidates, n.old)
		}
	}
	for _, pod := range candidates[:min(len(candidates), max(most, 0))] {
		d.remove(pod, "it is of another revision")
	}
}

// rollBeside makes new pods beside old ones, at once where the old one is not
// available, elsewhere while fewer than most are on their way, and deletes an old
// pod when its successor is available. Pods on nodes that do not suit any more go
// when there are enough without them.
func (d *decision) rollBeside(nodes []onNode, most, desired int) {
	available := 0
	var candidates []string
	var misplaced []*corev1.Pod
	for _, n := range nodes {
		if n.crowded {
			most--
			continue
		}
		first := n.old
		if first == nil {
			first = n.recent
		}
		if d.available(first) {
			available++
		}
		switch {
		case n.old == nil:
		case n.recent != nil && d.available(n.recent):
			d.remove(n.old, "its successor is available")
		case n.recent != nil:
			most--
		case !d.available(n.old) && !d.runs[n.name]:
			d.remove(n.old, "it is not available, and its node does not suit")
		case !d.available(n.old):
			d.create(n.name, "its old pod is not available")
		case !d.runs[n.name]:
			misplaced = append(misplaced, n.old)
		default:
			candidates = append(candidates, n.name)
		}
	}
	for _, pod := range misplaced[:min(len(misplaced), max(available-desired, 0))] {
		d.remove(pod, "its node does not suit")
	}
	for _, node := range candidates[:min(len(candidates), max(most, 0))] {
		d.create(node, "its old pod is of another revision")
	}
}
