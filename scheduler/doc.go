// Package scheduler decides on which node a pod runs, and binds it there.
//
// It reads Pods, Nodes and the nodes' leases, Namespaces for their labels,
// PodDisruptionBudgets, and PersistentVolumes, their claims and StorageClasses. It alone writes a pod's spec.nodeName, for pods that have
// none, status.nominatedNodeName and the condition PodScheduled in a pod's status;
// in pods that it preempts the condition DisruptionTarget, and it deletes them; and
// the Events Scheduled, FailedScheduling and Preempted.
//
// Invariant (R11): a pod is bound only to a node that its hard constraints allow:
// the node is ready and has a lease, its taints are tolerated, the pod's
// nodeSelector and required node affinity match, its host ports are free, and
// with it the requests of all pods on the node fit what is allocatable, the
// number of pods included; required affinity and anti-affinity between pods, in
// both directions, and topology spread constraints hold by what the cache shows.
//
// How it holds although the cache may be behind: there is one scheduler, the
// leader's, and its writes carry the fence; it starts only when the cache has
// reached its election, so the binds of its predecessors are seen; its own binds
// are kept in mind until the cache shows them, also when the answer to the write
// was lost; and each bind is conditioned on the pod and on the node as read. After
// it has sent pods away it decides nothing until the cache shows that.
//
// What a decision needs is on the board (board.go): nodes, pods, and counts of pods
// by topology domain (tally.go), for each term and constraint that somebody asks
// about. The view (view.go) changes the board only where something happened. A plan
// (plan.go, filter.go, score.go, preempt.go) tries its placements on the board and
// takes them back; what they have become shows when the transaction is done.
//
// A claim of a WaitForFirstConsumer class gets its volume with its first pod: a declared
// one that can be reached from the node, or one that is made there (claims.go, shelf.go).
// The pod's place, the claim and the volume are written in one transaction, so that there
// is no volume without its claim and no claim that is bound halfway; a claim that is bound
// already is a condition of it, so no pod is placed whose claim is being deleted.
//
// Pods that wait are placed in batches, the highest priority first, one transaction
// for up to 50 of them. A pod that fits nowhere is looked at again when a node
// changes in a way that matters, when another pod leaves one, or, if other pods
// decide about it, when one comes.
//
// Example: three nodes, of which two are full and one is tainted. The pod gets
// the condition PodScheduled=False and the Event FailedScheduling with the words
//
//	0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient memory.
//
// A pod ends on one of the full nodes; its event wakes the waiting pod, which is
// bound there. Had a pod of lower priority been on one of them, it would have been
// deleted, and the waiting pod nominated to that node.
package scheduler
