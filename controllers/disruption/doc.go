// Package disruption says how many pods of each PodDisruptionBudget may be evicted.
//
// It reads PodDisruptionBudgets, the pods that they select, and the owners of those.
// It alone writes the status of a PodDisruptionBudget, but for one thing: whoever
// evicts takes one off disruptionsAllowed and enters the pod in disruptedPods, in a
// write conditioned on the budget being as it was read, before the pod is deleted.
//
//	expectedPods        the replicas of all owners of the pods; with minAvailable as a
//	                    number, the pods
//	desiredHealthy      minAvailable, or expectedPods - maxUnavailable; percentages are
//	                    of expectedPods and rounded up
//	currentHealthy      pods that are Ready, not Terminating, and not in disruptedPods
//	disruptionsAllowed  currentHealthy - desiredHealthy, never below 0
//
// It also takes the condition DisruptionTarget off a pod that is not Terminating two
// minutes after it was set: the eviction has failed or was called off. What a node's
// agent says of its own pods, and what pods that have ended say, stays.
//
// https://kubernetes.io/docs/tasks/run-application/configure-pdb/
//
// Invariants: between two looks, evictions can only use up what was allowed at the
// first: an entry of disruptedPods counts as an unhealthy pod until the pod is seen
// to be Terminating or gone, or for two minutes, after which it is taken for an
// eviction that failed. When the number of expected pods cannot be told, no
// disruption is allowed (condition DisruptionAllowed=False, SyncFailed).
//
// Example: a Deployment of three with minAvailable 2: one eviction is allowed; it
// brings disruptionsAllowed to 0, and the next is answered with 429 until the
// replacement is Ready.
package disruption
