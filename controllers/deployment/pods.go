package deployment

import (
	"time"

	"headway.dev/headway/internal/podset"
	corev1 "k8s.io/api/core/v1"
)

// movePods decides which pods make the sets their sizes, within R6: it deletes
// available pods only while more than the minimum are available, and creates pods
// only while there are fewer than the most. What cannot be done now is left for
// the next plan.
func movePods(o *observed, cur *set, r room, now time.Time) {
	var all []*corev1.Pod
	active, available := 0, 0
	for _, s := range o.sets {
		all = append(all, s.claim.Pods.Active...)
		active += s.active()
		available += s.available
	}
	perNode := podset.PerNode(all)
	limit, spare := o.limit, available-r.minAvailable
	for _, s := range o.sets {
		surplus := min(s.active()-s.size, limit)
		if surplus <= 0 {
			continue
		}
		idle, busy := s.byAvailability(perNode, now)
		busy = busy[:min(len(busy), max(spare, 0))]
		order := append(idle, busy...)
		s.victims = order[:min(surplus, len(order))]
		spare -= max(0, len(s.victims)-len(idle))
		limit -= len(s.victims)
		active -= len(s.victims)
	}
	if o.closed {
		return
	}
	fill := func(s *set) {
		if o.refused[s.to.Name] != "" || s.to.DeletionTimestamp != nil {
			return
		}
		s.create = max(0, min(s.size-s.active(), r.most-active, limit))
		limit -= s.create
		active += s.create
	}
	if cur != nil {
		fill(cur)
	}
	for _, s := range o.sets {
		if s != cur {
			fill(s)
		}
	}
}

// byAvailability returns a set's pods in deletion order, those that are not
// available apart.
func (s *set) byAvailability(perNode map[string]int, now time.Time) (idle, busy []*corev1.Pod) {
	for _, p := range podset.DeletionOrder(s.claim.Pods.Active, perNode, now) {
		if ok, _ := podset.Available(p, s.to.Spec.MinReadySeconds, now); ok {
			busy = append(busy, p)
		} else {
			idle = append(idle, p)
		}
	}
	return idle, busy
}
