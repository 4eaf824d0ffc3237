package daemonset

import (
	"maps"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// observed is the state that a plan decides on.
type observed struct {
	set            *appsv1.DaemonSet
	namespace      *corev1.Namespace
	nodes          []*corev1.Node           // sorted by name
	pods           map[string][]*corev1.Pod // that it has after the claim, by node, the oldest first
	others         []*corev1.Pod            // further ones that it has: of no node, or ended and on their way
	adopt, release []*corev1.Pod
	history        []*appsv1.ControllerRevision // the oldest first
	update         podset.Revision              // that serves the template now
	waiting        map[string]time.Duration     // by node: how long a failed pod must still wait to be deleted
	closed         bool                         // the namespace is being deleted: nothing may be created
	limit          int                          // of pods created or deleted in one plan
	refused        string                       // why a pod of the template may not be created; "" when it may
}

// verb is what a step does.
type verb string

const (
	adopt    verb = "adopt"    // a pod that nobody controls
	release  verb = "release"  // a pod that the selector does not match any more
	keep     verb = "keep"     // write a revision
	prune    verb = "prune"    // delete a revision of the past
	create   verb = "create"   // a pod for Node
	remove   verb = "remove"   // a pod
	report   verb = "report"   // write the set with its new status
	complain verb = "complain" // an event only: a pod was refused
)

// Step is one decided change.
type Step struct {
	Verb    verb
	Pod     *corev1.Pod
	Node    string
	Failed  bool // of a pod to remove: it has failed
	Object  api.Object
	Set     *appsv1.DaemonSet
	Message string // of an event beside that of the change; "" for none
	Reason  string
}

// plan is what to do now: all steps in one transaction, if the conditions hold.
type plan struct {
	steps      []Step
	conditions []api.Object
	wait       time.Duration // until time alone may change something; 0 for never
	why        string
}

// decision is a plan in the making.
type decision struct {
	observed
	plan
	now       time.Time
	hash      string // of the revision that serves the template
	runs      map[string]bool
	stays     map[string]bool
	left      int // pods that the plan may still create or delete
	moved     bool
	removed   map[*corev1.Pod]bool
	created   map[string]bool
	witnesses []*corev1.Pod
}

// decide plans the next step of a DaemonSet.
func decide(o observed, now time.Time) plan {
	d := &decision{observed: o, now: now, hash: o.update.Hash(), left: o.limit,
		runs: map[string]bool{}, stays: map[string]bool{}, removed: map[*corev1.Pod]bool{}, created: map[string]bool{}}
	s := suitsOf(&o.set.Spec.Template.Spec)
	for _, n := range o.nodes {
		d.runs[n.Name], d.stays[n.Name] = s.node(n)
	}
	d.keepHistory()
	if len(o.adopt)+len(o.release) > 0 {
		// What is claimed now is worked by the next plan.
		d.claimPods()
	} else {
		d.manage()
		if !d.moved && o.set.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
			d.roll()
		}
	}
	if o.refused != "" {
		d.add(Step{Verb: complain, Message: "Error creating: " + o.refused, Reason: "the pod was refused"})
	}
	d.report()
	return d.plan
}

func (d *decision) add(s Step) { d.steps = append(d.steps, s) }

// sooner asks for another look after w.
func (d *decision) sooner(w time.Duration, why string) {
	if w > 0 && (d.wait == 0 || w < d.wait) {
		d.wait, d.why = w, why
	}
}

// keepHistory writes the revision that serves the template, takes over those
// without a controller, and drops what the history need not keep.
func (d *decision) keepHistory() {
	update := d.update
	adopted := func(r *appsv1.ControllerRevision) bool { return metav1.IsControlledBy(r, d.set) }
	if update.Is != nil && !adopted(update.Is) {
		update.To.OwnerReferences = append(slices.Clone(update.Is.OwnerReferences), podset.Controller(d.set))
	}
	if update.Changed() {
		d.add(Step{Verb: keep, Object: update.To, Reason: "it serves the template"})
	}
	for _, r := range d.history {
		if !adopted(r) && r != update.Is {
			to := r.DeepCopy()
			to.OwnerReferences = append(to.OwnerReferences, podset.Controller(d.set))
			d.add(Step{Verb: keep, Object: to, Reason: "the selector matches it and nobody controls it"})
		}
	}
	used := map[string]bool{d.hash: true}
	for _, pods := range d.pods {
		for _, pod := range pods {
			used[hashOf(pod)] = true
		}
	}
	for _, pod := range d.others {
		used[hashOf(pod)] = true
	}
	past := podset.PastRevisions(d.history, func(r *appsv1.ControllerRevision) bool {
		return used[podset.Revision{To: r}.Hash()] || !adopted(r)
	}, d.set.Spec.RevisionHistoryLimit)
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

func hashOf(pod *corev1.Pod) string { return pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] }

func (d *decision) claimPods() {
	for _, pod := range d.observed.adopt[:min(len(d.observed.adopt), maxClaimed)] {
		d.add(Step{Verb: adopt, Pod: pod, Reason: "the selector matches it and nobody controls it"})
	}
	for _, pod := range d.observed.release[:min(len(d.observed.release), maxClaimed)] {
		d.add(Step{Verb: release, Pod: pod, Reason: "the selector does not match it any more"})
	}
}

func (d *decision) create(node, reason string) {
	d.moved = true
	if d.left == 0 || d.closed || d.refused != "" || d.created[node] {
		return
	}
	d.left--
	d.created[node] = true
	d.add(Step{Verb: create, Node: node, Reason: reason})
}

func (d *decision) remove(pod *corev1.Pod, reason string) {
	d.removeWith(Step{Pod: pod, Reason: reason})
}

func (d *decision) removeWith(s Step) {
	d.moved = true
	if d.left == 0 || d.removed[s.Pod] || s.Pod.DeletionTimestamp != nil {
		return
	}
	d.left--
	d.removed[s.Pod] = true
	s.Verb, s.Node = remove, nodeOf(s.Pod)
	d.add(s)
}

// manage sees that nodes have the pods that they suit, and no others.
func (d *decision) manage() {
	for _, n := range d.nodes {
		pods := d.pods[n.Name]
		switch {
		case d.runs[n.Name] && len(pods) == 0:
			d.create(n.Name, "the node has none")
		case d.stays[n.Name]:
			d.manageNode(n.Name, d.alive(n.Name, pods))
		default:
			for _, pod := range pods {
				if pod.DeletionTimestamp == nil {
					d.remove(pod, "the node does not suit it any more")
				}
			}
		}
	}
	// What is meant for a node that is gone will never be bound.
	for _, node := range slices.Sorted(maps.Keys(d.pods)) {
		if _, there := d.runs[node]; there {
			continue
		}
		for _, pod := range d.pods[node] {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
				d.remove(pod, "its node is gone")
			}
		}
	}
}

// alive are a node's pods that have not ended and are not being deleted. Those that
// have ended are deleted, the failed ones not too often.
func (d *decision) alive(node string, pods []*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range pods {
		found := func(how, what string) string {
			return "Found " + how + " daemon pod " + pod.Namespace + "/" + pod.Name + " on node " + node + ", will try to " + what + " it"
		}
		switch {
		case pod.DeletionTimestamp != nil:
		case pod.Status.Phase == corev1.PodFailed && d.waiting[node] > 0:
			d.sooner(d.waiting[node], "back-off after a failed pod")
		case pod.Status.Phase == corev1.PodFailed:
			d.removeWith(Step{Pod: pod, Failed: true, Message: found("failed", "kill"), Reason: "it has failed"})
		case pod.Status.Phase == corev1.PodSucceeded:
			d.removeWith(Step{Pod: pod, Message: found("succeeded", "delete"), Reason: "it has ended"})
		default:
			out = append(out, pod)
		}
	}
	return out
}

// manageNode thins out a node's pods, of which it keeps an available one, else the
// oldest: one without surge; with it an old one that is ready, and a new one that is
// not available yet.
func (d *decision) manageNode(node string, alive []*corev1.Pod) {
	alive = slices.Concat(
		slices.DeleteFunc(slices.Clone(alive), func(p *corev1.Pod) bool { return !d.available(p) }),
		slices.DeleteFunc(slices.Clone(alive), d.available))
	if !d.surging() {
		for i, pod := range alive {
			if i > 0 {
				d.remove(pod, "the node has another one")
				d.witnesses = append(d.witnesses, alive[0])
			}
		}
		return
	}
	if len(alive) == 0 {
		// One that failed is replaced when its back-off is over.
		failed := slices.ContainsFunc(d.pods[node], func(p *corev1.Pod) bool { return podset.Terminal(p) && !d.removed[p] })
		if d.runs[node] && !failed {
			d.create(node, "the node has none that stays")
		}
		return
	}
	var recent, old *corev1.Pod
	for _, pod := range alive {
		switch {
		case hashOf(pod) == d.hash && recent == nil:
			recent = pod
		case hashOf(pod) != d.hash && old == nil:
			old = pod
		default:
			d.remove(pod, "the node has another one")
			d.witnesses = append(d.witnesses, alive[0])
		}
	}
	switch {
	case recent == nil || old == nil:
	case !podset.Ready(old):
		d.remove(old, "it is not ready, and its successor is there")
	case d.available(recent):
		d.remove(old, "its successor is available")
		d.witnesses = append(d.witnesses, recent)
	}
}

func (d *decision) available(pod *corev1.Pod) bool {
	if pod == nil || podset.Terminal(pod) {
		return false
	}
	ok, _ := podset.Available(pod, d.set.Spec.MinReadySeconds, d.now)
	return ok
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
		d.add(Step{Verb: report, Set: &to, Reason: "its pods, its nodes or its spec changed"})
	}
	for _, pod := range d.witnesses {
		if !d.removed[pod] && len(d.conditions) < maxWitnesses {
			d.conditions = append(d.conditions, pod)
		}
	}
	for _, pods := range d.pods {
		for _, pod := range pods {
			if podset.Active(pod) && !d.removed[pod] {
				_, left := podset.Available(pod, d.set.Spec.MinReadySeconds, d.now)
				d.sooner(left, "a pod to be ready for minReadySeconds")
			}
		}
	}
}

// maxWitnesses bounds the pods that a plan is conditioned on.
const maxWitnesses = 250

// creates says whether the plan makes pods.
func (p plan) creates() bool {
	return slices.ContainsFunc(p.steps, func(s Step) bool { return s.Verb == create })
}
