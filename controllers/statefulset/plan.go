package statefulset

import (
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// observed is the state that a plan decides on.
type observed struct {
	set            *appsv1.StatefulSet
	namespace      *corev1.Namespace
	pods           map[int]*corev1.Pod // that it has after the claim, by ordinal
	adopt, release []*corev1.Pod
	foreign        map[int]bool // ordinals whose name an object has that is not the set's
	claims         map[string]*corev1.PersistentVolumeClaim
	history        []*appsv1.ControllerRevision // the oldest first
	update         podset.Revision              // that serves the template now
	current        string                       // the revision before it, until all pods are of the new one
	templates      map[string]*corev1.PodTemplateSpec
	closed         bool               // the namespace is being deleted: nothing may be created
	limit          int                // of pods created or deleted in one plan
	refused        map[string]refused // by revision: why a pod of it may not be created
	claimless      string             // why no claim may be created; "" when they may
}

// refused is a pod that may not enter, and why.
type refused struct{ pod, why string }

// verb is what a step does.
type verb string

const (
	adopt      verb = "adopt"      // a pod that nobody controls
	release    verb = "release"    // a pod that the selector does not match any more
	relabel    verb = "relabel"    // give a pod the labels of its identity
	keep       verb = "keep"       // write a revision
	prune      verb = "prune"      // delete a revision of the past
	claim      verb = "claim"      // create a claim
	ownClaim   verb = "own claim"  // write a claim's owners
	create     verb = "create"     // a pod
	remove     verb = "remove"     // a pod
	report     verb = "report"     // write the set with its new status
	complain   verb = "complain"   // an event only: a pod was refused
	misclaimed verb = "misclaimed" // an event only: somebody else controls a claim
)

// Step is one decided change.
type Step struct {
	Verb     verb
	Pod      *corev1.Pod
	Revision string // of a pod to create
	Object   api.Object
	Set      *appsv1.StatefulSet
	Message  string
	Reason   string
}

// plan is what to do now: all steps in one transaction, if the conditions hold.
type plan struct {
	steps      []Step
	conditions []api.Object
	wait       time.Duration // until time alone may change something; 0 for never
	why        string
}

// slot is one ordinal: the pod that has it, and what becomes of it.
type slot struct {
	ordinal  int
	pod      *corev1.Pod // nil: there is none
	removed  bool
	creating *corev1.Pod
}

// decision is a plan in the making.
type decision struct {
	observed
	plan
	now           time.Time
	ordered       bool
	replicas      []*slot // that the set wants, the lowest first
	condemned     []*slot // that are too many, the highest first
	left          int     // pods that the plan may still create or delete
	firstUpdated  int     // ordinals from here on are updated
	budget        int     // maxUnavailable
	witnesses     []*corev1.Pod
	writtenClaims map[string]bool
}

// decide plans the next step of a StatefulSet.
func decide(o observed, now time.Time) plan {
	d := newDecision(o, now)
	if o.set.DeletionTimestamp == nil {
		d.history()
		if len(o.adopt)+len(o.release) > 0 {
			// What is claimed now is worked by the next plan.
			d.claimPods()
		} else if d.serve() && d.condemn() {
			d.roll()
		}
		d.complainOf()
	}
	d.report()
	return d.plan
}

func newDecision(o observed, now time.Time) *decision {
	d := &decision{observed: o, now: now, left: o.limit, budget: 1, writtenClaims: map[string]bool{},
		ordered: o.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement}
	first, end := ordinals(o.set)
	for n := first; n < end; n++ {
		d.replicas = append(d.replicas, &slot{ordinal: n, pod: o.pods[n]})
	}
	for n, pod := range o.pods {
		if n < first || n >= end {
			d.condemned = append(d.condemned, &slot{ordinal: n, pod: pod})
		}
	}
	slices.SortFunc(d.condemned, func(a, b *slot) int { return b.ordinal - a.ordinal })
	d.firstUpdated = first
	if u := o.set.Spec.UpdateStrategy.RollingUpdate; u != nil && d.rolling() {
		if u.Partition != nil {
			d.firstUpdated = first + int(*u.Partition)
		}
		if u.MaxUnavailable != nil {
			// Rounded down, and at least one, as documented.
			if n, err := intstr.GetScaledValueFromIntOrPercent(u.MaxUnavailable, end-first, false); err == nil {
				d.budget = max(n, 1)
			}
		}
	}
	return d
}

func (d *decision) rolling() bool {
	return d.set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType
}

func (d *decision) add(s Step) { d.steps = append(d.steps, s) }

// sooner asks for another look after w.
func (d *decision) sooner(w time.Duration, why string) {
	if w > 0 && (d.wait == 0 || w < d.wait) {
		d.wait, d.why = w, why
	}
}

// history writes the revision that serves the template, takes over those without a
// controller, and drops what the history need not keep.
func (d *decision) history() {
	update := d.update
	adopted := func(r *appsv1.ControllerRevision) bool { return metav1.IsControlledBy(r, d.set) }
	if update.Is != nil && !adopted(update.Is) {
		update.To.OwnerReferences = append(slices.Clone(update.Is.OwnerReferences), podset.Controller(d.set))
	}
	if update.Changed() {
		d.add(Step{Verb: keep, Object: update.To, Reason: "it serves the template"})
	}
	for _, r := range d.observed.history {
		if !adopted(r) && r != update.Is {
			to := r.DeepCopy()
			to.OwnerReferences = append(to.OwnerReferences, podset.Controller(d.set))
			d.add(Step{Verb: keep, Object: to, Reason: "the selector matches it and nobody controls it"})
		}
	}
	used := map[string]bool{d.current: true, update.To.Name: true}
	for _, pod := range d.pods {
		used[revisionOf(pod)] = true
	}
	past := podset.PastRevisions(d.observed.history, func(r *appsv1.ControllerRevision) bool { return used[r.Name] || !adopted(r) }, d.set.Spec.RevisionHistoryLimit)
	for _, r := range past[:min(len(past), maxPruned)] {
		d.add(Step{Verb: prune, Object: r, Reason: "revisionHistoryLimit"})
	}
}

// Bounds of one plan: the revisions that go, and the pods that are adopted or
// released. Their events have the set looked at again.
const (
	maxPruned  = 50
	maxClaimed = 50
)

func (d *decision) claimPods() {
	for _, pod := range d.observed.adopt[:min(len(d.observed.adopt), maxClaimed)] {
		d.add(Step{Verb: adopt, Pod: pod, Reason: "the selector matches it and nobody controls it"})
	}
	for _, pod := range d.observed.release[:min(len(d.observed.release), maxClaimed)] {
		d.add(Step{Verb: release, Pod: pod, Reason: "the selector does not match it any more"})
	}
}

// report ends the plan: the status as it is once all steps are done. A plan that
// creates or deletes pods always writes the set, so that of two decisions on one
// state one fails.
func (d *decision) report() {
	to := *d.set
	to.Status = d.status()
	moves := slices.ContainsFunc(d.steps, func(s Step) bool { return s.Verb == create || s.Verb == remove })
	if !moves && equality.Semantic.DeepEqual(to.Status, d.set.Status) {
		if len(d.steps) > 0 {
			d.conditions = append(d.conditions, d.set)
		}
	} else {
		d.set.ObjectMeta.DeepCopyInto(&to.ObjectMeta)
		d.add(Step{Verb: report, Set: &to, Reason: "its pods or its spec changed"})
	}
	written := map[*corev1.Pod]bool{}
	for _, s := range d.steps {
		written[s.Pod] = s.Pod != nil
	}
	for _, pod := range d.witnesses {
		if !written[pod] && len(d.conditions) < maxWitnesses {
			d.conditions = append(d.conditions, pod)
		}
	}
	for _, s := range slices.Concat(d.replicas, d.condemned) {
		if s.pod != nil && s.pod.DeletionTimestamp == nil && !s.removed {
			_, left := podset.Available(s.pod, d.set.Spec.MinReadySeconds, d.now)
			d.sooner(left, "a pod to be ready for minReadySeconds")
		}
	}
}

// maxWitnesses bounds the pods that a plan is conditioned on.
const maxWitnesses = 250

// complainOf tells why pods could not be created.
func (d *decision) complainOf() {
	for _, name := range slices.Sorted(keysOf(d.refused)) {
		r := d.refused[name]
		d.add(Step{Verb: complain, Message: "Create Pod " + r.pod + " in StatefulSet " + d.set.Name + " failed error: " + r.why, Reason: "the pod was refused"})
	}
	if d.claimless != "" {
		d.add(Step{Verb: complain, Message: "Create Claim in StatefulSet " + d.set.Name + " failed error: " + d.claimless, Reason: "the claim was refused"})
	}
}

// yield makes o want less after the transaction of steps was refused, as by a
// quota: half as many pods, for there may be room for some of them, at last none, and
// then no claims. It says whether there was anything to leave out.
func (o *observed) yield(steps []Step, why error) bool {
	pod := slices.IndexFunc(steps, func(s Step) bool { return s.Verb == create })
	switch {
	case pod >= 0 && o.limit > 1:
		o.limit /= 2
	case pod >= 0:
		o.refused[steps[pod].Revision] = refused{steps[pod].Pod.Name, why.Error()}
	case o.claimless == "" && slices.ContainsFunc(steps, func(s Step) bool { return s.Verb == claim }):
		o.claimless = why.Error()
	default:
		return false
	}
	return true
}
