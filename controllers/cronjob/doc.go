// Package cronjob makes a Job for each due slot of a CronJob.
//
// It reads CronJobs and the Jobs that they own. It alone writes a CronJob's
// status, and it alone creates and removes a CronJob's Jobs.
//
// Invariant R5, one slot makes at most one Job: the transaction that creates the
// Job also moves status.lastScheduleTime to the slot, is conditioned on the
// CronJob it was decided from, and creates a name that is made from the slot.
// lastScheduleTime only moves forward, so a clock that is set back, a restart or
// another leader finds the slot already taken.
//
// Example: "*/5 * * * *" at 12:07 with a last slot of 11:55 makes one Job, for
// 12:05; 12:00 was missed and is not made up for.
//
// Rules: https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/
package cronjob
