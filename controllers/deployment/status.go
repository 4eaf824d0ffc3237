package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of conditions, as Kubernetes words them.
const (
	reasonAvailable   = "MinimumReplicasAvailable"
	reasonUnavailable = "MinimumReplicasUnavailable"
	reasonCreated     = "NewReplicaSetCreated"
	reasonFound       = "FoundNewReplicaSet"
	reasonUpdated     = "ReplicaSetUpdated"
	reasonComplete    = "NewReplicaSetAvailable"
	reasonTimedOut    = "ProgressDeadlineExceeded"
	reasonPaused      = "DeploymentPaused"
	reasonResumed     = "DeploymentResumed"
)

// status writes d's status as it is once the plan is done, and says whether the
// rollout is complete.
func (o *observed) status(d *appsv1.Deployment, cur *set, created bool, now time.Time) (complete bool) {
	r := roomOf(d)
	was := o.deployment.Status
	st := &d.Status
	*st = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, CollisionCount: st.CollisionCount, Conditions: slices.Clone(was.Conditions)}
	terminating, size := int32(0), int32(0)
	for _, s := range o.sets {
		st.Replicas += s.to.Status.Replicas
		st.ReadyReplicas += s.to.Status.ReadyReplicas
		st.AvailableReplicas += s.to.Status.AvailableReplicas
		terminating += *s.to.Status.TerminatingReplicas
		size += int32(s.size)
		if s == cur {
			st.UpdatedReplicas = s.to.Status.Replicas
		}
	}
	st.TerminatingReplicas = &terminating
	st.UnavailableReplicas = max(0, size-st.AvailableReplicas)
	if int(st.AvailableReplicas) >= r.minAvailable {
		mark(st, appsv1.DeploymentAvailable, corev1.ConditionTrue, reasonAvailable, "Deployment has minimum availability.", now)
	} else {
		mark(st, appsv1.DeploymentAvailable, corev1.ConditionFalse, reasonUnavailable, "Deployment does not have minimum availability.", now)
	}
	desired := int32(r.desired)
	complete = st.UpdatedReplicas == desired && st.Replicas == desired && st.AvailableReplicas == desired
	o.progress(d, cur, created, complete, now)
	o.failures(st, cur)
	return complete
}

// progress writes the condition Progressing.
func (o *observed) progress(d *appsv1.Deployment, cur *set, created, complete bool, now time.Time) {
	st, was := &d.Status, o.deployment.Status
	if d.Spec.ProgressDeadlineSeconds == nil {
		st.Conditions = without(st.Conditions, appsv1.DeploymentProgressing)
		return
	}
	before := condition(st.Conditions, appsv1.DeploymentProgressing)
	if d.Spec.Paused {
		// A deadline that has passed stays told.
		if before == nil || before.Reason != reasonTimedOut {
			mark(st, appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused", now)
		}
		return
	}
	if before != nil && before.Reason == reasonPaused {
		mark(st, appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed", now)
		return
	}
	subject := fmt.Sprintf("Deployment %q", d.Name)
	if cur != nil {
		subject = fmt.Sprintf("ReplicaSet %q", cur.to.Name)
	}
	oldBefore, oldNow := was.Replicas-was.UpdatedReplicas, st.Replicas-st.UpdatedReplicas
	// advance moves the time of the last update, even for the same reason.
	advance := func(reason, message string) {
		c := newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reason, message, now)
		if before != nil && before.Status == corev1.ConditionTrue {
			c.LastTransitionTime = before.LastTransitionTime
		}
		st.Conditions = append(without(st.Conditions, appsv1.DeploymentProgressing), c)
	}
	switch {
	case created:
		advance(reasonCreated, fmt.Sprintf("Created new replica set %q", cur.to.Name))
	case before != nil && before.Reason == reasonComplete && st.Replicas == st.UpdatedReplicas:
		// Complete once: pods that come and go are no rollout.
	case complete:
		mark(st, appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonComplete, subject+" has successfully progressed.", now)
	case st.UpdatedReplicas > was.UpdatedReplicas || oldNow < oldBefore || st.ReadyReplicas > was.ReadyReplicas || st.AvailableReplicas > was.AvailableReplicas:
		advance(reasonUpdated, subject+" is progressing.")
	case before == nil && cur != nil:
		mark(st, appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", cur.to.Name), now)
	case before != nil && before.Reason != reasonComplete && !now.Before(deadline(d, before)):
		mark(st, appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonTimedOut, subject+" has timed out progressing.", now)
	}
}

func deadline(d *appsv1.Deployment, progressing *appsv1.DeploymentCondition) time.Time {
	return progressing.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second)
}

// failures makes a set's failure the Deployment's own, the current set's first.
func (o *observed) failures(st *appsv1.DeploymentStatus, cur *set) {
	order := slices.Clone(o.sets)
	slices.SortStableFunc(order, func(a, b *set) int { return cmp.Compare(btoi(a != cur), btoi(b != cur)) })
	for _, s := range order {
		for _, c := range s.to.Status.Conditions {
			if c.Type != appsv1.ReplicaSetReplicaFailure {
				continue
			}
			if before := condition(st.Conditions, appsv1.DeploymentReplicaFailure); before != nil && before.Reason == c.Reason && before.Message == c.Message {
				return
			}
			st.Conditions = append(without(st.Conditions, appsv1.DeploymentReplicaFailure), appsv1.DeploymentCondition{
				Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
				LastTransitionTime: c.LastTransitionTime, LastUpdateTime: c.LastTransitionTime,
			})
			return
		}
	}
	st.Conditions = without(st.Conditions, appsv1.DeploymentReplicaFailure)
}

// past lists the sets that the history need not keep, the lowest revisions first.
func (o *observed) past(d *appsv1.Deployment, cur *set) []Step {
	if d.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	var old []*set
	for _, s := range o.sets {
		if s != cur && !s.adopt && s.is.DeletionTimestamp == nil {
			old = append(old, s)
		}
	}
	slices.SortStableFunc(old, func(a, b *set) int { return cmp.Compare(revisionOf(a.to), revisionOf(b.to)) })
	n := min(max(0, len(old)-int(*d.Spec.RevisionHistoryLimit)), maxConditions)
	var steps []Step
	for _, s := range old[:n] {
		if s.size == 0 && s.active() == 0 && !s.changed() {
			steps = append(steps, Step{Verb: prune, Set: s, Reason: "revisionHistoryLimit"})
		}
	}
	return steps
}

// next is when time alone may change something.
func (o *observed) next(d *appsv1.Deployment, complete bool, now time.Time) (wait time.Duration, why string) {
	sooner := func(d time.Duration, reason string) {
		if d > 0 && (wait == 0 || d < wait) {
			wait, why = d, reason
		}
	}
	for _, s := range o.sets {
		for _, p := range s.claim.Pods.Active {
			_, left := podset.Available(p, s.to.Spec.MinReadySeconds, now)
			sooner(left, "a pod to be ready for minReadySeconds")
		}
	}
	c := condition(d.Status.Conditions, appsv1.DeploymentProgressing)
	if complete || d.Spec.Paused || d.Spec.ProgressDeadlineSeconds == nil || d.DeletionTimestamp != nil ||
		c == nil || c.Reason == reasonTimedOut || c.Reason == reasonComplete {
		return wait, why
	}
	sooner(max(deadline(d, c).Sub(now), time.Millisecond), "progressDeadlineSeconds")
	return wait, why
}

func condition(conditions []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

func without(conditions []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) []appsv1.DeploymentCondition {
	var out []appsv1.DeploymentCondition
	for _, c := range conditions {
		if c.Type != kind {
			out = append(out, c)
		}
	}
	return out
}

func newCondition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) appsv1.DeploymentCondition {
	at := metav1.NewTime(now.Truncate(time.Second))
	return appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message, LastUpdateTime: at, LastTransitionTime: at}
}

// mark sets a condition, unless it stands already with this status and reason.
func mark(st *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) {
	before := condition(st.Conditions, kind)
	if before != nil && before.Status == status && before.Reason == reason {
		return
	}
	c := newCondition(kind, status, reason, message, now)
	if before != nil && before.Status == status {
		c.LastTransitionTime = before.LastTransitionTime
	}
	st.Conditions = append(without(st.Conditions, kind), c)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
