package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// score is how well a node does for a pod: each part from 0 to 100, times its
// weight. It explains itself in the log of the decision.
type score struct {
	spread    int64 // few pods of the same owner
	preferred int64 // the pod's preferred node affinity
	taints    int64 // few taints that only ask to stay away
	free      int64 // much left
}

func (s score) total() int64 { return 3*s.spread + 2*s.preferred + 3*s.taints + s.free }

// best picks the node with the highest score; of equal ones the one whose name
// comes first. nodes are sorted by name and not empty.
func best(c *candidate, nodes []*nodeInfo) (*nodeInfo, score) {
	soft := make([]int64, len(nodes))
	likes := make([]int64, len(nodes))
	var mostOwned, mostSoft, mostLiked int64
	for i, n := range nodes {
		soft[i] = softTaints(c, n)
		if c.preferred != nil {
			likes[i] = c.preferred.Score(n.node)
		}
		mostOwned = max(mostOwned, int64(n.owners[c.owner]))
		mostSoft, mostLiked = max(mostSoft, soft[i]), max(mostLiked, likes[i])
	}
	var winner *nodeInfo
	var top score
	for i, n := range nodes {
		s := score{
			spread:    100 - share(int64(n.owners[c.owner]), mostOwned),
			preferred: share(likes[i], mostLiked),
			taints:    100 - share(soft[i], mostSoft),
			free:      free(c, n),
		}
		if winner == nil || s.total() > top.total() {
			winner, top = n, s
		}
	}
	return winner, top
}

func share(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return 100 * part / whole
}

func softTaints(c *candidate, n *nodeInfo) int64 {
	var count int64
	for i := range n.node.Spec.Taints {
		t := &n.node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule && !schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, c.pod.Spec.Tolerations, t, true) {
			count++
		}
	}
	return count
}

// free is what would be left of the node's cpu, memory and pods, on average.
func free(c *candidate, n *nodeInfo) int64 {
	left := func(used, all int64) int64 { return max(0, 100-share(used, all)) }
	return (left(n.guessed.cpu+c.guessed.cpu, n.allocatable.cpu) +
		left(n.guessed.memory+c.guessed.memory, n.allocatable.memory) +
		left(n.pods+1, n.maxPods)) / 3
}
