// Package podgarbage removes pods that nobody will end any more.
//
// It reads Pods, Nodes and the nodes' leases. It alone writes:
//
//   - the deletion of the oldest pods that have ended, beyond maxEnded, those that
//     were evicted first. A pod that a finalizer holds has not been counted yet and
//     stays;
//   - the deletion of pods that are bound to a node whose Node object is gone, after
//     quarantine. Deleting a Node is how an operator says that the machine is gone:
//     without a lease there is nobody to wait for, and the pods are removed. With a
//     lease its agent is there to stop them, so they are only marked;
//   - the removal of pods that are Terminating on a node that is not ready and that
//     the operator has tainted node.kubernetes.io/out-of-service.
//
// A pod that ends so has phase Failed and the condition DisruptionTarget (reason
// DeletionByPodGC) where a finalizer keeps it to be counted.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown
//
// A pod that was deleted before it was bound is removed by the API server, by
// podset.Remove and by controllers/garbage, which removes everything that is being
// deleted and that nothing holds.
//
// Invariants (R10): a pod that a node may be running is removed without a word of
// its agent only when the operator has said that the node is gone, in a transaction
// conditioned on that still being so and on the node having no lease.
//
// Example: the machine of node n1 has burned down. The pod db-0 is Terminating for
// as long as nobody knows whether it still runs. `kubectl taint node n1
// node.kubernetes.io/out-of-service=nodeshutdown:NoExecute` removes it, and its
// StatefulSet makes db-0 anew on another node.
package podgarbage
