// Package scheduler decides on which node a pod runs, and binds it there.
//
// It reads Pods, Nodes and the nodes' leases. It alone writes a pod's
// spec.nodeName, for pods that have none, and the condition PodScheduled in a
// pod's status; and the Events Scheduled and FailedScheduling.
//
// Invariant (R11): a pod is bound only to a node that its hard constraints allow:
// the node is ready and has a lease, its taints are tolerated, the pod's
// nodeSelector and required node affinity match, its host ports are free, and
// with it the requests of all pods on the node fit what is allocatable, the
// number of pods included.
//
// How it holds although the cache may be behind: there is one scheduler, the
// leader's, and its writes carry the fence; it starts only when the cache has
// reached its election, so the binds of its predecessors are seen; its own binds
// are kept in mind until the cache shows them, also when the answer to the write
// was lost; and each bind is conditioned on the pod and on the node as read.
//
// Pods that wait are placed in batches, one transaction for up to 50 of them. A
// pod that fits nowhere is looked at again when a node changes in a way that
// matters, or when another pod leaves one.
//
// Example: three nodes, of which two are full and one is tainted. The pod gets
// the condition PodScheduled=False and the Event FailedScheduling with the words
//
//	0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient memory.
//
// A pod ends on one of the full nodes; its event wakes the waiting pod, which is
// bound there.
package scheduler
