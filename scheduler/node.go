package scheduler

import (
	"maps"

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

func (a *amounts) add(b amounts) {
	a.cpu += b.cpu
	a.memory += b.memory
	for name, n := range b.other {
		if a.other == nil {
			a.other = map[corev1.ResourceName]int64{}
		}
		a.other[name] += n
	}
}

// What a pod that requests nothing counts as when nodes are compared, so that
// such pods spread, too. It is never held against a node's room.
const (
	guessCPU    = 100
	guessMemory = 200 << 20
)

// hostPort is a port of the node itself.
type hostPort struct {
	protocol corev1.Protocol
	port     int32
	ip       string
}

// demand is what a pod asks of a node.
type demand struct {
	requests amounts
	guessed  amounts // requests, with a guess for what is not said
	ports    []hostPort
	owner    types.UID // of its controller; "" without one
}

func demandOf(pod *corev1.Pod) demand {
	d := demand{requests: amountsOf(resource.PodRequests(pod, resource.PodResourcesOptions{}))}
	d.guessed = amounts{cpu: d.requests.cpu, memory: d.requests.memory}
	if d.guessed.cpu == 0 {
		d.guessed.cpu = guessCPU
	}
	if d.guessed.memory == 0 {
		d.guessed.memory = guessMemory
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			h := hostPort{protocol: p.Protocol, port: p.HostPort, ip: p.HostIP}
			if h.protocol == "" {
				h.protocol = corev1.ProtocolTCP
			}
			if h.ip == "" {
				h.ip = anyIP
			}
			d.ports = append(d.ports, h)
		}
	}
	d.owner = ownerOf(pod)
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
	pods        int64
	used        amounts
	guessed     amounts
	ports       map[hostPort]bool
	owners      map[types.UID]int
}

func newNodeInfo(node *corev1.Node, leased bool) *nodeInfo {
	n := &nodeInfo{node: node, allocatable: amountsOf(node.Status.Allocatable), ports: map[hostPort]bool{}, owners: map[types.UID]int{}}
	n.maxPods = node.Status.Allocatable.Pods().Value()
	n.alive = leased && ready(node)
	return n
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (n *nodeInfo) place(d demand) {
	n.pods++
	n.used.add(d.requests)
	n.guessed.add(d.guessed)
	for _, p := range d.ports {
		n.ports[p] = true
	}
	if d.owner != "" {
		n.owners[d.owner]++
	}
}

// clone lets a plan place pods without touching the original.
func (n *nodeInfo) clone() *nodeInfo {
	c := *n
	c.used.other = maps.Clone(n.used.other)
	c.guessed.other = maps.Clone(n.guessed.other)
	c.ports = maps.Clone(n.ports)
	c.owners = maps.Clone(n.owners)
	return &c
}
