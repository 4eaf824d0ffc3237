package job

import (
	"fmt"
	"sort"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Back-off between a failure and the pod that replaces it: Kubernetes' figures.
const (
	backoffBase = 10 * time.Second
	backoffMax  = 10 * time.Minute
)

// observed is one Job and its pods, sorted by name. pods are those that the Job
// controls.
type observed struct {
	job  *batchv1.Job
	pods []*corev1.Pod
	// unrecorded says that the repository declares the Job and that its done
	// record is not written yet: without it the syncer would run the Job again
	// (R3), so its time to live does not end before.
	unrecorded bool
}

// Verb of a step.
type verb string

const (
	createPods verb = "create pods" // count of them
	removePod  verb = "remove pod"  // an active pod is not wanted any more; it counts as failed when it ends
	dropPod    verb = "drop pod"    // the same, without counting it
	countPod   verb = "count pod"   // its outcome is in the new status: release it
	deleteJob  verb = "delete job"  // its time to live has passed
)

// step is one change beside the Job's own.
type step struct {
	verb   verb
	pod    *corev1.Pod
	count  int
	reason string
}

// most bounds the pods of one plan, so that it fits one transaction with an event
// for each pod, the Job and the Job's own event.
const most = store.BulkObjects/2 - 2

// plan is what one look decided: the Job as it should be (nil: as it is), at most
// so many steps, whether there is more to do at once, and when to look again
// (0: on an event). The Job's status tells of exactly these steps.
type plan struct {
	job   *batchv1.Job
	steps []step
	more  bool
	after time.Duration
	why   string
}

// decide is the whole logic of Jobs.
func decide(o observed, now time.Time) plan {
	if end, ok := finished(o.job); ok {
		return decideFinished(o, end, now)
	}
	if o.job.DeletionTimestamp != nil {
		// Being deleted: the pods go with the owner, and their finalizers must not
		// hold them.
		return release(o.pods)
	}
	job := o.job.DeepCopy()
	if job.Spec.Selector == nil {
		api.SelectJob(job)
	}
	status := &job.Status
	if status.StartTime == nil {
		status.StartTime = &metav1.Time{Time: now}
	}
	p := plan{job: job}
	p.steps, p.more = count(o.pods, status, onlyFailed(job) || suspended(job))
	active, terminating := split(o.pods)
	if !p.more {
		// Only what is counted whole can be judged.
		active = p.advance(o.pods, active, terminating, now)
	}
	status.Active = int32(len(active)) + created(p.steps)
	status.Ready = ptr(ready(active))
	status.Terminating = ptr(int32(len(terminating)))
	return p
}

// advance decides what becomes of the Job and its active pods, and returns those
// that stay.
func (p *plan) advance(pods, active, terminating []*corev1.Pod, now time.Time) []*corev1.Pod {
	job, status := p.job, &p.job.Status
	if verdict, message := judge(job, pods, len(active), now); verdict != "" {
		mark(status, verdict, message, now)
		if len(active) == 0 && len(terminating) == 0 {
			end(status, verdict, message, now)
			if ttl := job.Spec.TTLSecondsAfterFinished; ttl != nil {
				p.wait(time.Duration(*ttl)*time.Second, "time to live after the end")
			}
			return nil
		}
		before := len(p.steps)
		stay := p.remove(removePod, active, "the Job ends: "+verdict)
		for _, s := range p.steps[before:] {
			if s.pod.Spec.NodeName == "" {
				status.Failed++ // it never ran and is gone at once: counted now
			}
		}
		return stay
	}
	if suspended(job) {
		return p.remove(dropPod, active, "the Job is suspended")
	}
	want := wanted(job, len(active), len(terminating))
	switch extra, missing := len(active)-want, want-len(active); {
	case extra > 0:
		sorted := leastAdvanced(active)
		active = append(p.remove(dropPod, sorted[:extra], "parallelism was lowered"), sorted[extra:]...)
	case missing > 0:
		if wait := backoff(job, pods, now); wait > 0 {
			p.wait(wait, "back-off after a failed pod")
			break
		}
		n := min(missing, most-len(p.steps))
		p.more = n < missing
		if n > 0 {
			p.steps = append(p.steps, step{verb: createPods, count: n, reason: fmt.Sprintf("%d of %d pods active", len(active), want)})
		}
	}
	if deadline := job.Spec.ActiveDeadlineSeconds; deadline != nil {
		left := status.StartTime.Add(time.Duration(*deadline) * time.Second).Sub(now)
		p.wait(max(left, time.Millisecond), "active deadline")
	}
	return active
}

// wait asks for the next look after d, or sooner.
func (p *plan) wait(d time.Duration, why string) {
	if p.after == 0 || d < p.after {
		p.after, p.why = d, why
	}
}

// remove plans the end of as many pods as there is room for and returns the rest.
func (p *plan) remove(how verb, pods []*corev1.Pod, reason string) (rest []*corev1.Pod) {
	n := min(len(pods), most-len(p.steps))
	for _, pod := range pods[:n] {
		p.steps = append(p.steps, step{verb: how, pod: pod, reason: reason})
	}
	p.more = n < len(pods)
	return pods[n:]
}

// created is how many pods the steps make.
func created(steps []step) int32 {
	var n int32
	for _, s := range steps {
		if s.verb == createPods {
			n += int32(s.count)
		}
	}
	return n
}

// decideFinished deletes a Job whose time to live has passed and releases pods
// that ended after it did.
func decideFinished(o observed, end time.Time, now time.Time) plan {
	p := release(o.pods)
	ttl := o.job.Spec.TTLSecondsAfterFinished
	if ttl == nil || o.job.DeletionTimestamp != nil {
		return p
	}
	left := end.Add(time.Duration(*ttl) * time.Second).Sub(now)
	if left > 0 {
		p.after, p.why = left, "time to live after the end"
		return p
	}
	if o.unrecorded {
		p.after, p.why = time.Second, "the done record is not written yet"
		return p
	}
	if len(p.steps) == 0 {
		p.steps = append(p.steps, step{verb: deleteJob, reason: "its time to live after the end has passed"})
	}
	return p
}

// wanted is how many active pods there should be now. Pods that are terminating
// keep their place only under podReplacementPolicy Failed.
func wanted(job *batchv1.Job, active, terminating int) int {
	want := int(*job.Spec.Parallelism)
	if job.Spec.Completions != nil {
		want = min(want, int(*job.Spec.Completions)-int(job.Status.Succeeded))
	} else if job.Status.Succeeded > 0 {
		// A work queue: once one pod has succeeded no new ones are made, and the
		// others may finish.
		want = min(want, active)
	}
	if onlyFailed(job) {
		want -= terminating
	}
	return max(want, 0)
}

// judge says whether the Job must end: the reason of its condition, or "".
func judge(job *batchv1.Job, pods []*corev1.Pod, active int, now time.Time) (reason, message string) {
	if c := condition(&job.Status, batchv1.JobFailureTarget); c != nil {
		return c.Reason, c.Message
	}
	if c := condition(&job.Status, batchv1.JobSuccessCriteriaMet); c != nil {
		return c.Reason, c.Message
	}
	limit := *job.Spec.BackoffLimit
	switch {
	case job.Status.Failed > limit:
		return batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"
	case restarts(job, pods) > limit, limit == 0 && restarts(job, pods) > 0:
		return batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"
	case pastDeadline(job, now):
		return batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"
	case job.Spec.Completions != nil && job.Status.Succeeded >= *job.Spec.Completions,
		job.Spec.Completions == nil && job.Status.Succeeded > 0 && active == 0:
		return batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods"
	}
	return "", ""
}

// restarts adds up the container restarts of pods with restartPolicy OnFailure,
// which count against the limit as failed pods do.
func restarts(job *batchv1.Job, pods []*corev1.Pod) int32 {
	if job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return 0
	}
	var n int32
	for _, p := range pods {
		if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			n += c.RestartCount
		}
	}
	return n
}

func pastDeadline(job *batchv1.Job, now time.Time) bool {
	d := job.Spec.ActiveDeadlineSeconds
	return d != nil && job.Status.StartTime != nil && !suspended(job) &&
		now.Sub(job.Status.StartTime.Time) >= time.Duration(*d)*time.Second
}

// backoff is how long to wait before replacing a failed pod: 10 s, doubled for
// each failure since the last success, at most 10 minutes, from the newest
// failure on.
func backoff(job *batchv1.Job, pods []*corev1.Pod, now time.Time) time.Duration {
	failures := 0
	var newest, success time.Time
	for _, p := range pods {
		if p.Status.Phase == corev1.PodSucceeded && endOf(p).After(success) {
			success = endOf(p)
		}
	}
	for _, p := range pods {
		if !failed(p, onlyFailed(job)) {
			continue
		}
		at := endOf(p)
		if at.Before(success) {
			continue
		}
		failures++
		if at.After(newest) {
			newest = at
		}
	}
	if failures == 0 {
		return 0
	}
	delay := backoffMax
	if failures < 8 {
		delay = min(backoffBase<<(failures-1), backoffMax)
	}
	// An end in the future is a clock that was set back: never wait longer than
	// the delay itself.
	return min(newest.Add(delay).Sub(now), delay)
}

// count adds finished pods that still carry the finalizer to the status and
// releases them. more says that there were too many for one plan.
func count(pods []*corev1.Pod, status *batchv1.JobStatus, onlyFailedPods bool) (steps []step, more bool) {
	for _, p := range pods {
		done := p.Status.Phase == corev1.PodSucceeded
		if !tracked(p) || !done && !failed(p, onlyFailedPods) {
			continue
		}
		if len(steps) == most {
			return steps, true
		}
		reason := "failed"
		if done {
			reason = "succeeded"
			status.Succeeded++
		} else {
			status.Failed++
		}
		steps = append(steps, step{verb: countPod, pod: p, reason: reason})
	}
	return steps, false
}

// release lets go of every pod: the Job is over and nothing is counted.
func release(pods []*corev1.Pod) plan {
	var p plan
	for _, pod := range pods {
		if !tracked(pod) {
			continue
		}
		if len(p.steps) == most {
			p.more = true
			break
		}
		p.steps = append(p.steps, step{verb: countPod, pod: pod, reason: "the Job is over"})
	}
	return p
}

// failed says whether a pod counts as failed. A pod that is being deleted does,
// unless podReplacementPolicy is Failed.
func failed(p *corev1.Pod, onlyFailedPods bool) bool {
	if p.Status.Phase == corev1.PodFailed {
		return true
	}
	return !onlyFailedPods && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded
}

// split parts the pods that are not finished into active and terminating ones.
func split(pods []*corev1.Pod) (active, terminating []*corev1.Pod) {
	for _, p := range pods {
		switch {
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case p.DeletionTimestamp != nil:
			terminating = append(terminating, p)
		default:
			active = append(active, p)
		}
	}
	return active, terminating
}

// leastAdvanced sorts pods by how little would be lost with them: unscheduled,
// pending, unready, then the youngest.
func leastAdvanced(pods []*corev1.Pod) []*corev1.Pod {
	rank := func(p *corev1.Pod) int {
		switch {
		case p.Spec.NodeName == "":
			return 0
		case p.Status.Phase != corev1.PodRunning:
			return 1
		case !isReady(p):
			return 2
		}
		return 3
	}
	out := append([]*corev1.Pod(nil), pods...)
	sort.SliceStable(out, func(i, j int) bool {
		if a, b := rank(out[i]), rank(out[j]); a != b {
			return a < b
		}
		return out[j].CreationTimestamp.Before(&out[i].CreationTimestamp)
	})
	return out
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func onlyFailed(job *batchv1.Job) bool {
	return job.Spec.PodReplacementPolicy != nil && *job.Spec.PodReplacementPolicy == batchv1.Failed
}

func ptr[T any](v T) *T { return &v }
