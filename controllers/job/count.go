package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// failByPolicy marks the Job as failing when a failed pod fits a FailJob rule,
// before the pod is released and may go.
func (l *look) failByPolicy() {
	job := l.job()
	if verdict(&job.Status) != nil {
		return
	}
	for _, p := range l.pods {
		if !failed(p, onlyFailed(job)) {
			continue
		}
		if r := rule(job.Spec.PodFailurePolicy, p); r.action == batchv1.PodFailurePolicyActionFailJob {
			set(&job.Status, batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonPodFailurePolicy, r.message, l.now)
			return
		}
	}
}

// index works out which indexes succeeded and which failed for good. Sets can be
// added to twice, so this may run ahead of releasing the pods.
func (l *look) index() {
	job, status := l.job(), &l.job().Status
	if !indexed(job) {
		return
	}
	completions := int(*job.Spec.Completions)
	var done, lost []int
	for _, p := range l.pods {
		i, ok := indexOf(job, p)
		switch {
		case !ok || !tracked(p):
		case p.Status.Phase == corev1.PodSucceeded:
			done = append(done, i)
		case perIndex(job) && failed(p, onlyFailed(job)) && losesIndex(job, p):
			lost = append(lost, i)
		}
	}
	l.done = parseIndexes(status.CompletedIndexes, completions).with(done...)
	status.CompletedIndexes = l.done.String()
	status.Succeeded = int32(l.done.total())
	if !perIndex(job) {
		return
	}
	if status.FailedIndexes != nil {
		l.lost = parseIndexes(*status.FailedIndexes, completions)
	}
	l.lost = l.lost.with(lost...)
	status.FailedIndexes = ptr(l.lost.String())
	l.keep()
}

// losesIndex says whether a failed pod is its index's last.
func losesIndex(job *batchv1.Job, p *corev1.Pod) bool {
	r := rule(job.Spec.PodFailurePolicy, p)
	before, _ := failuresOf(p)
	return r.action == batchv1.PodFailurePolicyActionFailIndex || r.counts() && before >= int(*job.Spec.BackoffLimitPerIndex)
}

// keep finds, for each index that has to go on, the failed pod that says how often
// it failed.
func (l *look) keep() {
	job := l.job()
	l.kept = map[int]*corev1.Pod{}
	if verdict(&job.Status) != nil {
		return
	}
	running := indexes(nil).with(l.indexesOf(l.active)...)
	for _, p := range l.pods {
		i, ok := indexOf(job, p)
		if !ok || !tracked(p) || !failed(p, onlyFailed(job)) || l.done.has(i) || l.lost.has(i) || running.has(i) {
			continue
		}
		if last := l.kept[i]; last == nil || later(p, last) {
			l.kept[i] = p
		}
	}
}

// later says whether the first of two failed pods of an index knows of more.
func later(a, b *corev1.Pod) bool {
	ac, ai := failuresOf(a)
	bc, bi := failuresOf(b)
	if ac+ai != bc+bi {
		return ac+ai > bc+bi
	}
	return endOf(a).After(endOf(b))
}

// count adds the pods that ended and still carry the finalizer to the status, and
// releases them.
func (l *look) count() {
	job, status := l.job(), &l.job().Status
	for _, p := range l.pods {
		succeeded := p.Status.Phase == corev1.PodSucceeded
		if !tracked(p) || !succeeded && !failed(p, onlyFailed(job)) {
			continue
		}
		if i, ok := indexOf(job, p); ok && l.kept[i] == p {
			continue
		}
		reason := "failed"
		if succeeded {
			reason = "succeeded"
		}
		if !l.step(countPod, p, reason) {
			return
		}
		switch {
		case !succeeded:
			l.countFailure(p)
		case !indexed(job):
			status.Succeeded++
		}
	}
}

// countFailure adds a pod to the failed ones, unless the policy ignores it or it
// has no index that the Job knows.
func (l *look) countFailure(p *corev1.Pod) {
	if _, ok := indexOf(l.job(), p); indexed(l.job()) && !ok {
		return
	}
	if rule(l.job().Spec.PodFailurePolicy, p).counts() {
		l.job().Status.Failed++
	}
}

// misplaced are the active pods of an Indexed Job that have no index that the Job
// knows, or one that a further advanced pod has.
func (l *look) misplaced() (out []*corev1.Pod) {
	if !indexed(l.job()) {
		return nil
	}
	taken := map[int]bool{}
	sorted := leastAdvanced(l.active)
	slices.Reverse(sorted)
	for _, p := range sorted {
		if i, ok := indexOf(l.job(), p); ok && !taken[i] {
			taken[i] = true
			continue
		}
		out = append(out, p)
	}
	return out
}

// fill makes pods for the lowest indexes that have none, as far as their back-off
// is over.
func (l *look) fill(missing int, reason string) {
	job := l.job()
	taken := l.done.union(l.lost).with(l.indexesOf(l.active)...)
	if onlyFailed(job) {
		taken = taken.with(l.indexesOf(l.terminating)...)
	}
	for i := range taken.gaps(int(*job.Spec.Completions)) {
		if missing == 0 {
			return
		}
		s := step{verb: createPod, reason: reason, index: i}
		if before := l.kept[i]; before != nil {
			if wait := indexBackoff(before, l.now); wait > 0 {
				l.wait(wait, "back-off after the failed pod of an index")
				continue
			}
			s.failures, s.ignored = failuresOf(before)
			if rule(job.Spec.PodFailurePolicy, before).counts() {
				s.failures++
			} else {
				s.ignored++
			}
		}
		if len(l.steps) >= l.limit {
			l.more = true
			return
		}
		l.steps = append(l.steps, s)
		missing--
	}
}

// indexesOf are the indexes of pods that the Job knows.
func (l *look) indexesOf(pods []*corev1.Pod) (out []int) {
	for _, p := range pods {
		if i, ok := indexOf(l.job(), p); ok {
			out = append(out, i)
		}
	}
	return out
}

// without is pods less those of another list.
func without(pods, less []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return slices.Contains(less, p) })
}
