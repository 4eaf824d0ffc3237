// Package statefulset runs StatefulSets: pods with a name of their own each, which
// keep it, and a history of their template in ControllerRevisions.
//
// Reads: StatefulSets, Pods, ControllerRevisions, PersistentVolumeClaims,
// Namespaces; of ConfigMaps and Secrets only the provenance.
//
// Alone writes: a StatefulSet's status; the creation, deletion mark, controller
// reference and identity labels of its pods; its ControllerRevisions; the creation
// and the owners of the claims of its volumeClaimTemplates; Events of
// statefulset-controller.
//
// Invariants, in the state that a transaction is conditioned on:
//   - A pod is created only when no object has its name (R10). The object of a pod
//     that a node may run goes when the node's agent says that it has stopped, or
//     when an operator declares the node gone; the API server does not take it away
//     for --force either (server/storage/identity.go).
//   - With OrderedReady, a pod is created only when all before it are available,
//     and of those that are too many the last goes first, one at a time.
//   - A rolling update deletes an available pod only while fewer than
//     maxUnavailable are not (R6). Beyond maxWitnesses pods, what is available is
//     what the cache shows, since no transaction holds that many conditions.
//   - Each transaction is conditioned on the StatefulSet, and one that creates or
//     deletes pods writes it: of two decisions on one state one fails.
//
// Where a rollout would be stuck for ever in Kubernetes, this one goes on (R13,
// kubernetes/kubernetes#67250): a pod that is not ready and of a revision that is
// neither the last good nor the newest one is replaced at once; one of the last good
// revision after a minute, when no pod of the newest is on its way, as many at a time
// as maxUnavailable. Neither makes anything unavailable that is not so already. And
// of pods that are too many, one of a past revision holds back no other.
//
// Content that the template refers to (D13) is recorded on the revision: see
// podset.ChooseRevision.
//
// Example: db has 3 replicas of revision A. Revision B never gets ready: db-2 is
// replaced by one of B, and there the rollout waits. Revision C: db-2 is deleted at
// once, and made of C when its agent has said that it is gone; when that is
// available db-1 follows, then db-0.
package statefulset
