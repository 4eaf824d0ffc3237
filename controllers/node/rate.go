package node

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubernetes' defaults of how fast nodes get the taint that evicts.
const (
	interval      = 10 * time.Second  // one node, in a zone where most are ready
	slowInterval  = 100 * time.Second // one node, in a large zone where most are not
	largeZone     = 50                // a zone of more nodes is large
	unhealthy     = 0.55              // the part of a zone's nodes that is most
	fewestNotWell = 3                 // nodes of a zone that are not ready, for that to count
)

// excluded is the label of nodes that do not count when a zone's health is judged.
const excluded = "node.kubernetes.io/exclude-disruption"

// zone is the nodes of one zone, and what is known of them.
type zone struct {
	total, notReady int
	last            time.Time      // when a node of it was tainted last
	waiting         []*corev1.Node // not ready, not tainted yet
}

// wait is how long after one node the next one is tainted; 0: not at all.
func (z *zone) wait() time.Duration {
	most := z.notReady < z.total && z.notReady >= fewestNotWell && float64(z.notReady)/float64(z.total) >= unhealthy
	switch {
	case !most:
		return interval
	case z.total > largeZone:
		return slowInterval
	}
	return 0
}

// pace is what the pass over all nodes decides: which nodes get or lose the taint
// that evicts, and when to look again; 0: when something changes.
type pace struct {
	nodes []*corev1.Node
	again time.Duration
	// stopped: no node is ready, so nothing is evicted.
	stopped bool
}

// planPace decides on all nodes. last has when a node of a zone was tainted last,
// as far as this process knows; the taints that are there tell the rest.
func planPace(nodes []*corev1.Node, last map[string]time.Time, now time.Time) pace {
	zones, names, healthy := map[string]*zone{}, []string{}, false
	for _, node := range nodes {
		name := zoneOf(node)
		z := zones[name]
		if z == nil {
			z = &zone{last: last[name]}
			zones[name], names = z, append(names, name)
		}
		counts := 1
		if _, ok := node.Labels[excluded]; ok {
			counts = 0
		}
		z.total += counts
		since := evictedSince(node)
		if since != nil && since.After(z.last) {
			z.last = since.Time
		}
		if ready(node) == corev1.ConditionTrue {
			healthy = healthy || counts > 0
			continue
		}
		z.notReady += counts
		if since == nil {
			z.waiting = append(z.waiting, node)
		}
	}
	if !healthy {
		return planStop(nodes)
	}
	var p pace
	slices.Sort(names)
	for _, name := range names {
		z := zones[name]
		wait := z.wait()
		if len(z.waiting) == 0 || wait == 0 {
			continue
		}
		slices.SortFunc(z.waiting, func(a, b *corev1.Node) int {
			return cmp.Or(notReadySince(a).Compare(notReadySince(b)), cmp.Compare(a.Name, b.Name))
		})
		left := z.last.Add(wait).Sub(now)
		if left <= 0 {
			p.nodes = append(p.nodes, evicting(z.waiting[0], now))
			if len(z.waiting) == 1 {
				continue
			}
			left = wait
		}
		if p.again == 0 || left < p.again {
			p.again = left
		}
	}
	return p
}

// planStop takes the taints that evict from all nodes.
func planStop(nodes []*corev1.Node) pace {
	p := pace{stopped: len(nodes) > 0}
	for _, node := range nodes {
		if evictedSince(node) == nil {
			continue
		}
		out := node.DeepCopy()
		out.Spec.Taints = slices.DeleteFunc(out.Spec.Taints, func(t corev1.Taint) bool { return lost(t) && t.Effect == corev1.TaintEffectNoExecute })
		p.nodes = append(p.nodes, out)
	}
	return p
}

// evicting is a node that is not ready with the taint that evicts.
func evicting(node *corev1.Node, now time.Time) *corev1.Node {
	out := node.DeepCopy()
	key, at := corev1.TaintNodeNotReady, metav1.NewTime(now.Truncate(time.Second))
	if ready(node) == corev1.ConditionUnknown {
		key = corev1.TaintNodeUnreachable
	}
	setTaint(out, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: &at}, true)
	return out
}

func notReadySince(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func zoneOf(node *corev1.Node) string {
	return node.Labels[corev1.LabelTopologyRegion] + "/" + node.Labels[corev1.LabelTopologyZone]
}
