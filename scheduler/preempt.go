package scheduler

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// The words of Kubernetes' scheduler about preemption.
const (
	reasonNotHelpful = "Preemption is not helpful for scheduling"
	reasonNoVictims  = "No preemption victims found for incoming pod"
	reasonMeek       = "not eligible due to preemptionPolicy=Never."
	reasonUnderway   = "not eligible due to a terminating pod on the nominated node."
)

// messagePreempted is in the condition of a pod that is preempted.
const messagePreempted = corev1.DefaultSchedulerName + ": preempting to accommodate a higher priority pod"

const (
	// maxTried bounds how many nodes are worked out in full for one pod. The most
	// promising are first, so it bounds only how well equals are told apart.
	maxTried = 100
	// maxVictims is what one transaction has room for. When more must go, they go
	// in several rounds.
	maxVictims = 40
)

// budget is a PodDisruptionBudget: how many of its pods may still go.
type budget struct {
	namespace string
	selector  labels.Selector
	allowed   int32
	disrupted map[string]bool // pods that count already, by name
}

// eviction is how one node could be made free for a pod.
type eviction struct {
	slot       int
	victims    []*record // the most important first
	violations int       // of PodDisruptionBudgets
}

// preempt looks for a node on which pods of lower priority can make room, and if
// there is one changes the board as if they were going and the pod was nominated
// to it. Otherwise it says in the decision's message why not.
func (t *trial) preempt(d *decision) {
	if !t.b.lower(t.s.priority) {
		return
	}
	if t.s.meek {
		d.message += " preemption: " + reasonMeek
		return
	}
	if slot, known := t.b.slots[t.r.pod.Status.NominatedNodeName]; known && t.underway(slot) {
		d.nominated = t.r.pod.Status.NominatedNodeName
		t.b.nominate(t.r, slot)
		d.message += " preemption: " + reasonUnderway
		return
	}
	e, why := t.cheapest()
	if e == nil {
		d.message += " preemption: " + explain(len(t.b.slots), why)
		return
	}
	n := t.b.spots[e.slot]
	d.nominated = n.node.Name
	for i, r := range e.victims {
		if i < maxVictims {
			d.victims = append(d.victims, r.pod)
			t.b.leave(r)
		}
	}
	for _, r := range slices.Clone(n.nominated) {
		if r.shape.priority < t.s.priority {
			d.displaced = append(d.displaced, r.pod)
			t.b.dismiss(r.uid())
		}
	}
	t.b.nominate(t.r, e.slot)
}

// leave changes a pod as if it were being deleted: it holds what it has until it
// is gone.
func (b *board) leave(r *record) {
	slot := r.slot
	b.remove(r)
	going := *r
	going.shape = b.shape(r.pod, b.kin(r.pod.Namespace, r.pod.Labels, true))
	b.add(&going, slot)
}

// underway says whether room is being made on the node that the pod is nominated
// to, and will help.
func (t *trial) underway(slot int) bool {
	if why := t.ask(slot); why != fits && !why.yields() {
		return false
	}
	for _, r := range t.b.spots[slot].records {
		if r.shape.kin.going && r.shape.priority < t.s.priority && preempted(r.pod) {
			return true
		}
	}
	return false
}

// preempted says whether the scheduler has sent a pod away.
func preempted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// cheapest finds the node whose victims matter least, or says why there is none.
// Nodes are tried in the order of the lowest priority at which they could have
// room; when those of one priority give an answer that breaks no budget and takes
// nobody above it, the others cannot be better.
func (t *trial) cheapest() (*eviction, map[string]int) {
	why := map[string]int{}
	bounds := map[int32][]int{}
	helpless, alone := 0, 0
	for slot, n := range t.b.spots {
		switch {
		case n == nil:
		case !t.b.scratch.why[slot].yields():
			helpless++
		case len(n.levels) == 0 || n.levels[0].priority >= t.s.priority:
			alone++
		default:
			if at, ok := t.bound(n, why); ok {
				bounds[at] = append(bounds[at], slot)
			}
		}
	}
	for words, n := range map[string]int{reasonNotHelpful: helpless, reasonNoVictims: alone} {
		if n > 0 {
			why[words] = n
		}
	}
	var best *eviction
	tried := 0
	for _, at := range sortedKeys(bounds) {
		for _, slot := range bounds[at] {
			if tried == maxTried {
				return best, why
			}
			e := t.evict(slot, why)
			if e == nil {
				continue
			}
			tried++
			if best == nil || t.cheaper(e, best) {
				best = e
			}
		}
		if best != nil && best.violations == 0 && best.highest() <= at {
			break
		}
	}
	return best, why
}

func sortedKeys(m map[int32][]int) []int32 {
	out := make([]int32, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// bound is the lowest priority such that the node has room for the pod without the
// pods up to it. When there is none it counts what is short all the same.
func (t *trial) bound(n *nodeInfo, why map[string]int) (int32, bool) {
	var pods int64
	var back amounts
	for i := range n.levels {
		l := &n.levels[i]
		if l.priority >= t.s.priority {
			break
		}
		pods += l.pods
		back.add(&l.requests, 1)
		if n.hasRoom(&t.s.demand, pods, &back) {
			return l.priority, true
		}
	}
	n.lacks(&t.s.demand, pods, &back, func(what string) { why[what]++ })
	return 0, false
}

// clear takes the pods of lower priority off a node and returns them.
func (t *trial) clear(n *nodeInfo) []*record {
	var out []*record
	for _, r := range n.records {
		if r.shape.priority < t.s.priority {
			out = append(out, r)
		}
	}
	for _, r := range out {
		t.b.remove(r)
	}
	return out
}

// evict finds the pods that must leave a node: all of lower priority, and then back
// those that can stay, the most important first, and before all others those whose
// budget would be broken. Pods that are going anyway are no victims. When not even
// all of them make the pod fit, it counts why.
func (t *trial) evict(slot int, refused map[string]int) *eviction {
	n := t.b.spots[slot]
	mark := t.b.mark()
	defer t.b.undo(mark)
	all := t.clear(n)
	switch why := t.ask(slot); why {
	case fits:
	case noRoom:
		t.shortAt(slot, refused)
		return nil
	default:
		refused[why.String()]++
		return nil
	}
	all = slices.DeleteFunc(all, func(r *record) bool { return r.shape.kin.going })
	slices.SortFunc(all, byImportance)
	guarded, free := t.b.guard(all)
	e := &eviction{slot: slot}
	spare := func(r *record) bool {
		at := t.b.mark()
		t.b.add(r, slot)
		if t.ask(slot) == fits {
			return true
		}
		t.b.undo(at)
		e.victims = append(e.victims, r)
		return false
	}
	for _, r := range guarded {
		if !spare(r) {
			e.violations++
		}
	}
	for _, r := range free {
		spare(r)
	}
	slices.SortFunc(e.victims, byImportance)
	return e
}

// guard parts pods into those whose going would break a budget and the others.
func (b *board) guard(pods []*record) (guarded, free []*record) {
	if len(b.budgets) == 0 {
		return nil, pods
	}
	left := make([]int32, len(b.budgets))
	for i, g := range b.budgets {
		left[i] = g.allowed
	}
	for _, r := range pods {
		breaks := false
		for i, g := range b.budgets {
			if g.namespace != r.pod.Namespace || g.disrupted[r.pod.Name] || !g.selector.Matches(labels.Set(r.pod.Labels)) {
				continue
			}
			left[i]--
			breaks = breaks || left[i] < 0
		}
		if breaks {
			guarded = append(guarded, r)
		} else {
			free = append(free, r)
		}
	}
	return guarded, free
}

// byImportance has the higher priority first, then who has run for longer.
func byImportance(a, b *record) int {
	return cmp.Or(cmp.Compare(b.shape.priority, a.shape.priority), since(a).Compare(since(b)), compareUID(a.uid(), b.uid()))
}

func compareUID(a, b types.UID) int { return cmp.Compare(a, b) }

// since is when a pod was started; one that was not is the latest.
func since(r *record) time.Time {
	if r.pod.Status.StartTime == nil {
		return time.Unix(1<<40, 0)
	}
	return r.pod.Status.StartTime.Time
}

// cheaper says whether an eviction does less harm than another, as Kubernetes
// documents: fewer broken budgets, then a lower highest priority, then a smaller
// sum of priorities, then fewer pods, then the younger of the most important ones,
// then the node's name.
func (t *trial) cheaper(a, b *eviction) bool {
	return cmp.Or(
		cmp.Compare(a.violations, b.violations),
		cmp.Compare(a.highest(), b.highest()),
		cmp.Compare(a.sum(), b.sum()),
		cmp.Compare(len(a.victims), len(b.victims)),
		b.oldest().Compare(a.oldest()),
		cmp.Compare(t.b.spots[a.slot].node.Name, t.b.spots[b.slot].node.Name),
	) < 0
}

func (e *eviction) highest() int32 {
	if len(e.victims) == 0 {
		return math.MinInt32
	}
	return e.victims[0].shape.priority
}

// sum counts priorities from the lowest possible one, so that more pods are more
// also when their priorities are below zero.
func (e *eviction) sum() (sum int64) {
	for _, r := range e.victims {
		sum += int64(r.shape.priority) - math.MinInt32
	}
	return sum
}

// oldest is when the first of the most important victims was started.
func (e *eviction) oldest() time.Time {
	if len(e.victims) == 0 {
		return time.Time{}
	}
	return since(e.victims[0])
}
