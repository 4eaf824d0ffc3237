// Package job runs Jobs: so many pods at once until so many have succeeded, or
// until too many have failed or too much time has passed.
//
// It reads Jobs, the pods that they own or could adopt, and Namespaces. It alone
// writes a Job's status, the generated selector and labels of a Job that brought
// none, and it alone creates, adopts and lets go a Job's pods and takes their
// tracking finalizer away.
//
// Invariants. R7: every transaction that creates a pod also writes the Job, and
// every other is conditioned on the Job it was decided from; so a decision from an
// old view fails, and there are never more than parallelism active pods. A
// finished pod is counted in the same transaction that takes away its finalizer,
// so it counts exactly once however often the process dies, and
// status.uncountedTerminatedPods, which other clusters need for that, stays empty.
//
// An Indexed Job with backoffLimitPerIndex counts a failed pod only when its
// index goes on: until the replacement is there, the failed pod is what knows how
// often the index failed.
//
// Example: a Job with completions 3 and parallelism 2 has two pods made in the
// transaction that sets its start time; when one succeeds, one transaction adds
// one to status.succeeded, releases that pod and makes the third.
//
// Rules: https://kubernetes.io/docs/concepts/workloads/controllers/job/
package job
