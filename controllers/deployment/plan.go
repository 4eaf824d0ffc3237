package deployment

import (
	"fmt"
	"maps"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// observed is the state that a plan decides on.
type observed struct {
	deployment *appsv1.Deployment
	sets       []*set               // that it controls or may adopt, oldest first
	strangers  []*appsv1.ReplicaSet // that it controls and its selector does not match any more
	refs       map[string]string    // declared content that the template refers to: name to manifest hash
	fresh      fresh                // how a new set would be called
	closed     bool                 // the namespace is being deleted: nothing may be created
	limit      int                  // of pods created or deleted in one plan
	refused    map[string]string    // by set: why a pod of its template may not be created
}

// set is one ReplicaSet: as it is, and as the plan will have it.
type set struct {
	is    *appsv1.ReplicaSet // nil: not there yet
	to    *appsv1.ReplicaSet // the plan's own copy
	adopt bool
	claim podset.Claim

	size      int           // to.spec.replicas
	available int           // of the active pods now
	victims   []*corev1.Pod // active pods to delete
	create    int           // pods to create
}

func (s *set) active() int { return len(s.claim.Pods.Active) }

// verb is what a step does.
type verb string

const (
	release verb = "release" // a set that the selector does not match any more
	write   verb = "write"   // a set, and with it its pods
	prune   verb = "prune"   // delete a set of the past
	report  verb = "report"  // write the Deployment with its new status
)

// Step is one decided change.
type Step struct {
	Verb       verb
	Set        *set
	Stranger   *appsv1.ReplicaSet
	Deployment *appsv1.Deployment
	Pod        *corev1.Pod // admitted, of which the created pods are copies
	Message    string      // for an event about the Deployment; "" for none
	Reason     string
}

// plan is what to do now: all steps in one transaction, if the conditions hold.
type plan struct {
	steps      []Step
	conditions []api.Object
	wait       time.Duration // until time alone may change something; 0 for never
	why        string
}

// decide plans the next step of a Deployment.
func decide(o observed, now time.Time) plan {
	// A copy of what a plan may change: metadata and status. The spec is shared.
	copied := *o.deployment
	d := &copied
	o.deployment.ObjectMeta.DeepCopyInto(&d.ObjectMeta)
	r := roomOf(d)
	cur := current(&o)
	for _, s := range o.sets {
		s.reset(r)
		if s == cur {
			s.to.Spec.MinReadySeconds = d.Spec.MinReadySeconds
		}
		s.count(r, now)
	}
	created := false
	switch {
	case d.DeletionTimestamp != nil:
	case d.Spec.Paused || scaling(o.sets, r):
		scale(o.sets, cur, r, int(d.Status.Replicas))
	default:
		if cur == nil && !o.closed && mayCreateSet(&o, r) {
			cur = newSet(&o, d)
			o.sets = append(o.sets, cur)
			created = true
		}
		resize(o.sets, cur, r)
	}
	if cur != nil && d.DeletionTimestamp == nil {
		sync(&o, cur, d)
	}
	if d.DeletionTimestamp == nil {
		movePods(&o, cur, r, now)
	}
	for _, s := range o.sets {
		s.finish(r, o.refused[s.to.Name], now)
	}
	return o.compose(d, cur, r, created, now)
}

// reset starts a plan over from what is. The copy's metadata is its own; of its
// spec, which it shares, a plan replaces fields and changes nothing inside them.
func (s *set) reset(r room) {
	to := *s.is
	s.is.ObjectMeta.DeepCopyInto(&to.ObjectMeta)
	s.to = &to
	if s.adopt {
		s.to.OwnerReferences = append(s.to.OwnerReferences, r.owner)
	}
	s.size = podset.Replicas(s.is)
	s.victims, s.create = nil, 0
}

// count counts what is available now.
func (s *set) count(r room, now time.Time) {
	s.available = 0
	for _, p := range s.claim.Pods.Active {
		if ok, _ := podset.Available(p, s.to.Spec.MinReadySeconds, now); ok {
			s.available++
		}
	}
	if r.counted {
		s.available = min(s.available, int(s.is.Status.AvailableReplicas))
	}
}

// finish makes the set's object what the plan wants: its size and its status.
func (s *set) finish(r room, refused string, now time.Time) {
	if s.is == nil || podset.Replicas(s.is) != s.size {
		n := int32(s.size)
		s.to.Spec.Replicas = &n
		annotateSize(s.to, r)
	}
	if s.is != nil && (podset.Replicas(s.is) != s.size || s.is.Spec.MinReadySeconds != s.to.Spec.MinReadySeconds) {
		s.to.Generation = s.is.Generation + 1
	}
	after := podset.After{Created: s.create, Terminating: len(s.claim.Pods.Terminating)}
	gone := map[*corev1.Pod]bool{}
	for _, p := range s.victims {
		gone[p] = true
		if p.Spec.NodeName != "" {
			after.Terminating++
		}
	}
	for _, p := range s.claim.Pods.Active {
		if !gone[p] {
			after.Active = append(after.Active, p)
		}
	}
	if len(after.Active)+s.create < s.size {
		after.Failure = refused
	}
	s.to.Status = podset.Status(s.to, after, now)
}

// changed says whether the set or its pods are to be written.
func (s *set) changed() bool {
	return s.is == nil || s.adopt || s.moves() || podset.Replicas(s.is) != s.size ||
		s.is.Spec.MinReadySeconds != s.to.Spec.MinReadySeconds || !maps.Equal(s.is.Annotations, s.to.Annotations) ||
		!equality.Semantic.DeepEqual(s.is.Status, s.to.Status)
}

// moves says whether pods of the set are to be written.
func (s *set) moves() bool {
	return len(s.victims) > 0 || s.create > 0 || len(s.claim.Adopt) > 0 || len(s.claim.Release) > 0
}

// compose turns the decisions into steps and conditions.
func (o *observed) compose(d *appsv1.Deployment, cur *set, r room, created bool, now time.Time) plan {
	var p plan
	rolling, stable := false, 0
	for _, s := range o.sets {
		if !s.changed() {
			continue
		}
		step := Step{Verb: write, Set: s, Reason: "its size, its pods, its annotations or its status"}
		before := 0
		if s.is != nil {
			before = podset.Replicas(s.is)
		}
		if s.size != before {
			way := "up"
			if s.size < before {
				way = "down"
			}
			step.Message = fmt.Sprintf("Scaled %s replica set %s from %d to %d", way, s.to.Name, before, s.size)
		}
		rolling = rolling || s.moves() || s.size != before
		p.steps = append(p.steps, step)
	}
	for _, rs := range o.strangers {
		p.steps = append(p.steps, Step{Verb: release, Stranger: rs, Reason: "the selector does not match it any more"})
	}
	complete := o.status(d, cur, created, now)
	if !rolling && (complete || d.Spec.Paused) && d.DeletionTimestamp == nil {
		p.steps = append(p.steps, o.past(d, cur)...)
	}
	p.wait, p.why = o.next(d, complete, now)
	same := maps.Equal(d.Annotations, o.deployment.Annotations) && equality.Semantic.DeepEqual(d.Status, o.deployment.Status)
	switch {
	case same && len(p.steps) == 0:
		return p
	case same:
		p.conditions = append(p.conditions, o.deployment)
	default:
		p.steps = append(p.steps, Step{Verb: report, Deployment: d, Reason: "its status or its revision changed"})
	}
	if rolling {
		p.conditions = append(p.conditions, o.witnesses(r, now)...)
		for _, s := range o.sets {
			if s.is != nil && !s.changed() && (stable < maxConditions || s.active() > 0) {
				p.conditions = append(p.conditions, s.is)
				stable++
			}
		}
	}
	return p
}

// Bounds of a transaction's conditions: sets without pods, and pods that must
// stay available.
const (
	maxConditions = 50
	maxWitnesses  = 250
)

// witnesses are the pods whose being available lets this plan delete others: as
// many as must stay. A plan that deletes no available pod needs none.
func (o *observed) witnesses(r room, now time.Time) []api.Object {
	deletes := false
	var out []api.Object
	for _, s := range o.sets {
		gone := map[*corev1.Pod]bool{}
		for _, p := range s.victims {
			gone[p] = true
		}
		for _, p := range s.claim.Pods.Active {
			ok, _ := podset.Available(p, s.to.Spec.MinReadySeconds, now)
			deletes = deletes || ok && gone[p]
			if ok && !gone[p] && len(out) < r.minAvailable {
				out = append(out, p)
			}
		}
	}
	if !deletes || r.counted {
		return nil
	}
	return out
}
