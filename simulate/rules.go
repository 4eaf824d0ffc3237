package simulate

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// rules checks DESIGN's rules on what is really in the store, with its own notion of
// each: it uses none of the product's decisions.
type rules struct {
	w       *World
	checked map[string]int

	slots  map[slot]types.UID      // R5: the Job of each slot
	parent map[types.UID]types.UID // R6: the Deployment of each ReplicaSet there ever was
	jobs   map[types.UID]*tally    // R7
	blind  map[types.UID]bool      // pods made by who did not know of a quota that there was
	looked time.Time               // R9: at what should have been started again
}

// slot is one time of one CronJob.
type slot struct {
	cron types.UID
	at   string
}

// tally is what has happened to a Job's pods.
type tally struct {
	succeeded map[types.UID]bool // pods that have
	ended     map[types.UID]bool // pods that have succeeded or failed, are to be stopped, or are gone
	stopped   bool               // a pod was to be stopped: it counts as failed, however it ends
}

func newRules(w *World) *rules {
	return &rules{w: w, checked: map[string]int{}, slots: map[slot]types.UID{}, parent: map[types.UID]types.UID{}, jobs: map[types.UID]*tally{}, blind: map[types.UID]bool{}, looked: time.Now()}
}

// leads says whether a part of a server writes as the leader.
func leads(who actor) bool {
	return who.server != nil && who.part != "election" && who.part != "push" && who.part != "kubectl" && !strings.HasPrefix(who.part, "session-")
}

// fenced checks R4 for a write that took effect.
func (r *rules) fenced(x *sent) {
	if !leads(x.who) {
		return
	}
	r.checked["R4"]++
	if name, fence := r.w.leader(); name != x.who.server.name || fence != x.fence {
		r.w.fail("R4", "%s wrote in a term of fence %d, while %q leads with fence %d", x.who, x.fence, name, fence)
	}
}

// count is how many pods a Deployment has.
type count struct{ active, available int }

// count counts a Deployment's pods; whether one is available is by its own set's
// minReadySeconds, as in Kubernetes.
func (r *rules) count(d *appsv1.Deployment, now time.Time) (c count) {
	for _, owned := range r.w.truth.Owned(d.UID) {
		set, ok := owned.(*appsv1.ReplicaSet)
		if !ok {
			continue
		}
		for _, o := range r.w.truth.Owned(set.UID) {
			if pod, ok := o.(*corev1.Pod); ok && active(pod) {
				c.active++
				if available(pod, set.Spec.MinReadySeconds, now) {
					c.available++
				}
			}
		}
	}
	return c
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func active(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !ended(pod) }

// available says whether a pod has been ready for long enough.
func available(pod *corev1.Pod, seconds int32, now time.Time) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return seconds == 0 || !c.LastTransitionTime.Add(time.Duration(seconds)*time.Second).After(now)
		}
	}
	return false
}

// after checks what has changed in one revision or more; x is nil when nobody wrote it.
func (r *rules) after(x *sent, news []store.Event) {
	for _, e := range news {
		r.remember(e)
	}
	if x == nil {
		return
	}
	r.withinQuota(x, news)
	switch x.who.part {
	case "cronjob":
		for _, e := range news {
			r.slotOnce(e)
		}
	case "deployment":
		r.withinLimits(x, news)
	case "job":
		r.withinParallelism(news)
	case "disruption":
		r.withinBudget(x, news)
	case "scheduler":
		for _, e := range news {
			r.fits(e)
		}
	case "syncer":
		for _, e := range news {
			r.newest(x, e)
		}
	}
}

// remember keeps what later checks need.
func (r *rules) remember(e store.Event) {
	switch o := last(e).(type) {
	case *appsv1.ReplicaSet:
		if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
			r.parent[o.UID] = owner.UID
		}
	case *corev1.Pod:
		r.replaced(e)
		owner := metav1.GetControllerOfNoCopy(o)
		if owner == nil || owner.Kind != "Job" {
			return
		}
		t := r.tally(owner.UID)
		if e.Deleted() || !active(o) {
			t.ended[o.UID] = true
		}
		t.stopped = t.stopped || o.DeletionTimestamp != nil
		if o.Status.Phase == corev1.PodSucceeded {
			t.succeeded[o.UID] = true
		}
	}
}

func (r *rules) tally(job types.UID) *tally {
	t := r.jobs[job]
	if t == nil {
		t = &tally{succeeded: map[types.UID]bool{}, ended: map[types.UID]bool{}}
		r.jobs[job] = t
	}
	return t
}

// last is an object as it is, or as it was before it went.
func last(e store.Event) api.Object {
	if e.Deleted() {
		return e.Previous
	}
	return e.Object
}

func created(e store.Event) bool { return e.Previous == nil && e.Object != nil }

// slotOnce is R5.
func (r *rules) slotOnce(e store.Event) {
	job, ok := e.Object.(*batchv1.Job)
	if !ok || !created(e) {
		return
	}
	owner := metav1.GetControllerOfNoCopy(job)
	if owner == nil {
		return
	}
	r.checked["R5"]++
	key := slot{owner.UID, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]}
	if was, taken := r.slots[key]; taken && was != job.UID {
		r.w.fail("R5", "CronJob %s/%s has two Jobs for its slot %s: the second is %s", job.Namespace, owner.Name, key.at, job.Name)
	}
	r.slots[key] = job.UID
}

// withinLimits is R6.
func (r *rules) withinLimits(x *sent, news []store.Event) {
	type change struct{ created, deleted, available int }
	changes := map[types.UID]*change{}
	for _, e := range news {
		pod, ok := last(e).(*corev1.Pod)
		if !ok {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil || r.parent[owner.UID] == "" {
			continue
		}
		deployment := r.parent[owner.UID]
		c := changes[deployment]
		if c == nil {
			c = &change{}
			changes[deployment] = c
		}
		was, _ := e.Previous.(*corev1.Pod)
		switch {
		case created(e):
			c.created++
		case was != nil && active(was) && (e.Deleted() || pod.DeletionTimestamp != nil):
			c.deleted++
			if set := r.set(pod.Namespace, owner); set != nil && available(was, set.Spec.MinReadySeconds, x.at) {
				c.available++
			}
		}
	}
	for uid, c := range changes {
		d := r.deployment(uid)
		if d == nil || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
			continue
		}
		r.checked["R6"]++
		desired, surge, unavailable := limits(d)
		left := r.count(d, x.at)
		if c.created > 0 && left.active > desired+surge {
			r.w.fail("R6", "deployment %s: a step that created %d pods left %d, desired %d and maxSurge %d", d.Name, c.created, left.active, desired, surge)
		}
		if c.available > 0 && left.available < desired-unavailable {
			r.w.fail("R6", "deployment %s: a step deleted %d available pods and left %d, desired %d and maxUnavailable %d", d.Name, c.available, left.available, desired, unavailable)
		}
	}
}

func (r *rules) set(namespace string, owner *metav1.OwnerReference) *appsv1.ReplicaSet {
	set, _ := r.w.truth.Get(store.Key{GroupResource: api.ReplicaSets(), Namespace: namespace, Name: owner.Name}).(*appsv1.ReplicaSet)
	return set
}

func (r *rules) deployment(uid types.UID) *appsv1.Deployment {
	for _, o := range r.w.truth.List(api.Deployments(), "") {
		if o.GetUID() == uid {
			return o.(*appsv1.Deployment)
		}
	}
	return nil
}

// limits are a rolling update's, as Kubernetes documents them.
func limits(d *appsv1.Deployment) (desired, surge, unavailable int) {
	desired = int(*d.Spec.Replicas)
	if d.Spec.Strategy.RollingUpdate == nil {
		return desired, 0, 1
	}
	of := func(v *intstr.IntOrString, up bool) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(v, desired, up)
		if err != nil {
			return 0
		}
		return n
	}
	surge, unavailable = of(d.Spec.Strategy.RollingUpdate.MaxSurge, true), of(d.Spec.Strategy.RollingUpdate.MaxUnavailable, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return desired, surge, unavailable
}

// withinParallelism is R7.
func (r *rules) withinParallelism(news []store.Event) {
	made := map[types.UID]bool{}
	released := map[types.UID]int{} // pods that succeeded and lost their finalizer now
	for _, e := range news {
		pod, ok := last(e).(*corev1.Pod)
		if !ok {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil {
			continue
		}
		if created(e) {
			made[owner.UID] = true
		}
		if was, ok := e.Previous.(*corev1.Pod); ok && was.Status.Phase == corev1.PodSucceeded && tracked(was) && (e.Deleted() || !tracked(pod)) {
			released[owner.UID]++
		}
	}
	for _, e := range news {
		job, ok := e.Object.(*batchv1.Job)
		if !ok || created(e) {
			continue
		}
		was := e.Previous.(*batchv1.Job)
		r.checked["R7"]++
		if more := int(job.Status.Succeeded - was.Status.Succeeded); more > released[job.UID] {
			r.w.fail("R7", "job %s counts %d more pods as succeeded, and takes %d of those from what it watches", job.Name, more, released[job.UID])
		}
		running := 0
		for _, o := range r.w.truth.Owned(job.UID) {
			if pod, ok := o.(*corev1.Pod); ok && active(pod) {
				running++
			}
		}
		if made[job.UID] && running > int(*job.Spec.Parallelism) {
			r.w.fail("R7", "job %s has %d active pods, parallelism %d", job.Name, running, *job.Spec.Parallelism)
		}
		if t := r.tally(job.UID); int(job.Status.Succeeded) > len(t.succeeded) || int(job.Status.Succeeded+job.Status.Failed) > len(t.ended) {
			r.w.fail("R7", "job %s counts %d succeeded and %d failed pods; %d have succeeded and %d have ended", job.Name, job.Status.Succeeded, job.Status.Failed, len(t.succeeded), len(t.ended))
		}
	}
}

func tracked(pod *corev1.Pod) bool {
	for _, f := range pod.Finalizers {
		if f == batchv1.JobTrackingFinalizer {
			return true
		}
	}
	return false
}

// newest is R13: what is applied is the newest commit that its author knew of; what is
// healed is of the applied one, or of one before it.
func (r *rules) newest(x *sent, e store.Event) {
	if e.Object == nil {
		return
	}
	p, ok := api.ProvenanceOf(e.Object)
	if !ok {
		return
	}
	if e.Previous != nil {
		if was, ok := api.ProvenanceOf(e.Previous); ok && was.Commit == p.Commit {
			return
		}
	}
	r.checked["R13"]++
	if p.Commit != x.head && !r.w.user.repository.before(p.Commit, x.applied) {
		r.w.fail("R13", "%s is written as commit %s says, the newest is %s and the applied one %s", e.Key, short(p.Commit), short(x.head), short(x.applied))
	}
}
