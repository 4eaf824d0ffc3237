package cronjob

import (
	"errors"
	"fmt"
	"sort"
	"time"

	"headway.dev/headway/api"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lookAgain bounds the wait for the next slot, so that a clock that is set
// forward is noticed within a minute.
const lookAgain = time.Minute

// observed is one CronJob and the Jobs that it controls, sorted by name.
type observed struct {
	cron *batchv1.CronJob
	jobs []*batchv1.Job
	// taken are the slots of CronJobs of its name that have had their Job; nil: none.
	taken *api.SlotRecord
	// closed says that the namespace is being deleted: no Job may be created.
	closed bool
}

type verb string

const (
	createJob verb = "create job" // for the slot
	removeJob verb = "remove job"
	report    verb = "report" // only an event
)

// step is one change beside the CronJob's own status.
type step struct {
	verb    verb
	job     *batchv1.Job // for removeJob
	slot    time.Time    // for createJob
	reason  string       // of the event: SuccessfulDelete, JobAlreadyActive, MissSchedule, …
	message string
	warn    bool
}

type plan struct {
	cron  *batchv1.CronJob // as it should be; nil: as it is
	steps []step
	after time.Duration // until the next slot; 0: nothing is due by time
	fatal error         // the schedule cannot be read: only a commit can mend it
}

// decide is the whole logic of CronJobs.
func decide(o observed, now time.Time) plan {
	if o.cron.DeletionTimestamp != nil {
		return plan{}
	}
	cron := o.cron.DeepCopy()
	p := plan{cron: cron}
	active := activeJobs(o.jobs)
	note(cron, o.jobs)
	p.steps = history(cron, o.jobs)

	schedule, err := parse(cron)
	if err != nil {
		p.fatal = err
		reason := "UnparseableSchedule"
		if errors.Is(err, errZone) {
			reason = "UnknownTimeZone"
		}
		p.steps = append(p.steps, step{verb: report, reason: reason, message: err.Error(), warn: true})
		setActive(cron, active)
		return p
	}
	if o.closed || cron.Spec.Suspend != nil && *cron.Spec.Suspend {
		setActive(cron, active)
		return p
	}
	p.after = wait(schedule, now)
	slot, due, missed := dueSlot(cron, schedule, now)
	if missed && skip(cron, slot) {
		p.steps = append(p.steps, step{verb: report, reason: "MissSchedule", warn: true,
			message: fmt.Sprintf("Missed scheduled time to start a job: %s", slot.UTC().Format(time.RFC1123Z))})
	}
	if due {
		switch {
		case o.taken != nil && o.taken.Has(slot):
			cron.Status.LastScheduleTime = &metav1.Time{Time: slot} // in a life of which this CronJob knows nothing (R5)
		case cron.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(active) > 0:
			if skip(cron, slot) {
				p.steps = append(p.steps, step{verb: report, reason: "JobAlreadyActive",
					message: "Not starting job because prior execution is running and concurrency policy is Forbid"})
			}
		default:
			if cron.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent {
				for _, j := range active {
					p.steps = append(p.steps, step{verb: removeJob, job: j, reason: "SuccessfulDelete", message: "Deleted job " + j.Name})
				}
				active = nil
			}
			p.steps = append(p.steps, step{verb: createJob, slot: slot, reason: "SuccessfulCreate", message: "Created job " + jobName(cron, slot)})
			cron.Status.LastScheduleTime = &metav1.Time{Time: slot}
		}
	}
	setActive(cron, active)
	return p
}

// skipped is the annotation that remembers the slot that was last said to be
// skipped, so that it is said once.
const skipped = "headway.dev/skipped-slot"

// skip remembers that the slot is skipped and reports whether that is new.
func skip(cron *batchv1.CronJob, slot time.Time) bool {
	at := slot.UTC().Format(time.RFC3339)
	if cron.Annotations[skipped] == at {
		return false
	}
	if cron.Annotations == nil {
		cron.Annotations = map[string]string{}
	}
	cron.Annotations[skipped] = at
	return true
}

// dueSlot finds the newest slot that is due and not taken. missed says that it
// is, but too old for startingDeadlineSeconds.
func dueSlot(cron *batchv1.CronJob, s schedule, now time.Time) (slot time.Time, due, missed bool) {
	since := cron.CreationTimestamp.Time
	if last := cron.Status.LastScheduleTime; last != nil && last.After(since) {
		since = last.Time
	}
	slot, ok := newest(s, since, now)
	if !ok {
		return time.Time{}, false, false
	}
	if d := cron.Spec.StartingDeadlineSeconds; d != nil && now.Sub(slot) > api.Seconds(*d) {
		return slot, false, true
	}
	return slot, true, false
}

// newest returns the last slot in (since, now]. It is found by bisection on
// Next, so the cost does not grow with the number of slots missed.
func newest(s schedule, since, now time.Time) (time.Time, bool) {
	first := s.Next(since)
	if first.IsZero() || first.After(now) {
		return time.Time{}, false
	}
	// Invariant: there is a slot in (low, now], there is none in (high, now].
	low, high := since, now
	for high.Sub(low) > time.Second {
		mid := low.Add(high.Sub(low) / 2)
		if next := s.Next(mid); next.IsZero() || next.After(now) {
			high = mid
		} else {
			low = mid
		}
	}
	return s.Next(low), true
}

// wait is how long until the next slot, at most lookAgain.
func wait(s schedule, now time.Time) time.Duration {
	next := s.Next(now)
	if next.IsZero() {
		return 0
	}
	return min(next.Sub(now), lookAgain)
}

// jobName is the name of the Job of a slot: Kubernetes' own form, the CronJob's
// name and the slot in minutes since 1970.
func jobName(cron *batchv1.CronJob, slot time.Time) string {
	return fmt.Sprintf("%s-%d", cron.Name, slot.Unix()/60)
}

// history removes finished Jobs beyond the limits, oldest first.
func history(cron *batchv1.CronJob, jobs []*batchv1.Job) []step {
	var done, failed []*batchv1.Job
	for _, j := range jobs {
		if j.DeletionTimestamp != nil {
			continue
		}
		switch outcome(j) {
		case batchv1.JobComplete:
			done = append(done, j)
		case batchv1.JobFailed:
			failed = append(failed, j)
		}
	}
	return append(beyond(done, cron.Spec.SuccessfulJobsHistoryLimit), beyond(failed, cron.Spec.FailedJobsHistoryLimit)...)
}

func beyond(jobs []*batchv1.Job, limit *int32) []step {
	if limit == nil || len(jobs) <= int(*limit) {
		return nil
	}
	sort.SliceStable(jobs, func(i, j int) bool { return startOf(jobs[i]).Before(startOf(jobs[j])) })
	var steps []step
	for _, j := range jobs[:len(jobs)-int(*limit)] {
		steps = append(steps, step{verb: removeJob, job: j, reason: "SuccessfulDelete", message: "Deleted job " + j.Name})
	}
	return steps
}

func startOf(j *batchv1.Job) time.Time {
	if j.Status.StartTime != nil {
		return j.Status.StartTime.Time
	}
	return j.CreationTimestamp.Time
}

func activeJobs(jobs []*batchv1.Job) []*batchv1.Job {
	var out []*batchv1.Job
	for _, j := range jobs {
		if outcome(j) == "" && j.DeletionTimestamp == nil {
			out = append(out, j)
		}
	}
	return out
}

// outcome is the Job's final condition, or "".
func outcome(j *batchv1.Job) batchv1.JobConditionType {
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// note keeps the time of the last success.
func note(cron *batchv1.CronJob, jobs []*batchv1.Job) {
	for _, j := range jobs {
		if outcome(j) == batchv1.JobComplete && j.Status.CompletionTime != nil &&
			(cron.Status.LastSuccessfulTime == nil || j.Status.CompletionTime.After(cron.Status.LastSuccessfulTime.Time)) {
			cron.Status.LastSuccessfulTime = j.Status.CompletionTime.DeepCopy()
		}
	}
}

func setActive(cron *batchv1.CronJob, jobs []*batchv1.Job) {
	cron.Status.Active = nil
	for _, j := range jobs {
		cron.Status.Active = append(cron.Status.Active, reference(j))
	}
}

func reference(j *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID, ResourceVersion: j.ResourceVersion}
}
