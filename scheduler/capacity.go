package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Ask is a number of new pods of one form. With none of them, only Answer.Never is
// worked out.
type Ask struct {
	Pod   *corev1.Pod
	Count int
}

// Answer is what would become of an Ask.
type Answer struct {
	Fit   int    // how many would find a node
	Why   string // the others would not, in the form of FailedScheduling
	Never bool   // no node would do even if it were empty; Why says what it lacks
}

// maxLooks bounds how often one Fit looks at a node for a pod; it is some tenths
// of a second.
const maxLooks = 1_000_000

// Fit says where pods would go if they were made now and the leaving ones were
// gone: the scheduler's own decision, on a copy of what the cache shows. Pods that
// wait for a node already come first, then the asks in their order, each seeing
// those before it; pods that are being deleted count as gone. One that makes room
// for itself at the cost of pods of lower priority fits. Nothing is changed.
//
// Without a node that is alive there is nothing to say: everything fits, but for
// what could never. ok is false when it would take too long.
func Fit(r store.Reader, leaving map[types.UID]bool, asks []Ask) (answers []Answer, ok bool) {
	nodes := r.List(api.Nodes(), "")
	looks := 0
	for _, a := range asks {
		looks += (a.Count + 1) * len(nodes)
	}
	if looks > maxLooks {
		return nil, false
	}
	b := copyBoard(r, nodes, leaving)
	alive := slices.ContainsFunc(b.spots, func(n *nodeInfo) bool { return n.alive })
	if alive {
		placeWaiting(r, b, leaving, maxLooks-looks)
	}
	// The more urgent first, as in the queue.
	order := make([]int, len(asks))
	for i := range asks {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(corev1helpers.PodPriority(asks[j].Pod), corev1helpers.PodPriority(asks[i].Pod))
	})
	answers = make([]Answer, len(asks))
	for _, i := range order {
		answers[i] = fit(b, alive, asks[i])
	}
	return answers, true
}

// fit places the pods of one ask on the board, which keeps them.
func fit(b *board, alive bool, a Ask) Answer {
	s := b.record(a.Pod).shape
	if s.err != nil {
		return Answer{Why: unreadable(s.err), Never: true}
	}
	if why := never(b, s); why != "" {
		return Answer{Why: why, Never: true}
	}
	if !alive {
		return Answer{Fit: a.Count}
	}
	for n := range a.Count {
		pod := *a.Pod
		pod.UID = types.UID(fmt.Sprintf("%p/%d", a.Pod, n))
		if why := place(b, &pod); why != "" {
			return Answer{Fit: n, Why: why} // nor would the next, which is like it
		}
	}
	return Answer{Fit: a.Count}
}

// place puts a pod on the best of nodes, or says why there is none.
func place(b *board, pod *corev1.Pod) (why string) {
	defer b.keep()
	r := b.record(pod)
	r.claims = nil // whether it finds its claims and volumes is not a matter of room
	for {
		d := b.decide(r)
		if d.node != nil {
			return ""
		}
		if d.nominated == "" {
			return d.message
		}
		for _, victim := range d.victims { // they go, and the pod has its room
			if v := b.spots[b.slots[d.nominated]].records[victim.UID]; v != nil {
				b.take(v)
			}
		}
		if len(d.victims) == 0 {
			return d.message
		}
	}
}

// never says why no node would do for a pod even if it were empty; "" when one
// would, or when there is no node.
func never(b *board, s *shape) string {
	why := map[string]int{}
	g := b.ground(s)
	for slot, n := range b.spots {
		empty := newNodeInfo(n.node, n.alive)
		switch {
		case !g.verdicts[slot].matches:
			why[unlike.String()]++
		case empty.hasRoom(&s.demand, 0, &amounts{}):
			return ""
		default:
			empty.lacks(&s.demand, 0, &amounts{}, func(what string) { why[what]++ })
		}
	}
	if len(b.spots) == 0 {
		return ""
	}
	return explain(len(b.spots), why)
}

// copyBoard reads the nodes and what is on them.
func copyBoard(r store.Reader, nodes []api.Object, leaving map[types.UID]bool) *board {
	b := newBoard()
	for _, obj := range r.List(api.Namespaces(), "") {
		b.setSpace(obj.GetName(), obj.GetLabels())
	}
	for _, obj := range nodes {
		node, ok := obj.(*corev1.Node)
		if !ok {
			continue
		}
		lease := r.Get(store.Key{GroupResource: api.Leases(), Namespace: corev1.NamespaceNodeLease, Name: node.Name})
		b.setNode(node, lease != nil)
		for _, pod := range r.OnNode(node.Name) {
			if !ended(pod) && pod.DeletionTimestamp == nil && !leaving[pod.UID] {
				b.settle(pod, node.Name)
			}
		}
	}
	b.budgets = readBudgets(r)
	return b
}

// placeWaiting gives the pods that wait already their places, for they come first.
func placeWaiting(r store.Reader, b *board, leaving map[types.UID]bool, looks int) {
	var waiting []*corev1.Pod
	for _, obj := range r.List(api.Pods(), "") {
		if pod, ok := obj.(*corev1.Pod); ok && ours(pod) && !leaving[pod.UID] {
			waiting = append(waiting, pod)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(corev1helpers.PodPriority(b), corev1helpers.PodPriority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	full := map[*shape]bool{}
	for _, pod := range waiting {
		s := b.record(pod).shape
		if s.err != nil || full[s] {
			continue
		}
		if looks -= len(b.spots); looks < 0 {
			return
		}
		if place(b, pod) != "" {
			full[s] = true
		}
	}
}
