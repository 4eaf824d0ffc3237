// Package node says which nodes can be trusted to tell what runs on them.
//
// It reads Nodes, their leases (the Lease object of the node's name in
// kube-node-lease, which vanishes with the etcd lease that the agent renews) and
// the pods bound to them. It alone writes a Node's conditions to Unknown, the
// taints that follow from its conditions and from spec.unschedulable (below), the
// timeAdded of NoExecute taints that come without, and the Ready condition of a
// lost node's pods to False. It evicts nothing: controllers/eviction does, by the
// NoExecute taints.
//
// Taints with the effect NoSchedule are set and taken at once:
//
//	Ready=Unknown               node.kubernetes.io/unreachable
//	Ready=False                 node.kubernetes.io/not-ready
//	MemoryPressure=True         node.kubernetes.io/memory-pressure
//	DiskPressure=True           node.kubernetes.io/disk-pressure
//	PIDPressure=True            node.kubernetes.io/pid-pressure
//	NetworkUnavailable=True     node.kubernetes.io/network-unavailable
//	spec.unschedulable          node.kubernetes.io/unschedulable
//
// The first two also come with the effect NoExecute, which starts the clock of the
// pods' evictions, and so not faster than Kubernetes does by default
// (https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction):
// in each zone (topology.kubernetes.io/region and /zone) one node in 10 seconds; one
// in 100 seconds when at least 55 % and three of the zone's nodes are not ready and
// the zone has more than 50; none when that is so and it has no more than 50. When
// no node of the cluster is ready the fault is more likely here than there: then no
// node has such a taint, and those that had one lose it. What was tainted when is
// read from the taints themselves, so a new leader goes on where the old one was.
//
// Invariants: a node without a lease is never shown as Ready, whatever its last
// session wrote. A node that is ready again loses the taints in the same
// transaction that notices. Everything else about a node is its session's to write.
//
// Example: the machine of node n1 loses power; its lease ends, the key vanishes,
// and one transaction marks the node Ready=Unknown and taints it, so that the
// scheduler passes it over; the pass over all nodes adds NoExecute. When its agent
// is back the session sets Ready=True and this controller takes the taints away.
package node
