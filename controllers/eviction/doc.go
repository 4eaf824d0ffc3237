// Package eviction deletes pods that do not tolerate the NoExecute taints of their
// node, after the time for which they do.
//
// It reads Nodes and the pods bound to them. It alone writes: the deletion of a pod
// for a taint, with its condition DisruptionTarget (reason DeletionByTaintManager).
// The taints of nodes that are lost come from controllers/node, at its pace; others
// come from people.
//
// A pod goes at once when one such taint is not tolerated. Else it goes when the
// first of the tolerationSeconds is over, counted from the timeAdded of the taint
// or, if that is later, from when the pod was bound; so a new leader, and one that
// was away, comes to the same moment. A toleration without tolerationSeconds holds
// for ever. Taints that are gone in time take their evictions along.
// https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
//
// Invariants: the deletion is asked for, never forced (R10): the pod of a lost node
// stays Terminating, and its containers running (R9), until its agent says that it
// has stopped, or controllers/podgarbage hears from the operator that it has. A pod
// is deleted only in a transaction conditioned on its node being as it was seen.
//
// Example: node n1 is lost and tainted node.kubernetes.io/unreachable:NoExecute at
// 12:00:00. Its pods tolerate that for 300 seconds, which admission gave them: at
// 12:05:00 they are marked, and their ReplicaSets make others elsewhere.
package eviction
