package statefulset

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// labelHash is where Kubernetes has the hash of a StatefulSet's revision.
const labelHash = "controller.kubernetes.io/hash"

// ordinals are those that the set wants: from first on, below end.
func ordinals(set *appsv1.StatefulSet) (first, end int) {
	if set.Spec.Ordinals != nil {
		first = int(set.Spec.Ordinals.Start)
	}
	n := 1
	if set.Spec.Replicas != nil {
		n = int(*set.Spec.Replicas)
	}
	return first, first + n
}

func podName(set *appsv1.StatefulSet, ordinal int) string {
	return set.Name + "-" + strconv.Itoa(ordinal)
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }

func keysOf[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

// identity are the labels that tell a pod from its siblings.
func identity(set *appsv1.StatefulSet, ordinal int) map[string]string {
	return map[string]string{
		appsv1.StatefulSetPodNameLabel: podName(set, ordinal),
		appsv1.PodIndexLabel:           strconv.Itoa(ordinal),
	}
}

// newPod makes the pod of an ordinal and revision, which is not admitted yet.
func (d *decision) newPod(ordinal int, revision string) *corev1.Pod {
	pod := podset.New(d.set, d.templates[revision])
	pod.Name = podName(d.set, ordinal)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, identity(d.set, ordinal))
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, d.set.Spec.ServiceName
	pod.Spec.Volumes = withClaims(d.set, ordinal, pod.Spec.Volumes)
	return pod
}

// revisionFor is the revision that a new pod gets: below the partition the one
// before.
func (d *decision) revisionFor(ordinal int) string {
	if d.rolling() && ordinal < d.firstUpdated {
		return d.current
	}
	return d.update.To.Name
}

func (d *decision) ready(s *slot) bool {
	return s.pod != nil && s.pod.Status.Phase == corev1.PodRunning && podset.Ready(s.pod)
}

// available says whether a slot's pod is so, and stays.
func (d *decision) available(s *slot) bool {
	if s.pod == nil || s.removed || s.pod.DeletionTimestamp != nil || podset.Terminal(s.pod) {
		return false
	}
	ok, _ := podset.Available(s.pod, d.set.Spec.MinReadySeconds, d.now)
	return ok
}

// serve looks after the pods that the set wants, the lowest ordinal first, and says
// whether the plan may go on to scaling down. With OrderedReady the first pod that
// is not available ends it.
func (d *decision) serve() bool {
	for _, s := range d.replicas {
		done := d.serveOne(s)
		if d.ordered && !done {
			d.replaceStuck()
			return false
		}
		if d.ordered {
			d.witnesses = append(d.witnesses, s.pod)
		}
	}
	return true
}

// serveOne says whether a slot has an available pod. It creates one where there is
// none, and deletes one that has ended: its successor is made when it is gone.
func (d *decision) serveOne(s *slot) bool {
	switch {
	case s.pod == nil:
		d.fill(s)
		return false
	case podset.Terminal(s.pod):
		if left := podset.RejectionWait([]*corev1.Pod{s.pod}, 1, d.now); left > 0 {
			d.sooner(left, "its node rejected the pod") // and will the next, most likely
			return false
		}
		if s.pod.DeletionTimestamp == nil {
			d.remove(s, "it has ended")
		}
		return false
	case s.pod.DeletionTimestamp != nil:
		return false
	}
	if s.pod.Status.Phase == corev1.PodPending || s.pod.Status.Phase == "" {
		d.claimsFor(s) // one may have been deleted while the pod waits for it
	}
	if d.ordered && !d.available(s) {
		return false
	}
	d.ownClaims(s, false)
	for key, value := range identity(d.set, s.ordinal) {
		if s.pod.Labels[key] != value && d.left > 0 {
			d.left--
			d.add(Step{Verb: relabel, Pod: s.pod, Reason: "it lacks the labels of its identity"})
			break
		}
	}
	return d.available(s)
}

// fill creates a slot's pod, with its claims, when nothing has its name.
func (d *decision) fill(s *slot) {
	revision := d.revisionFor(s.ordinal)
	if _, no := d.refused[revision]; no || d.foreign[s.ordinal] || d.closed || d.left == 0 || !d.claimsFor(s) {
		return
	}
	d.left--
	s.creating = d.newPod(s.ordinal, revision)
	d.add(Step{Verb: create, Pod: s.creating, Revision: revision, Reason: fmt.Sprintf("ordinal %d has no pod", s.ordinal)})
}

func (d *decision) remove(s *slot, reason string) {
	if d.left == 0 || s.removed {
		return
	}
	d.left--
	s.removed = true
	d.add(Step{Verb: remove, Pod: s.pod, Reason: reason})
}

// condemn deletes what is too many, and says whether the plan may go on to the
// update. With OrderedReady the highest ordinal goes first, and is gone before the
// next goes; and scaling down halts while it and one below it are not available, as
// Kubernetes documents. Pods of a revision that the set has left behind hold
// nothing up: what is stuck must not block its fix (R13).
func (d *decision) condemn() bool {
	for _, s := range d.condemned {
		d.ownClaims(s, true)
		if d.ordered && !d.available(s) && s != d.lowestUnavailable() && (!d.rolling() || revisionOf(s.pod) == d.revisionFor(s.ordinal)) {
			return false
		}
		if s.pod.DeletionTimestamp == nil {
			d.remove(s, "too many replicas")
		}
		if d.ordered {
			return false
		}
	}
	return true
}

// lowestUnavailable is the first of the pods that are too many which is not available;
// nil: all are.
func (d *decision) lowestUnavailable() *slot {
	for _, s := range slices.Backward(d.condemned) {
		if !d.available(s) {
			return s
		}
	}
	return nil
}

// roll replaces pods of another revision, the highest ordinal first, down to the
// partition, while no more than maxUnavailable are not available.
func (d *decision) roll() {
	if !d.rolling() {
		return
	}
	spare := d.budget
	for _, s := range d.replicas {
		if !d.available(s) {
			spare--
		}
	}
	// Those that are not available cost nothing. With OrderedReady there are none
	// here.
	for _, s := range d.old() {
		if !d.available(s) {
			d.remove(s, "it is of another revision, and not available")
		}
	}
	deleted := false
	for _, s := range d.old() {
		if spare > 0 && d.available(s) {
			d.remove(s, "it is of another revision")
			spare--
			deleted = true
		}
	}
	if deleted {
		d.witnesses = nil
		for _, s := range d.replicas {
			if d.available(s) {
				d.witnesses = append(d.witnesses, s.pod)
			}
		}
	} else if d.ordered {
		d.witnesses = nil // nothing is created or deleted
	}
}

// old are the slots whose pods the update has to replace, the highest first.
func (d *decision) old() []*slot {
	var out []*slot
	for i := len(d.replicas) - 1; i >= 0; i-- {
		s := d.replicas[i]
		if s.ordinal >= d.firstUpdated && s.pod != nil && !s.removed && s.pod.DeletionTimestamp == nil && !podset.Terminal(s.pod) && revisionOf(s.pod) != d.update.To.Name {
			out = append(out, s)
		}
	}
	return out
}

// patience is how long a pod of the last good revision may be not ready before an
// update replaces it: what passes by itself halts the update, as in Kubernetes.
const patience = time.Minute

// replaceStuck deletes pods that are not ready and that the update would replace
// anyway, where it would wait for them for ever: see the package's comment.
func (d *decision) replaceStuck() {
	if !d.rolling() {
		return
	}
	moving := d.moving()
	for _, s := range d.old() {
		if !d.ready(s) && revisionOf(s.pod) != d.current {
			d.remove(s, "it is not ready, and of a revision that is past")
			moving++
		}
	}
	if moving > 0 {
		return
	}
	for _, s := range d.old() {
		if d.ready(s) || moving >= d.budget {
			continue
		}
		if left := patience - d.now.Sub(podset.UnreadySince(s.pod)); left > 0 {
			d.sooner(left, "a pod of the last good revision may get ready again")
			continue
		}
		d.remove(s, "it is not ready, and of another revision")
		moving++
	}
}

// moving counts the pods that may become available of the newest revision before
// long: started, or about to end within their grace.
func (d *decision) moving() int {
	n := 0
	for _, s := range d.replicas {
		switch {
		case s.creating != nil, s.removed:
			n++
		case s.pod == nil || podset.Terminal(s.pod):
		case s.pod.DeletionTimestamp != nil:
			if left := s.pod.DeletionTimestamp.Sub(d.now); left > 0 {
				d.sooner(left, "a pod to end")
				n++
			}
		case revisionOf(s.pod) == d.update.To.Name && !d.available(s):
			n++
		}
	}
	return n
}
