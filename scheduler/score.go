package scheduler

import (
	"math"
)

// score is how well a node does for a pod: each part from 0 to 100, times its
// weight. It explains itself in the log of the decision.
type score struct {
	spread     int64 // few pods of the same owner
	preferred  int64 // the pod's preferred node affinity
	taints     int64 // few taints that only ask to stay away
	neighbours int64 // preferred pod affinity and anti-affinity, its own and others'
	topology   int64 // spread constraints that only ask (ScheduleAnyway)
	free       int64 // much left
	images     int64 // the images are there
}

func (s score) total(w weights) int64 {
	return w.spread*s.spread + 2*s.preferred + 3*s.taints + 2*s.neighbours + 2*s.topology + s.free + s.images
}

// weights are those that depend on the pod. That pods of one owner spread is a
// default: it gives way to what the pod itself says about other pods.
type weights struct{ spread int64 }

func (s *shape) weights() weights {
	switch {
	case len(s.hard)+len(s.soft) > 0:
		return weights{}
	case len(s.likes) > 0:
		return weights{spread: 1}
	}
	return weights{spread: 3}
}

// scratch is memory that choosing uses again and again.
type scratch struct {
	fit   []int
	why   []reason // by slot: what choose found last
	raw   []raw
	owned []int   // by slot; all zero between uses
	stock []int64 // as owned: bytes of the pod's images
}

// raw are the figures of a node before they are compared with the others'.
type raw struct {
	owned, soft, liked, felt int64
	skew                     float64 // below zero: the node lacks a topology key
}

// best picks the node with the highest score; of equal ones the one whose name
// comes first. slots are not empty.
func (t *trial) best(slots []int) (*nodeInfo, score) {
	b, mem := t.b, &t.b.scratch
	for len(mem.owned) < len(b.spots) {
		mem.owned = append(mem.owned, 0)
		mem.stock = append(mem.stock, 0)
	}
	touched := b.stocked(t.s.images, mem.stock)
	mine := b.owners[t.r.owner]
	for slot, pods := range mine {
		mem.owned[slot] = pods
	}
	mem.raw = mem.raw[:0]
	most := raw{felt: math.MinInt64}
	leastFelt, leastSkew := int64(math.MaxInt64), math.MaxFloat64
	logs := make([]float64, len(t.soft))
	for i, count := range t.soft {
		logs[i] = math.Log(float64(count.domains() + 2))
	}
	for _, slot := range slots {
		v := &t.ground.verdicts[slot]
		r := raw{owned: int64(mem.owned[slot]), soft: v.soft, liked: v.likes, felt: t.felt(slot), skew: t.skew(slot, logs)}
		most.owned, most.soft, most.liked = max(most.owned, r.owned), max(most.soft, r.soft), max(most.liked, r.liked)
		most.felt, leastFelt = max(most.felt, r.felt), min(leastFelt, r.felt)
		if r.skew >= 0 {
			most.skew, leastSkew = max(most.skew, r.skew), min(leastSkew, r.skew)
		}
		mem.raw = append(mem.raw, r)
	}
	for slot := range mine {
		mem.owned[slot] = 0
	}
	w := t.s.weights()
	var winner *nodeInfo
	var top score
	var highest int64
	for i, slot := range slots {
		n, r := b.spots[slot], &mem.raw[i]
		s := score{
			spread:     100 - share(r.owned, most.owned),
			preferred:  share(r.liked, most.liked),
			taints:     100 - share(r.soft, most.soft),
			neighbours: share(r.felt-leastFelt, most.felt-leastFelt),
			topology:   evenness(r.skew, leastSkew, most.skew),
			free:       free(&t.s.demand, n),
			images:     locality(mem.stock[slot], len(t.s.images)),
		}
		total := s.total(w)
		if winner == nil || total > highest || total == highest && n.node.Name < winner.node.Name {
			winner, top, highest = n, s, total
		}
	}
	for _, slot := range touched {
		mem.stock[slot] = 0
	}
	return winner, top
}

// felt adds up the preferences about other pods: the pod's own, and what the terms
// of placed pods say about it.
func (t *trial) felt(slot int) (sum int64) {
	for i, count := range t.likes {
		pods, _ := count.on(slot)
		sum += t.s.likes[i].weight * int64(pods)
	}
	for _, c := range t.s.kin.feels {
		pods, _ := c.on(slot)
		sum += c.weight * int64(pods)
	}
	return sum
}

// skew adds up how full the node's domains are, each weighed by how many domains
// there are, as in Kubernetes.
func (t *trial) skew(slot int, logs []float64) (sum float64) {
	for i, count := range t.soft {
		pods, included := count.on(slot)
		if !included {
			if _, ok := t.b.spots[slot].node.Labels[t.s.soft[i].topology]; !ok {
				return -1
			}
		}
		sum += float64(pods)*logs[i] + float64(t.s.soft[i].maxSkew-1)
	}
	return sum
}

// evenness is high for a small skew.
func evenness(skew, least, most float64) int64 {
	switch {
	case skew < 0:
		return 0
	case most <= 0:
		return 100
	}
	return int64(100 * (most + least - skew) / most)
}

func share(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return 100 * part / whole
}

// free is what would be left of the node's cpu, memory and pods, on average.
func free(d *demand, n *nodeInfo) int64 {
	left := func(used, all int64) int64 { return max(0, 100-share(used, all)) }
	return (left(n.guessed.cpu+d.guessed.cpu, n.allocatable.cpu) +
		left(n.guessed.memory+d.guessed.memory, n.allocatable.memory) +
		left(int64(len(n.records))+1, n.maxPods)) / 3
}
