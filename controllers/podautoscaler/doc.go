// Package podautoscaler sets the replicas of what a HorizontalPodAutoscaler targets by
// what its pods use, as Kubernetes' controller of that name does.
//
// Reads: HorizontalPodAutoscalers, their targets (Deployments, ReplicaSets,
// StatefulSets, ReplicationControllers), Pods, NodeFigures.
//
// Alone writes: of a HorizontalPodAutoscaler the status and the annotation
// headway.dev/rescales; of a target spec.replicas, which the syncer leaves alone as long
// as an autoscaler targets it; Events of horizontal-pod-autoscaler.
//
// Every 15 seconds, and when its spec changes, each autoscaler is looked at:
//
//	usage       what NodeFigures say of a pod, sum of its containers or one of them;
//	            none when the record is older than a minute
//	ready       of cpu only: a pod in its first 5 minutes counts when it is Ready and a
//	            whole window was measured since; later, unless it never was Ready
//	ratio       usage of the ready pods / target; of Utilization, relative to requests
//	proposal    ceil(ratio × ready pods); the current number within the tolerance (0.1).
//	            Pods without figures are taken to use all when the ratio is below one,
//	            nothing when it is above; pods that are not ready nothing when above;
//	            a ratio that crosses one thereby changes nothing
//	of several  the largest proposal; with one that cannot be told no scaling down
//	limits      stabilization (300 s down, 0 s up), then the policies of
//	            spec.behavior, then minReplicas and maxReplicas
//
// Replicas 0 switch it off, as in Kubernetes: there is no metric here by which it could
// begin again.
//
// https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/
//
// Invariants: spec.replicas, the status, the rescale among headway.dev/rescales and the
// Event are one transaction with the fence, on the target and the autoscaler as they
// were read: two leaders cannot both act on one state, and who scales by hand in
// between is seen first. replicas never leave minReplicas…maxReplicas by our doing.
//
// A new leader: what the policies count, the changes of the last half hour at most, it
// reads from the annotation, so that a failover lets nobody scale faster. The
// recommendations of the stabilization window are in memory only. It begins with the
// replicas that it finds, as Kubernetes' controller does after a restart: for one
// whole window it scales no further down than that, and (with a window for scaling up)
// no further up. So a failover can delay a change and never hastens one.
//
// Example: cpu at 60 % is wanted, three ready pods request 100m each and use 90m. The
// ratio is 1.5, the proposal ceil(1.5 × 3) = 5. The Deployment gets replicas 5, the
// Event says "New size: 5; reason: cpu resource utilization (percentage of request)
// above target".
package podautoscaler
