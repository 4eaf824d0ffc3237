package deployment

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// resize moves sizes one step from the old sets to the current one.
func resize(sets []*set, cur *set, r room) {
	if r.rolling {
		resizeRolling(sets, cur, r)
	} else {
		resizeRecreate(sets, cur, r)
	}
}

// resizeRolling shrinks old sets as far as availability allows, then grows the
// current one into the room that is left.
func resizeRolling(sets []*set, cur *set, r room) {
	if cur == nil {
		return
	}
	total, available := 0, 0
	for _, s := range sets {
		total += s.size
		available += s.available
	}
	// Pods of the current set that are not available yet are counted on to become
	// so; what is beyond them and the minimum may go.
	spare := total - r.minAvailable - (cur.size - cur.available)
	if spare > 0 {
		shrinkUnhealthy(sets, cur, spare)
		shrinkHealthy(sets, cur, available-r.minAvailable)
	}
	total = 0
	for _, s := range sets {
		total += s.size
	}
	cur.size = min(r.desired, cur.size+max(0, r.most-total))
}

// shrinkUnhealthy takes from old sets, oldest first, what is not available: it
// would block the rollout and losing it loses nothing.
func shrinkUnhealthy(sets []*set, cur *set, n int) {
	for _, s := range sets {
		if s == cur {
			continue
		}
		k := max(0, min(n, s.size-s.available))
		s.size -= k
		n -= k
	}
}

// shrinkHealthy takes n from old sets, oldest first.
func shrinkHealthy(sets []*set, cur *set, n int) {
	for _, s := range sets {
		if s == cur {
			continue
		}
		k := max(0, min(n, s.size))
		s.size -= k
		n -= k
	}
}

// resizeRecreate empties old sets, and fills the current one when no old pod is
// left that may still run.
func resizeRecreate(sets []*set, cur *set, r room) {
	for _, s := range sets {
		if s != cur {
			s.size = 0
		}
	}
	if cur != nil && !oldPodsLeft(sets, cur) {
		cur.size = r.desired
	}
}

func oldPodsLeft(sets []*set, cur *set) bool {
	for _, s := range sets {
		if s != cur && len(s.claim.Pods.Active)+len(s.claim.Pods.Terminating) > 0 {
			return true
		}
	}
	return false
}

// mayCreateSet says whether the time has come for a new set: with Recreate only
// when the old pods are gone.
func mayCreateSet(o *observed, r room) bool {
	return r.rolling || !oldPodsLeft(o.sets, nil)
}

// sizeNote reads a number that annotateSize wrote.
func sizeNote(s *set, key string) (int, bool) {
	n, err := strconv.ParseInt(s.is.Annotations[key], 10, 32)
	return int(n), err == nil && n >= 0
}

// scaling says whether the Deployment's size changed since a set with pods was
// last scaled.
func scaling(sets []*set, r room) bool {
	for _, s := range sets {
		if n, ok := sizeNote(s, annotationDesired); ok && s.size > 0 && n != r.desired {
			return true
		}
	}
	return false
}

// scale changes sizes without moving the rollout on: one set with pods takes the
// whole size; of several each keeps its share, so that a version that turns out bad
// does not gain by it.
func scale(sets []*set, cur *set, r room, replicas int) {
	var filled []*set
	for _, s := range sets {
		if s.size > 0 {
			filled = append(filled, s)
		}
	}
	defer func() {
		for _, s := range filled {
			annotateSize(s.to, r)
		}
	}()
	switch {
	case len(filled) == 1:
		filled[0].size = r.desired
		return
	case len(filled) == 0:
		if cur == nil && len(sets) > 0 {
			cur = sets[len(sets)-1]
		}
		if cur != nil {
			cur.size = r.desired
		}
		return
	case saturated(cur, r):
		for _, s := range filled {
			if s != cur {
				s.size = 0
			}
		}
		return
	case !r.rolling:
		return
	}
	scaleProportionally(filled, r, replicas)
}

// saturated says whether the current set holds, and knows it shall hold, all pods.
func saturated(cur *set, r room) bool {
	if cur == nil {
		return false
	}
	n, ok := sizeNote(cur, annotationDesired)
	return ok && n == r.desired && cur.size == r.desired && cur.available == r.desired
}

// scaleProportionally shares what is to be added or taken among sets by size, the
// largest first and taking what rounding leaves. Of equal sets the newer grows
// first and the older shrinks first.
func scaleProportionally(sets []*set, r room, replicas int) {
	total := 0
	for _, s := range sets {
		total += s.size
	}
	add := -total
	if r.desired > 0 {
		add = r.most - total
	}
	if add == 0 {
		return
	}
	order := slices.Clone(sets) // oldest first
	if add > 0 {
		slices.Reverse(order)
	}
	slices.SortStableFunc(order, func(a, b *set) int { return cmp.Compare(b.size, a.size) })
	left := add
	for _, s := range order {
		share := s.share(r, replicas)
		if add > 0 {
			share = min(share, left)
		} else {
			share = max(share, left)
		}
		s.size += share
		left -= share
	}
	order[0].size = max(0, order[0].size+left)
}

// share is by how much a set would change if it kept its part of the whole.
func (s *set) share(r room, replicas int) int {
	if r.desired == 0 {
		return -s.size
	}
	before, ok := sizeNote(s, annotationMax)
	if !ok || before == 0 {
		if before = replicas; before == 0 {
			return 0
		}
	}
	return int(math.Round(float64(s.size*r.most)/float64(before))) - s.size
}
