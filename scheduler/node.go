package scheduler

import (
	"cmp"
	"slices"

	"headway.dev/headway/internal/hostport"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
)

// amounts is how much of each resource; cpu in thousandths.
type amounts struct {
	cpu, memory int64
	other       map[corev1.ResourceName]int64 // nil when there is none
}

func amountsOf(list corev1.ResourceList) amounts {
	var a amounts
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			a.cpu = q.MilliValue()
		case corev1.ResourceMemory:
			a.memory = q.Value()
		case corev1.ResourcePods:
		default:
			if a.other == nil {
				a.other = map[corev1.ResourceName]int64{}
			}
			a.other[name] = q.Value()
		}
	}
	return a
}

// add adds b times n.
func (a *amounts) add(b *amounts, n int64) {
	a.cpu += n * b.cpu
	a.memory += n * b.memory
	for name, amount := range b.other {
		if a.other == nil {
			a.other = map[corev1.ResourceName]int64{}
		}
		a.other[name] += n * amount
	}
}

// What a pod that requests nothing counts as when nodes are compared, so that
// such pods spread, too. It is never held against a node's room.
const (
	guessCPU    = 100
	guessMemory = 200 << 20
)

// demand is what a pod asks of a node.
type demand struct {
	requests amounts
	guessed  amounts // requests, with a guess for what is not said
	ports    []hostport.Port
}

func demandOf(pod *corev1.Pod) demand {
	d := demand{requests: amountsOf(resource.PodRequests(pod, resource.PodResourcesOptions{})), ports: hostport.Of(pod)}
	d.guessed = amounts{cpu: d.requests.cpu, memory: d.requests.memory}
	if d.guessed.cpu == 0 {
		d.guessed.cpu = guessCPU
	}
	if d.guessed.memory == 0 {
		d.guessed.memory = guessMemory
	}
	return d
}

func ownerOf(pod *corev1.Pod) types.UID {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return ref.UID
	}
	return ""
}

// nodeInfo is a node and what is on it.
type nodeInfo struct {
	node        *corev1.Node
	alive       bool // has a lease and is Ready
	allocatable amounts
	maxPods     int64
	used        amounts
	guessed     amounts
	ports       map[hostport.Port]int
	records     map[types.UID]*record
	nominated   []*record // they are on no node yet
	levels      []level   // what pods of each priority hold, lowest first
}

// level is what the pods of one priority hold.
type level struct {
	priority int32
	pods     int64
	requests amounts
}

func newNodeInfo(node *corev1.Node, leased bool) *nodeInfo {
	return &nodeInfo{node: node, alive: leased && ready(node), allocatable: amountsOf(node.Status.Allocatable), maxPods: node.Status.Allocatable.Pods().Value(),
		ports: map[hostport.Port]int{}, records: map[types.UID]*record{}}
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (n *nodeInfo) place(r *record)   { n.records[r.uid()] = r; n.hold(r.shape, 1) }
func (n *nodeInfo) unplace(r *record) { delete(n.records, r.uid()); n.hold(r.shape, -1) }

func (n *nodeInfo) hold(s *shape, by int) {
	d := &s.demand
	n.used.add(&d.requests, int64(by))
	n.guessed.add(&d.guessed, int64(by))
	for _, p := range d.ports {
		tick(n.ports, p, by)
	}
	i, found := slices.BinarySearchFunc(n.levels, s.priority, func(l level, p int32) int { return cmp.Compare(l.priority, p) })
	if !found {
		n.levels = slices.Insert(n.levels, i, level{priority: s.priority})
	}
	l := &n.levels[i]
	l.requests.add(&d.requests, int64(by))
	if l.pods += int64(by); l.pods == 0 {
		n.levels = slices.Delete(n.levels, i, i+1)
	}
}

// hasRoom says whether a demand fits beside what is there, without what is given
// back first.
func (n *nodeInfo) hasRoom(d *demand, backPods int64, back *amounts) bool {
	if int64(len(n.records))-backPods+1 > n.maxPods {
		return false
	}
	want := &d.requests
	if want.cpu > 0 && want.cpu > n.allocatable.cpu-n.used.cpu+back.cpu || want.memory > 0 && want.memory > n.allocatable.memory-n.used.memory+back.memory {
		return false
	}
	for name, amount := range want.other {
		if amount > 0 && amount > n.allocatable.other[name]-n.used.other[name]+back.other[name] {
			return false
		}
	}
	return true
}

// lacks tells every resource that a demand lacks beside what is there, without what
// is given back first.
func (n *nodeInfo) lacks(d *demand, backPods int64, back *amounts, tell func(what string)) {
	if int64(len(n.records))-backPods+1 > n.maxPods {
		tell(reasonPods)
	}
	short := func(want, used, back, all int64) bool { return want > 0 && want > all-used+back }
	if short(d.requests.cpu, n.used.cpu, back.cpu, n.allocatable.cpu) {
		tell(reasonResource + "cpu")
	}
	if short(d.requests.memory, n.used.memory, back.memory, n.allocatable.memory) {
		tell(reasonResource + "memory")
	}
	for name, want := range d.requests.other {
		if short(want, n.used.other[name], back.other[name], n.allocatable.other[name]) {
			tell(reasonResource + string(name))
		}
	}
}
