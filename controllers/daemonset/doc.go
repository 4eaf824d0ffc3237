// Package daemonset runs DaemonSets: one pod on each node that their template suits,
// and a history of the template in ControllerRevisions.
//
// Reads: DaemonSets, Pods, Nodes, ControllerRevisions, Namespaces; of ConfigMaps and
// Secrets only the provenance.
//
// Alone writes: a DaemonSet's status; the creation, deletion mark, controller
// reference and revision label of its pods; its ControllerRevisions; Events of
// daemonset-controller.
//
// A pod is made for a node by a required node affinity on its metadata.name, and
// bound by the scheduler like any other. A node suits when the template's nodeName,
// nodeSelector and required affinity match it and the pod tolerates its NoSchedule
// and NoExecute taints; beside the template's it tolerates not-ready, unreachable,
// disk-, memory- and PID-pressure, unschedulable and, with hostNetwork,
// network-unavailable. A pod stays on a node that stops suiting by a NoSchedule
// taint alone.
//
// Invariants, in the state that a transaction is conditioned on:
//   - Without maxSurge a pod is created only where none is, being deleted or not,
//     but for one that has ended and is on its way. With it there are at most an old
//     one and a new one.
//   - A rolling update deletes an available pod only while fewer than maxUnavailable
//     nodes lack one (R6), or when its successor is available. Beyond maxWitnesses
//     pods, what is available is what the cache shows, since no transaction holds
//     that many conditions.
//   - Each transaction is conditioned on the DaemonSet, and one that creates or
//     deletes pods writes it: of two decisions on one state one fails.
//
// Pods that failed are deleted, and so replaced, at once the first time and after
// that with a back-off per node from one second to fifteen minutes. It is forgotten
// when the leader changes.
//
// Content that the template refers to (D13) is recorded on the revision: see
// podset.ChooseRevision.
//
// Example: 3 nodes, maxUnavailable 1, a new template. The pod of n1 is deleted; when
// its agent has said that it is gone one of the new revision is made for n1; when
// that is available n2 follows, then n3.
package daemonset
