package scheduler

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// decision is what becomes of one pod: a node, or the reason why there is none.
type decision struct {
	pod     *corev1.Pod
	node    *corev1.Node // nil: it waits
	score   score
	message string // why it waits, in Kubernetes' form
}

// plan places pods on nodes, in order, each one seeing those before it. nodes are
// sorted by name; neither they nor the pods are changed.
func plan(nodes []*nodeInfo, pods []*corev1.Pod) []decision {
	nodes = slices.Clone(nodes)
	cloned := make([]bool, len(nodes))
	out := make([]decision, 0, len(pods))
	for _, pod := range pods {
		c, err := candidateOf(pod)
		if err != nil {
			out = append(out, decision{pod: pod, message: unreadable(err)})
			continue
		}
		fit, why := fitting(&c, nodes)
		if len(fit) == 0 {
			out = append(out, decision{pod: pod, message: explain(len(nodes), why)})
			continue
		}
		n, s := best(&c, fit)
		i := slices.Index(nodes, n)
		if !cloned[i] {
			nodes[i], cloned[i] = n.clone(), true
		}
		nodes[i].place(c.demand)
		out = append(out, decision{pod: pod, node: n.node, score: s})
	}
	return out
}

// fitting returns the nodes that do for a pod, and counts why the others do not.
func fitting(c *candidate, nodes []*nodeInfo) (fit []*nodeInfo, why map[string]int) {
	why = map[string]int{}
	for _, n := range nodes {
		reasons := objections(c, n)
		if len(reasons) == 0 {
			fit = append(fit, n)
		}
		for _, r := range reasons {
			why[r]++
		}
	}
	return fit, why
}

func unreadable(err error) string {
	return fmt.Sprintf("the pod's node affinity cannot be read: %v", err)
}

// explain says why no node does, in the form of Kubernetes' scheduler.
func explain(nodes int, why map[string]int) string {
	if nodes == 0 {
		return "no nodes available to schedule pods"
	}
	var reasons []string
	for reason, n := range why {
		reasons = append(reasons, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(reasons)
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(reasons, ", "))
}
