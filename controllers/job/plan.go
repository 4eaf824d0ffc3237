package job

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// observed is one Job and its pods, sorted by name.
type observed struct {
	job     *batchv1.Job
	pods    []*corev1.Pod // that the Job controls
	orphans []*corev1.Pod // that its selector matches and nobody controls
	closed  bool          // the namespace is being deleted: nothing may be created
	refused string        // why a pod of this template may not be created; "" when it may
	bound   int           // of steps, when it is fewer than usual; 0: as usual
	// unrecorded says that the repository declares the Job and that its done
	// record is not written yet: without it the syncer would run the Job again
	// (R3), so its time to live does not end before.
	unrecorded bool
}

// Verb of a step.
type verb string

const (
	createPod verb = "create pod"
	removePod verb = "remove pod" // an active pod is not wanted any more
	countPod  verb = "count pod"  // its outcome is in the new status: release it
	adoptPod  verb = "adopt pod"
	loosePod  verb = "loose pod"  // the selector does not match it any more
	deleteJob verb = "delete job" // its time to live has passed
)

// none is the index of a pod that has none.
const none = -1

// step is one change beside the Job's own. The last three are of createPod.
type step struct {
	verb              verb
	pod               *corev1.Pod
	reason            string
	index             int
	failures, ignored int // of the index before
}

// most bounds the steps of one plan, so that it fits one transaction with an event
// for each pod, the Job and the Job's own events.
const most = store.BulkObjects/2 - 3

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

// look is a plan in the making.
type look struct {
	plan
	observed
	now         time.Time
	limit       int           // of steps
	active      []*corev1.Pod // that stay
	terminating []*corev1.Pod // also those that this plan makes so
	done, lost  indexes       // of an Indexed Job: succeeded, and failed for good
	// kept are, by index, the failed pods that are counted only when their index
	// goes on or ends: their replacement needs to know how often it failed.
	kept map[int]*corev1.Pod
}

// decide is the whole logic of Jobs.
func decide(o observed, now time.Time) plan {
	if at, ok := finished(o.job); ok {
		return decideFinished(o, at, now)
	}
	if o.job.DeletionTimestamp != nil {
		// Being deleted: the pods go with the owner, and their finalizers must not
		// hold them.
		return release(o.pods)
	}
	l := &look{observed: o, now: now, limit: min(most, podset.PerTxn(&o.job.Spec.Template))}
	if o.bound > 0 {
		l.limit = min(l.limit, o.bound)
	}
	if l.claim() {
		return l.plan
	}
	job := o.job.DeepCopy()
	if job.Spec.Selector == nil {
		api.SelectJob(job)
	}
	l.plan.job, l.observed.job = job, job
	status := &job.Status
	if status.StartTime == nil && !suspended(job) {
		status.StartTime = &metav1.Time{Time: now}
	}
	status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{} // there never are any
	l.active, l.terminating = split(o.pods)
	l.failByPolicy()
	l.index()
	l.count()
	if !l.more {
		// Only what is counted whole can be judged.
		l.advance()
	}
	status.Active = int32(len(l.active)) + created(l.steps)
	status.Ready = ptr(ready(l.active))
	status.Terminating = ptr(int32(len(l.terminating)))
	return l.plan
}

// claim adopts the pods that the Job may have and lets go those that are not its
// own any more. It says whether there were any; they are looked at once they are
// sorted out.
func (l *look) claim() bool {
	selector, err := metav1.LabelSelectorAsSelector(l.job().Spec.Selector)
	if err != nil || l.job().Spec.Selector == nil {
		return false
	}
	for _, p := range l.pods {
		if !selector.Matches(labels.Set(p.Labels)) {
			l.step(loosePod, p, "the selector does not match it any more")
		}
	}
	for _, p := range l.orphans {
		// A pod that ended is adopted only if it is not counted yet.
		if p.DeletionTimestamp == nil && selector.Matches(labels.Set(p.Labels)) && (!podset.Terminal(p) || tracked(p)) {
			l.step(adoptPod, p, "the selector matches it and nobody controls it")
		}
	}
	l.more = l.more || len(l.steps) > 0
	return len(l.steps) > 0
}

func (l *look) job() *batchv1.Job { return l.observed.job }

// step plans a step for a pod if there is room, and says whether there was.
func (l *look) step(v verb, p *corev1.Pod, reason string) bool {
	if len(l.steps) >= l.limit {
		l.more = true
		return false
	}
	l.steps = append(l.steps, step{verb: v, pod: p, reason: reason, index: none})
	return true
}

// advance decides what becomes of the Job and its active pods.
func (l *look) advance() {
	job, status := l.job(), &l.job().Status
	if verdict(status) == nil {
		if t, reason, message := l.judge(); reason != "" {
			set(status, t, corev1.ConditionTrue, reason, message, l.now)
		}
	}
	if v := verdict(status); v != nil {
		l.conclude(*v)
		return
	}
	if suspended(job) {
		if set(status, batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", l.now) {
			status.StartTime = nil // the deadline counts from when it is resumed
		}
		l.drop(l.active, "the Job is suspended")
		return
	}
	if set(status, batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", l.now) {
		status.StartTime = &metav1.Time{Time: l.now}
	}
	l.scale()
	if deadline := job.Spec.ActiveDeadlineSeconds; deadline != nil {
		left := status.StartTime.Add(api.Seconds(*deadline)).Sub(l.now)
		l.wait(max(left, time.Millisecond), "active deadline")
	}
}

// conclude lets the pods of a Job whose fate is decided go, and ends it when all
// have. When it fails, every pod that did not end counts as failed.
func (l *look) conclude(v batchv1.JobCondition) {
	status := &l.job().Status
	for _, i := range slices.Sorted(maps.Keys(l.kept)) { // no replacement comes
		if !l.step(countPod, l.kept[i], "failed") {
			return
		}
		l.countFailure(l.kept[i])
	}
	if len(l.active)+len(l.terminating) == 0 {
		end(status, v, l.now)
		if ttl := l.job().Spec.TTLSecondsAfterFinished; ttl != nil {
			l.wait(time.Duration(*ttl)*time.Second, "time to live after the end")
		}
		return
	}
	failing := v.Type == batchv1.JobFailureTarget
	for _, p := range l.terminating {
		if tracked(p) && !failed(p, onlyFailed(l.job())) && l.step(countPod, p, "the Job ends: "+v.Reason) && failing {
			l.countFailure(p)
		}
	}
	gone := l.drop(l.active, "the Job ends: "+v.Reason)
	for _, p := range gone {
		if tracked(p) && failing {
			l.countFailure(p)
		}
	}
}

// drop plans the end of as many active pods as there is room for, and returns
// them. They are released, so nothing counts them later.
func (l *look) drop(pods []*corev1.Pod, reason string) (gone []*corev1.Pod) {
	going := map[*corev1.Pod]bool{}
	for _, p := range pods {
		if !l.step(removePod, p, reason) {
			break
		}
		gone, going[p] = append(gone, p), true
		if p.Spec.NodeName != "" {
			l.terminating = append(l.terminating, p)
		}
	}
	var stay []*corev1.Pod
	for _, p := range l.active {
		if !going[p] {
			stay = append(stay, p)
		}
	}
	l.active = stay
	return gone
}

// wait asks for the next look after d, or sooner.
func (p *plan) wait(d time.Duration, why string) {
	if p.after == 0 || d < p.after {
		p.after, p.why = d, why
	}
}

// created is how many pods the steps make.
func created(steps []step) (n int32) {
	for _, s := range steps {
		if s.verb == createPod {
			n++
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

// judge says whether the Job must end: the condition, its reason and message; no
// reason when it goes on. Failures come before success.
func (l *look) judge() (t batchv1.JobConditionType, reason, message string) {
	job, status := l.job(), &l.job().Status
	limit, again := *job.Spec.BackoffLimit, restarts(job, l.pods)
	failures := status.Failed
	for _, p := range l.kept {
		if rule(job.Spec.PodFailurePolicy, p).counts() {
			failures++
		}
	}
	fail, succeed := batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet
	switch {
	case failures > limit, again > 0 && again >= limit:
		return fail, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"
	case l.pastDeadline():
		return fail, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"
	case job.Spec.MaxFailedIndexes != nil && l.lost.total() > int(*job.Spec.MaxFailedIndexes):
		return fail, batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"
	case len(l.lost) > 0 && l.lost.union(l.done).total() >= int(*job.Spec.Completions):
		return fail, batchv1.JobReasonFailedIndexes, "Job has failed indexes"
	}
	if indexed(job) {
		if message, ok := enough(job.Spec.SuccessPolicy, int(*job.Spec.Completions), l.done); ok {
			return succeed, batchv1.JobReasonSuccessPolicy, message
		}
	}
	if job.Spec.Completions != nil && status.Succeeded >= *job.Spec.Completions ||
		job.Spec.Completions == nil && status.Succeeded > 0 && len(l.active) == 0 {
		return succeed, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods"
	}
	return "", "", ""
}

// pastDeadline says whether the Job has been active for too long. A Job that was
// suspended has not been active since.
func (l *look) pastDeadline() bool {
	d, start := l.job().Spec.ActiveDeadlineSeconds, l.job().Status.StartTime
	return d != nil && start != nil && !suspended(l.job()) && condition(&l.job().Status, batchv1.JobSuspended) == nil &&
		l.now.Sub(start.Time) >= api.Seconds(*d)
}

// scale makes or ends pods so that there are as many as there should be.
func (l *look) scale() {
	job := l.job()
	want := l.wanted()
	surplus := l.misplaced()
	if extra := len(l.active) - want - len(surplus); extra > 0 {
		surplus = append(surplus, leastAdvanced(without(l.active, surplus))[:extra]...)
	}
	if len(surplus) > 0 {
		l.drop(surplus, "parallelism was lowered or an index is taken twice")
		return
	}
	missing := want - len(l.active)
	if onlyFailed(job) {
		missing -= len(l.terminating) // they keep their place until they have ended
	}
	if missing <= 0 || l.closed || l.refused != "" {
		return
	}
	if !perIndex(job) {
		if wait := l.backoff(); wait > 0 {
			l.wait(wait, "back-off after a failed pod")
			return
		}
	}
	reason := fmt.Sprintf("%d of %d pods active", len(l.active), want)
	if !indexed(job) {
		for ; missing > 0 && l.step(createPod, nil, reason); missing-- {
		}
		return
	}
	l.fill(missing, reason)
}

// wanted is how many active pods there should be now.
func (l *look) wanted() int {
	job, want := l.job(), int(*l.job().Spec.Parallelism)
	if job.Spec.Completions != nil {
		want = min(want, int(*job.Spec.Completions)-int(job.Status.Succeeded))
	} else if job.Status.Succeeded > 0 {
		// A work queue: once one pod has succeeded no new ones are made, and the
		// others may finish.
		want = len(l.active)
	}
	return max(want, 0)
}

func ptr[T any](v T) *T { return &v }
