package replicaset

import (
	"time"

	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
)

// observed is the state that a plan decides on.
type observed struct {
	set      *appsv1.ReplicaSet // also of a ReplicationController: see kind
	selector labels.Selector
	pods     []*corev1.Pod // that the set controls
	orphans  []*corev1.Pod // that its selector matches and nobody controls
	limit    int           // of pods created or deleted in one plan
	closed   bool          // the namespace is being deleted: nothing may be created
	untold   bool          // the status has no place for terminating pods
	refused  string        // why a pod of this template may not be created; "" when it may
}

// verb is what a step does.
type verb string

const (
	adopt   verb = "adopt"
	release verb = "release"
	create  verb = "create" // pods, as many as count
	remove  verb = "remove"
	report  verb = "report" // write the set, with its new status
)

// Step is one decided change.
type Step struct {
	Verb   verb
	Pod    *corev1.Pod
	Status appsv1.ReplicaSetStatus
	Count  int
	Reason string
}

// plan decides what the set needs now. Its last step, if there is any step,
// writes the set.
func plan(o observed, now time.Time) []Step {
	var steps []Step
	add := func(v verb, pod *corev1.Pod, reason string) {
		steps = append(steps, Step{Verb: v, Pod: pod, Reason: reason})
	}
	alive := o.set.DeletionTimestamp == nil
	orphans := o.orphans
	if !alive {
		orphans = nil
	}
	claim := podset.ClaimPods(o.selector, o.pods, orphans)
	for _, pod := range claim.Release {
		add(release, pod, "the selector does not match it any more")
	}
	// A pod that is adopted and surplus is adopted now and removed by the next plan.
	for _, pod := range claim.Adopt {
		add(adopt, pod, "the selector matches it and nobody controls it")
	}
	pods := claim.Pods
	after := podset.After{Active: pods.Active, Terminating: len(pods.Terminating), Failure: o.refused}
	want := podset.Replicas(o.set)
	switch surplus := len(pods.Active) - want; {
	case !alive || len(claim.Adopt) > 0 && surplus > 0:
	case surplus < 0 && podset.RejectionWait(pods.Dead, want, now) > 0:
	case surplus < 0 && o.refused == "" && !o.closed:
		after.Created = min(-surplus, o.limit)
		steps = append(steps, Step{Verb: create, Count: after.Created, Reason: "too few replicas"})
	case surplus > 0:
		order := podset.DeletionOrder(pods.Active, podset.PerNode(pods.Active), now)
		n := min(surplus, o.limit)
		for _, pod := range order[:n] {
			add(remove, pod, "too many replicas")
			if pod.Spec.NodeName != "" {
				after.Terminating++
			}
		}
		after.Active = order[n:]
	}
	if surplus := len(pods.Active) - want; surplus >= 0 {
		after.Failure = "" // nothing needs to be created
	}

	status := podset.Status(o.set, after, now)
	if o.untold {
		status.TerminatingReplicas = nil
	}
	if len(steps) > 0 || !equality.Semantic.DeepEqual(status, o.set.Status) {
		steps = append(steps, Step{Verb: report, Status: status, Reason: "its pods or its spec changed"})
	}
	return steps
}

// nextTry is when a set whose pods were rejected may make others; 0 when none were.
func nextTry(o observed, now time.Time) time.Duration {
	pods, want := podset.Split(o.pods), podset.Replicas(o.set)
	if len(pods.Active) >= want {
		return 0
	}
	return podset.RejectionWait(pods.Dead, want, now)
}

// nextAvailable is when the next ready pod will have been so for long enough; 0
// when none is on the way.
func nextAvailable(o observed, now time.Time) (wait time.Duration) {
	for _, pod := range o.pods {
		if !podset.Active(pod) {
			continue
		}
		if _, left := podset.Available(pod, o.set.Spec.MinReadySeconds, now); left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
	}
	return wait
}
