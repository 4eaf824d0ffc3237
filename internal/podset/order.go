package podset

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PerNode counts the active pods on each node. Controllers pass the pods of all
// sets of one owner, so that two replicas on one node are thinned out first.
func PerNode(pods []*corev1.Pod) map[string]int {
	n := map[string]int{}
	for _, p := range pods {
		if Active(p) {
			n[p.Spec.NodeName]++
		}
	}
	return n
}

// DeletionOrder returns the pods sorted so that those which are missed least come
// first, by Kubernetes' documented rules: unassigned before assigned, pending
// before unknown before running, not ready before ready, lower
// pod-deletion-cost before higher, pods on crowded nodes before pods alone, ready
// for a shorter time before longer, more restarts before fewer, newer before
// older. Times are compared on a logarithmic scale, ties by UID.
func DeletionOrder(pods []*corev1.Pod, perNode map[string]int, now time.Time) []*corev1.Pod {
	ranked := make([]rank, len(pods))
	for i, p := range pods {
		ranked[i] = rankOf(p, perNode, now)
	}
	slices.SortStableFunc(ranked, compareRanks)
	out := make([]*corev1.Pod, len(pods))
	for i, r := range ranked {
		out[i] = r.pod
	}
	return out
}

// rank holds what the rules compare; in each field, smaller is deleted first.
type rank struct {
	pod    *corev1.Pod
	fields [9]int
}

func rankOf(p *corev1.Pod, perNode map[string]int, now time.Time) rank {
	since, ready := readySince(p)
	readyAge := 0
	if ready {
		readyAge = magnitude(since, now)
	}
	restarts, sidecarRestarts := restartsOf(p)
	return rank{pod: p, fields: [9]int{
		btoi(p.Spec.NodeName != ""),
		phaseOrder(p.Status.Phase),
		btoi(ready),
		deletionCost(p),
		-perNode[p.Spec.NodeName],
		readyAge,
		-restarts,
		-sidecarRestarts,
		magnitude(p.CreationTimestamp.Time, now),
	}}
}

func compareRanks(a, b rank) int {
	if c := slices.Compare(a.fields[:], b.fields[:]); c != 0 {
		return c
	}
	return strings.Compare(string(a.pod.UID), string(b.pod.UID))
}

func phaseOrder(phase corev1.PodPhase) int {
	switch phase {
	case corev1.PodPending, "":
		return 0
	case corev1.PodUnknown:
		return 1
	}
	return 2
}

// deletionCost is the pod's own wish; anything that is no int32 counts as 0, as
// in Kubernetes.
func deletionCost(p *corev1.Pod) int {
	n, err := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

// magnitude is the logarithm of an age; a time that is unset sorts before all.
func magnitude(t, now time.Time) int {
	if t.IsZero() {
		return math.MinInt
	}
	if d := now.Sub(t); d > 0 {
		return int(math.Log2(float64(d)))
	}
	return -1
}

func restartsOf(p *corev1.Pod) (containers, sidecars int) {
	for _, c := range p.Status.ContainerStatuses {
		containers = max(containers, int(c.RestartCount))
	}
	always := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		always[c.Name] = c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	}
	for _, c := range p.Status.InitContainerStatuses {
		if always[c.Name] {
			sidecars = max(sidecars, int(c.RestartCount))
		}
	}
	return containers, sidecars
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
