// Package replicaset keeps as many pods of a template as a ReplicaSet asks for.
//
// It works the ReplicaSets that no Deployment controls. A Deployment's own sets,
// with their pods and their status, are worked by controllers/deployment in the
// Deployment's transactions, so that a rolling update is decided and done on one
// state (R6). Each ReplicaSet has one writer at any time, which its controller
// reference names.
//
// ReplicationControllers, the older kind that asks for the same, are worked by the
// same code in a loop of their own (NewReplication): kind says what differs.
//
// Reads: ReplicaSets, ReplicationControllers, Pods, Namespaces.
//
// Alone writes, of those: status; their pods' creation, deletion mark and
// controller reference; Events of replicaset-controller and replication-controller.
//
// Invariants: every transaction that creates, deletes, adopts or releases pods
// also writes the ReplicaSet, so two decisions on one state cannot both happen, and
// a decision on an old cache conflicts. Pods that ended (Succeeded, Failed) are
// replaced and left for people to look at; controllers/garbage bounds them.
//
// Example: replicas 3, one pod Failed, two ready. The plan creates one pod and
// writes status replicas 3, readyReplicas 2, in one transaction.
package replicaset
