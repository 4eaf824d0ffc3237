package statefulset

import (
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// "RollingUpdate: the controller will delete and recreate each Pod, from the largest
// ordinal to the smallest, and wait until an updated Pod is Running and Ready prior
// to updating its predecessor."
func TestRollingUpdateGoesFromTheLastToTheFirst(t *testing.T) {
	w := rolledOut(t, 3)
	first := w.set().Status.CurrentRevision
	w.change(image("b"))
	w.see("0:a 1:a 2:a-")
	st := w.set().Status
	if st.CurrentRevision != first || st.UpdateRevision == first || st.CurrentReplicas != 2 || st.UpdatedReplicas != 0 || st.Replicas != 3 {
		t.Errorf("status %+v", st)
	}
	w.isGone(2)
	w.see("0:a 1:a 2:b!")
	w.ready(2)
	w.see("0:a 1:a- 2:b")
	w.work()
	w.see("0:b 1:b 2:b")
	st = w.set().Status
	if st.CurrentRevision != st.UpdateRevision || st.CurrentReplicas != 3 || st.UpdatedReplicas != 3 {
		t.Errorf("status %+v", st)
	}
	// Back again, which is the first revision with a new number.
	w.change(image("a"))
	w.work()
	w.see("0:a 1:a 2:a")
	if revs := w.revisions(); len(revs) != 2 || revs[1].Name != first || revs[1].Revision != 3 {
		t.Errorf("revisions %v", revs)
	}
}

// "Partition: all Pods with an ordinal greater than or equal to the partition will
// be updated; all with less will not, and even if they are deleted, they will be
// recreated at the previous version."
func TestPartition(t *testing.T) {
	w := rolledOut(t, 3)
	w.change(image("b"), partition(2))
	w.work()
	w.see("0:a 1:a 2:b")
	st := w.set().Status
	if st.CurrentRevision == st.UpdateRevision || st.CurrentReplicas != 2 || st.UpdatedReplicas != 1 {
		t.Errorf("status %+v", st)
	}
	w.Commit(podset.Remove(w.pod(0), w.Now)...)
	w.Settle()
	w.isGone(0)
	w.see("0:a! 1:a 2:b")
	w.work()
	w.change(partition(5)) // "if it is greater than replicas, updates will not be propagated"
	w.change(image("c"))
	w.work()
	w.see("0:a 1:a 2:b")
	w.change(partition(0))
	w.work()
	w.see("0:c 1:c 2:c")
}

// The partition counts from spec.ordinals.start.
func TestPartitionWithAStart(t *testing.T) {
	w := rolledOut(t, 3, func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 7} })
	w.change(image("b"), partition(1))
	w.work()
	w.see("7:a 8:b 9:b")
}

// "OnDelete: the controller will not automatically update the Pods; users must
// manually delete Pods to cause new ones with the change."
func TestOnDelete(t *testing.T) {
	w := rolledOut(t, 2, onDelete)
	w.change(image("b"))
	w.work()
	w.see("0:a 1:a")
	w.Commit(podset.Remove(w.pod(0), w.Now)...)
	w.work()
	w.see("0:b 1:a")
}

// ".spec.updateStrategy.rollingUpdate.maxUnavailable: the maximum number of Pods
// that can be unavailable during an update; an absolute number or a percentage of
// desired Pods, rounded down", and at least one.
func TestMaxUnavailable(t *testing.T) {
	w := rolledOut(t, 4, maxUnavailable("2"))
	w.change(image("b"))
	w.see("0:a 1:a 2:a- 3:a-")
	w.isGone(3)
	w.see("0:a 1:a 2:a-")
	w.isGone(2)
	w.ready(2)
	w.see("0:a 1:a 2:b 3:b!")
	w.ready(3)
	w.see("0:a- 1:a- 2:b 3:b")

	w = rolledOut(t, 4, maxUnavailable("20%"))
	w.change(image("b"))
	w.see("0:a 1:a 2:a 3:a-")
	w = rolledOut(t, 4, maxUnavailable("70%"))
	w.change(image("b"))
	w.see("0:a 1:a 2:a- 3:a-")
}

// maxUnavailable holds for Parallel, too; pods of the old revision that are not
// available go at once.
func TestParallelUpdate(t *testing.T) {
	w := rolledOut(t, 4, parallel, maxUnavailable("2"))
	w.run(w.pod(0), false)
	w.change(image("b"))
	w.see("0:a- 1:a 2:a 3:a-")
	w.isGone(0)
	w.see("0:b! 1:a 2:a 3:a-")
	w.work()
	w.see("0:b 1:b 2:b 3:b")
}

// kubernetes/kubernetes#67250, R13: a revision that never gets ready is replaced by
// the next one without hands, forward as well as back.
func TestAStuckRevisionIsReplacedByTheNext(t *testing.T) {
	for _, next := range []string{"c", "a"} {
		w := rolledOut(t, 3)
		w.change(image("bad"))
		w.work()
		w.see("0:a 1:a 2:bad!")
		w.change(image(next))
		w.see("0:a 1:a 2:bad-")
		w.work()
		w.see("0:" + next + " 1:" + next + " 2:" + next)
	}
}

// R13: also when it was the first one, and when another bad one came between.
func TestAStuckFirstRevisionIsReplacedByTheNext(t *testing.T) {
	w := newWorld(t, t)
	w.Create(db(3, image("bad1")))
	w.work()
	w.see("0:bad1!")
	w.later(patience)
	w.change(image("bad2"))
	w.work()
	w.see("0:bad2!")
	w.later(patience)
	w.change(image("c"))
	w.work()
	w.see("0:c 1:c 2:c")
}

// R13: a pod that is waiting for a node, or for an image that is not there, has no
// status of a container yet.
func TestAPendingPodOfThePastIsReplaced(t *testing.T) {
	w := rolledOut(t, 2)
	w.change(image("bad"))
	w.isGone(1)
	w.see("0:a 1:bad!") // Pending, unbound
	w.change(image("c"))
	w.see("0:a 1:c!") // it goes at once, and so its successor is there
}

// R13: a pod of the last good revision that breaks down does not block the update
// either; while one of the new revision is on its way it is let be.
func TestABrokenPodOfTheLastGoodRevision(t *testing.T) {
	w := rolledOut(t, 3)
	w.run(w.pod(0), false)
	w.change(image("b"))
	w.see("0:a! 1:a 2:a") // it may get ready again
	w.later(patience - time.Second)
	w.see("0:a! 1:a 2:a")
	w.later(time.Second)
	w.see("0:a- 1:a 2:a") // what is not available goes first: the update costs nothing
	w.work()
	w.see("0:b 1:b 2:b")

	w.change(image("bad"))
	w.work()
	w.see("0:b 1:b 2:bad!")
	w.run(w.pod(0), false) // for a while; the bad revision must not spread by that
	w.Settle()
	w.Now = w.Now.Add(time.Hour)
	w.Settle()
	w.see("0:b! 1:b 2:bad!")
	w.change(image("c"))
	w.see("0:b! 1:b 2:bad-")
	w.isGone(2)
	w.see("0:b- 1:b") // nothing of c is on its way: its predecessor must be ready first
	w.work()
	w.see("0:c 1:c 2:c")
}

// With OnDelete and below the partition nothing is replaced, broken or not.
func TestWhatIsNotUpdatedIsNotReplacedWhenItBreaks(t *testing.T) {
	w := rolledOut(t, 2, onDelete)
	w.change(image("b"))
	w.run(w.pod(1), false)
	w.Settle()
	w.see("0:a 1:a!")
	w = rolledOut(t, 2)
	w.change(image("b"), partition(1))
	w.work()
	w.run(w.pod(0), false)
	w.change(image("c"))
	w.see("0:a! 1:b")
}

// ".spec.revisionHistoryLimit: the maximum number of revisions that will be
// maintained in the revision history", besides those in use.
func TestRevisionHistoryLimit(t *testing.T) {
	two := int32(2)
	w := rolledOut(t, 1, func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = &two })
	for _, i := range []string{"b", "c", "d", "e"} {
		w.change(image(i))
		w.work()
	}
	revs := w.revisions()
	if len(revs) != 3 || revs[0].Revision != 3 || revs[2].Name != w.set().Status.CurrentRevision {
		t.Errorf("%d revisions, the first %d", len(revs), revs[0].Revision)
	}
}

// A ControllerRevision without a controller that the selector matches is adopted,
// and a name that is taken is avoided.
func TestRevisionsAreAdoptedAndCollide(t *testing.T) {
	w := rolledOut(t, 1)
	orphan := w.revisions()[0].DeepCopy()
	orphan.OwnerReferences = nil
	w.Update(orphan)
	w.Settle()
	if revs := w.revisions(); len(revs) != 1 || !metav1.IsControlledBy(revs[0], w.set()) {
		t.Errorf("revisions %v", revs)
	}
	w = newWorld(t, t)
	taken := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: orphan.Name}, Revision: 1}
	w.Create(taken)
	w.Create(db(1))
	w.Settle()
	if st := w.set().Status; *st.CollisionCount != 1 || st.UpdateRevision == orphan.Name {
		t.Errorf("status %+v", st)
	}
}

func settings(hash string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}, Data: map[string]string{"color": "red"}}
	api.SetProvenance(cm, api.Provenance{Source: "main", Commit: "c1", Path: "a.yaml", Line: 1, Hash: hash})
	return cm
}

func readsSettings(s *appsv1.StatefulSet) {
	s.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
}

// D13: a commit that changes a ConfigMap which the template names rolls, its revert
// rolls back to the first revision, and a hand edit rolls nothing.
func TestReferredContent(t *testing.T) {
	w := newWorld(t, t)
	w.Create(settings("hash-of-the-first-manifest"))
	w.Create(db(2, readsSettings))
	w.work()
	first := w.set().Status.CurrentRevision
	commit := func(hash string) {
		cm := w.Store.Get(store.Key{GroupResource: api.ConfigMaps(), Namespace: "shop", Name: "settings"}).DeepCopyObject().(*corev1.ConfigMap)
		if hash == "" {
			cm.Data["color"] = "blue"
		} else {
			api.SetProvenance(cm, api.Provenance{Source: "main", Commit: "c2", Path: "a.yaml", Line: 1, Hash: hash})
		}
		w.Update(cm)
		w.work()
	}
	uid := w.pod(1).UID
	if commit(""); w.pod(1).UID != uid || w.set().Status.UpdateRevision != first {
		t.Error("a hand edit rolled")
	}
	commit("another-manifest")
	second := w.set().Status
	if second.CurrentRevision == first || second.CurrentRevision != second.UpdateRevision || w.pod(0).Labels["controller-revision-hash"] != second.CurrentRevision {
		t.Errorf("status %+v", second)
	}
	commit("hash-of-the-first-manifest")
	if got := w.set().Status.CurrentRevision; got != first {
		t.Errorf("the revert runs %s, want %s", got, first)
	}
}

// D13: a revision of a Headway that recorded nothing, or of Kubernetes, is filled in
// and rolls nothing; nor does one that lacks a default of today.
func TestAnUpgradeRollsNothing(t *testing.T) {
	w := newWorld(t, t)
	w.Create(settings("hash-of-the-first-manifest"))
	w.Create(db(1, readsSettings))
	w.work()
	uid := w.pod(0).UID
	rev := w.revisions()[0].DeepCopy()
	delete(rev.Annotations, podset.AnnotationRefs)
	rev.Data.Raw = []byte(`{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"db"}},"spec":{"containers":[{"name":"app","image":"a","envFrom":[{"configMapRef":{"name":"settings"}}]}],"terminationGracePeriodSeconds":30}}}}`)
	w.Update(rev)
	w.work()
	revs := w.revisions()
	if len(revs) != 1 || w.pod(0).UID != uid || podset.RecordedRefs(revs[0])["configmap/settings"] == "" {
		t.Errorf("revisions %v", revs)
	}
}
