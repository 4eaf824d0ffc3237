// Package cronjob makes a Job for each due slot of a CronJob.
//
// It reads CronJobs, the Jobs that they own, and SlotRecords. It alone writes a
// CronJob's status and the SlotRecords, and it alone creates and removes a CronJob's
// Jobs.
//
// Invariant R5, one slot makes at most one Job: the transaction that creates the
// Job also moves status.lastScheduleTime to the slot, is conditioned on the
// CronJob it was decided from, and creates a name that is made from the slot.
// lastScheduleTime only moves forward, so a clock that is set back, a restart or
// another leader finds the slot already taken. The same transaction notes the slot in
// the SlotRecord of the CronJob's namespace and name, and a slot that stands there is
// passed over. So the slot stays taken when the CronJob is deleted and declared again,
// when its status is lost, and when its Job is deleted, whatever the clock says.
// A record goes when its CronJob is gone and there are keptGone newer ones of that
// kind; not by its age, which a clock that jumps forward would give to all of them.
//
// The newest due slot is found in a number of steps that grows with the logarithm
// of the time since the last one, so a CronJob that was held up for a year is as
// cheap as any, and is never given up (kubernetes/kubernetes#42649).
//
// When a time zone's clock is set forward, a slot in the hour that is left out is
// left out; when it is set back, a slot in the hour that comes twice comes twice,
// as two slots. Kubernetes does the same.
//
// Example: "*/5 * * * *" at 12:07 with a last slot of 11:55 makes one Job, for
// 12:05; 12:00 was missed and is not made up for.
//
// Rules: https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/
package cronjob
