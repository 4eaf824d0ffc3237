package garbage

import (
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// observed is the state that a plan decides on.
type observed struct {
	owner      api.Object // nil: not there
	uid        types.UID  // of the owner that the dependents name
	dependents []dependent
}

// dependent is an object and what became of its owners.
type dependent struct {
	object        api.Object
	owners        []owner
	hasDependents bool
	circle        bool // it waits for the owner itself, and does not hold it up
}

type owner struct {
	ref   metav1.OwnerReference
	key   store.Key
	known bool       // key is valid; else the owner counts as there
	live  api.Object // what is under key; nil: nothing
}

// absent says whether the owner is gone, as far as the cache shows.
func (o owner) absent() bool {
	return o.known && (o.live == nil || o.live.GetUID() != o.ref.UID)
}

// waiting says whether the owner is only waiting for its dependents to go.
func (o owner) waiting() bool {
	return o.live != nil && waiting(o.live)
}

// waiting says whether an object is only waiting for its dependents to go.
func waiting(obj api.Object) bool {
	return obj.GetDeletionTimestamp() != nil && held(obj, metav1.FinalizerDeleteDependents)
}

// verb is what a step does.
type verb string

const (
	remove  verb = "remove"  // delete it as the API server would
	cascade verb = "cascade" // delete it, its own dependents first
	disown  verb = "disown"  // take the owners in UIDs off it
	release verb = "release" // take Finalizer off it, and delete it if that was the last
)

// Step is one decided change.
type Step struct {
	Verb      verb
	Object    api.Object
	UIDs      []types.UID
	Finalizer string
	Reason    string
}

// plan is what to do in one transaction, if every owner in absent is as it was
// seen.
type plan struct {
	steps  []Step
	absent []owner
	more   bool // it is worth another look soon
}

// perTxn bounds one plan's steps; each may bring a condition or two.
const perTxn = store.BulkObjects - 10

// planGone decides on dependents of an owner that is gone: those that have no
// other go, the others forget it.
func planGone(o observed, now time.Time) plan {
	var p plan
	for _, d := range o.dependents {
		if d.object.GetDeletionTimestamp() != nil && len(podset.RemoveAny(d.object, now)) == 0 {
			continue // on its way
		}
		if len(p.steps) == perTxn {
			break // the caller looks again after every step
		}
		var absent []owner
		for _, w := range d.owners {
			if w.absent() {
				absent = append(absent, w)
			}
		}
		if len(absent) == 0 {
			continue
		}
		p.absent = append(p.absent, absent...)
		if len(absent) == len(d.owners) {
			p.steps = append(p.steps, Step{Verb: remove, Object: d.object, Reason: "its owners are gone"})
			continue
		}
		step := Step{Verb: disown, Object: d.object, Reason: "one of its owners is gone"}
		for _, w := range absent {
			step.UIDs = append(step.UIDs, w.ref.UID)
		}
		p.steps = append(p.steps, step)
	}
	return p
}

// finishing says whether an object being deleted is ours to finish: a finalizer
// of ours holds it, or nothing does.
func finishing(obj api.Object) bool {
	if obj.GetDeletionTimestamp() == nil {
		return false
	}
	return held(obj, metav1.FinalizerOrphanDependents) || held(obj, metav1.FinalizerDeleteDependents) || removable(obj, nil)
}

func held(obj api.Object, finalizer string) bool {
	return slices.Contains(obj.GetFinalizers(), finalizer)
}

// removable says whether nothing holds an object that is being deleted, once the
// finalizers in done are taken off. A pod that a node may run waits for its agent,
// a namespace for its content.
func removable(obj api.Object, done []string) bool {
	for _, f := range obj.GetFinalizers() {
		if !slices.Contains(done, f) {
			return false
		}
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return o.Spec.NodeName == "" || podset.Ended(o)
	case *corev1.Namespace:
		return len(o.Spec.Finalizers) == 0
	}
	return true
}

// planFinish decides what an object that is being deleted still waits for.
func planFinish(o observed, now time.Time) plan {
	switch {
	case held(o.owner, metav1.FinalizerOrphanDependents):
		return planOrphan(o)
	case held(o.owner, metav1.FinalizerDeleteDependents):
		return planForeground(o, now)
	case removable(o.owner, nil):
		return plan{steps: []Step{{Verb: remove, Object: o.owner, Reason: "nothing holds it any more"}}}
	}
	return plan{}
}

// planOrphan lets the dependents go, then the object.
func planOrphan(o observed) plan {
	var p plan
	for _, d := range o.dependents {
		if len(p.steps) == perTxn {
			p.more = true
			return p
		}
		p.steps = append(p.steps, Step{Verb: disown, Object: d.object, UIDs: []types.UID{o.uid}, Reason: "its owner goes and leaves it"})
	}
	if len(p.steps) == 0 {
		p.steps = []Step{{Verb: release, Object: o.owner, Finalizer: metav1.FinalizerOrphanDependents, Reason: "no dependent names it any more"}}
	} else {
		p.more = true // look again; a dependent may have come
	}
	return p
}

// planForeground deletes the dependents, and lets the object go when none is left
// that blocks it.
func planForeground(o observed, now time.Time) plan {
	var p plan
	blocked := false
	for _, d := range o.dependents {
		if len(p.steps) == perTxn {
			p.more = true
			break
		}
		others := false
		for _, w := range d.owners {
			if w.ref.UID == o.uid {
				blocked = blocked || !d.circle && w.ref.BlockOwnerDeletion != nil && *w.ref.BlockOwnerDeletion
			} else if !w.absent() && !w.waiting() {
				others = true
			}
		}
		switch {
		case others:
			p.steps = append(p.steps, Step{Verb: disown, Object: d.object, UIDs: []types.UID{o.uid}, Reason: "an owner goes, others stay"})
		case d.object.GetDeletionTimestamp() != nil && len(podset.RemoveAny(d.object, now)) == 0:
		case d.hasDependents && d.object.GetDeletionTimestamp() == nil:
			p.steps = append(p.steps, Step{Verb: cascade, Object: d.object, Reason: "its owner waits for it"})
		default:
			p.steps = append(p.steps, Step{Verb: remove, Object: d.object, Reason: "its owner waits for it"})
		}
	}
	if len(p.steps) > 0 || blocked {
		return p // the dependents' going wakes the owner again
	}
	p.steps = []Step{{Verb: release, Object: o.owner, Finalizer: metav1.FinalizerDeleteDependents, Reason: "no dependent blocks it any more"}}
	return p
}
