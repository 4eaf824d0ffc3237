package scheduler

import (
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
// those before it; pods that are being deleted count as gone. Nothing is changed.
//
// Without a node that is alive there is nothing to say: everything fits, but for
// what could never. ok is false when it would take too long.
func Fit(r store.Reader, leaving map[types.UID]bool, asks []Ask) (answers []Answer, ok bool) {
	nodes := copyNodes(r, leaving)
	alive := slices.ContainsFunc(nodes, func(n *nodeInfo) bool { return n.alive })
	looks := 0
	for _, a := range asks {
		looks += (a.Count + 1) * len(nodes)
	}
	if looks > maxLooks {
		return nil, false
	}
	if alive {
		placeWaiting(r, nodes, leaving, maxLooks-looks)
	}
	for _, a := range asks {
		answers = append(answers, fit(nodes, alive, a))
	}
	return answers, true
}

// fit places the pods of one ask on nodes, which keep them.
func fit(nodes []*nodeInfo, alive bool, a Ask) Answer {
	c, err := candidateOf(a.Pod)
	if err != nil {
		return Answer{Why: unreadable(err), Never: true}
	}
	if why := never(&c, nodes); why != "" {
		return Answer{Why: why, Never: true}
	}
	if !alive {
		return Answer{Fit: a.Count}
	}
	for n := range a.Count {
		if why := place(nodes, &c); why != nil {
			return Answer{Fit: n, Why: explain(len(nodes), why)} // nor would the next, which is like it
		}
	}
	return Answer{Fit: a.Count}
}

// place puts a pod on the best of nodes, or counts why there is none.
func place(nodes []*nodeInfo, c *candidate) (why map[string]int) {
	fits, why := fitting(c, nodes)
	if len(fits) == 0 {
		return why
	}
	node, _ := best(c, fits)
	node.place(c.demand)
	return nil
}

// never says why no node would do for a pod even if it were empty; "" when one
// would, or when there is no node.
func never(c *candidate, nodes []*nodeInfo) string {
	why := map[string]int{}
	for _, n := range nodes {
		empty := newNodeInfo(n.node, n.alive)
		reasons := matching(c, empty)
		if len(reasons) == 0 {
			reasons = roomFor(c, empty)
		}
		if len(reasons) == 0 {
			return ""
		}
		for _, r := range reasons {
			why[r]++
		}
	}
	if len(nodes) == 0 {
		return ""
	}
	return explain(len(nodes), why)
}

// copyNodes reads the nodes and what is on them, sorted by name.
func copyNodes(r store.Reader, leaving map[types.UID]bool) []*nodeInfo {
	var nodes []*nodeInfo
	demands := map[*corev1.Container]demand{} // pods of one template share their spec (D3)
	for _, obj := range r.List(api.Nodes(), "") {
		node, ok := obj.(*corev1.Node)
		if !ok {
			continue
		}
		lease := r.Get(store.Key{GroupResource: api.Leases(), Namespace: corev1.NamespaceNodeLease, Name: node.Name})
		n := newNodeInfo(node, lease != nil)
		for _, pod := range r.OnNode(node.Name) {
			if ended(pod) || pod.DeletionTimestamp != nil || leaving[pod.UID] || len(pod.Spec.Containers) == 0 {
				continue
			}
			d, known := demands[&pod.Spec.Containers[0]]
			if !known {
				d = demandOf(pod)
				demands[&pod.Spec.Containers[0]] = d
			}
			d.owner = ownerOf(pod)
			n.place(d)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// placeWaiting gives the pods that wait already their places, for they come first.
func placeWaiting(r store.Reader, nodes []*nodeInfo, leaving map[types.UID]bool, looks int) {
	full := map[*corev1.Container]bool{}
	for _, obj := range r.List(api.Pods(), "") {
		pod, ok := obj.(*corev1.Pod)
		if !ok || !ours(pod) || leaving[pod.UID] || len(pod.Spec.Containers) == 0 || full[&pod.Spec.Containers[0]] {
			continue
		}
		if looks -= len(nodes); looks < 0 {
			return
		}
		c, err := candidateOf(pod)
		if err != nil || place(nodes, &c) != nil { // one that cannot be read waits for ever
			full[&pod.Spec.Containers[0]] = true
		}
	}
}
