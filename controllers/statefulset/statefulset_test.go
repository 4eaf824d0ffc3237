package statefulset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// "Pods are created sequentially, in order from {0..N-1}; before a Pod is created,
// all its predecessors must be Running and Ready" (StatefulSet, deployment and
// scaling guarantees).
func TestOrderedPodsAreMadeOneAfterAnother(t *testing.T) {
	w := newWorld(t, t)
	w.Create(db(3))
	w.Settle()
	w.see("0:a!")
	w.run(w.pod(0), false)
	w.Settle()
	w.see("0:a!")
	w.ready(0)
	w.see("0:a 1:a!")
	w.run(w.pod(0), false) // a predecessor is ready no more
	w.ready(1)
	w.see("0:a! 1:a")
	w.ready(0)
	w.see("0:a 1:a 2:a!")
	st := w.set().Status
	if st.Replicas != 3 || st.ReadyReplicas != 2 || st.AvailableReplicas != 2 || st.CurrentReplicas != 3 || st.UpdatedReplicas != 3 ||
		st.ObservedGeneration != w.set().Generation || st.CurrentRevision != st.UpdateRevision || *st.CollisionCount != 0 {
		t.Errorf("status %+v", st)
	}
	if got := strings.Join(w.Events("shop", "SuccessfulCreate"), "|"); got != "Create Pod db-0 in StatefulSet db successful|Create Pod db-1 in StatefulSet db successful|Create Pod db-2 in StatefulSet db successful" {
		t.Errorf("events %s", got)
	}
}

// "Each Pod has a unique identity: an ordinal index, a stable network identity":
// name, hostname and subdomain, the labels pod-name and apps.kubernetes.io/pod-index,
// and the revision's name.
func TestThePodsIdentity(t *testing.T) {
	w := rolledOut(t, 2)
	p := w.pod(1)
	rev := w.revisions()[0]
	for key, want := range map[string]string{"app": "db", "statefulset.kubernetes.io/pod-name": "db-1", "apps.kubernetes.io/pod-index": "1", "controller-revision-hash": rev.Name} {
		if p.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, p.Labels[key], want)
		}
	}
	if p.Spec.Hostname != "db-1" || p.Spec.Subdomain != "peers" || p.GenerateName != "db-" || !metav1.IsControlledBy(p, w.set()) {
		t.Errorf("hostname %q, subdomain %q, owners %v", p.Spec.Hostname, p.Spec.Subdomain, p.OwnerReferences)
	}
	if rev.Revision != 1 || !metav1.IsControlledBy(rev, w.set()) || rev.Annotations["team"] != "red" || rev.Annotations[api.AnnotationSource] != "" || rev.Labels["app"] != "db" {
		t.Errorf("revision %+v", rev)
	}
	if template, err := podset.RevisionTemplate(rev); err != nil || template.Spec.Containers[0].Image != "a" || !strings.Contains(string(rev.Data.Raw), `"$patch":"replace"`) {
		t.Errorf("the revision keeps %s, %v", rev.Data.Raw, err)
	}
	// Labels that somebody took are put back.
	stripped := p.DeepCopy()
	delete(stripped.Labels, "statefulset.kubernetes.io/pod-name")
	w.Update(stripped)
	w.Settle()
	if w.pod(1).Labels["statefulset.kubernetes.io/pod-name"] != "db-1" {
		t.Errorf("labels %v", w.pod(1).Labels)
	}
}

// ".spec.ordinals.start: pods are assigned ordinals from start to start+replicas-1."
func TestOrdinalsStart(t *testing.T) {
	start := func(n int32) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: n} }
	}
	w := rolledOut(t, 2, start(5))
	w.see("5:a 6:a")
	w.change(start(6))
	w.see("5:a 6:a 7:a!")
	w.work()
	w.see("6:a 7:a")
}

// "When Pods are being deleted, they are terminated in reverse order; before a Pod
// is terminated, all of its successors must be completely shutdown."
func TestScalingDownEndsTheLastFirst(t *testing.T) {
	w := rolledOut(t, 3)
	w.change(replicas(1))
	w.see("0:a 1:a 2:a-")
	w.isGone(2)
	w.see("0:a 1:a-")
	w.isGone(1)
	w.see("0:a")
	if st := w.set().Status; st.Replicas != 1 || st.CurrentReplicas != 1 {
		t.Errorf("status %+v", st)
	}
}

// "Before a scaling operation is applied to a Pod, all of its predecessors must be
// Running and Ready."
func TestScalingDownWaitsForThePredecessors(t *testing.T) {
	w := rolledOut(t, 3)
	w.run(w.pod(0), false)
	w.change(replicas(2))
	w.see("0:a! 1:a 2:a")
	w.ready(0)
	w.see("0:a 1:a 2:a-")
}

// "Parallel pod management: launch or terminate all Pods in parallel, and not wait
// for Pods to become Running and Ready or completely terminated."
func TestParallelPodsAreMadeAndEndedTogether(t *testing.T) {
	w := newWorld(t, t)
	w.Create(db(3, parallel))
	w.Settle()
	w.see("0:a! 1:a! 2:a!")
	w.work()
	w.run(w.pod(0), false)
	w.change(replicas(1))
	w.see("0:a! 1:a- 2:a-")
}

// R10: the replacement is created only after the old pod is known stopped: its
// agent reported it, which is when the object goes, however long that takes and
// whatever the pod's phase; or the operator declared the node gone, which is when
// the object is taken away.
func TestR10_AReplacementWaitsUntilTheOldPodIsGone(t *testing.T) {
	for _, policy := range []func(*appsv1.StatefulSet){func(*appsv1.StatefulSet) {}, parallel} {
		w := rolledOut(t, 2, policy)
		uid := w.pod(1).UID
		w.Commit(podset.Remove(w.pod(1), w.Now)...) // evicted, or deleted by hand
		w.Settle()
		w.see("0:a 1:a-")
		w.Now = w.Now.Add(24 * time.Hour) // its node is lost
		w.Settle()
		w.see("0:a 1:a-")
		lost := w.pod(1).DeepCopy()
		lost.Status.Phase = corev1.PodUnknown
		w.Update(lost)
		w.Settle()
		w.see("0:a 1:a-")
		w.isGone(1)
		w.see("0:a 1:a!")
		if w.pod(1).UID == uid {
			t.Error("it is the same pod")
		}
	}
}

// R10: a pod over its deadline is Failed while its containers are still being
// stopped.
func TestR10_AFailedPodThatStillRunsIsNotReplaced(t *testing.T) {
	w := rolledOut(t, 1)
	failed := w.pod(0).DeepCopy()
	failed.Status.Phase, failed.Status.Reason = corev1.PodFailed, "DeadlineExceeded"
	failed.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	w.Update(failed)
	w.Settle()
	w.see("0:a-")
	w.isGone(0)
	w.see("0:a!")
}

// R10: a name that an object of somebody else has is waited for.
func TestR10_ANameInUseIsWaitedFor(t *testing.T) {
	w := newWorld(t, t)
	w.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "x", Image: "other"}}}})
	w.Create(db(1))
	w.Settle()
	w.see("0:other!")
	w.Commit(store.Op{Verb: store.Delete, Object: w.pod(0)})
	w.Settle()
	w.see("0:a!")
}

// R10: the old pod of the set's earlier life, which it left behind, is no
// replacement's to run beside.
func TestR10_ASetMadeAnewWaitsForThePodsOfTheOldOne(t *testing.T) {
	w := rolledOut(t, 1)
	w.Commit(store.Op{Verb: store.Delete, Object: w.set()})
	w.Create(db(1, image("b")))
	w.Settle()
	w.see("0:a") // the garbage collector will delete it
	w.Commit(podset.Remove(w.pod(0), w.Now)...)
	w.Settle()
	w.see("0:a-")
	w.isGone(0)
	w.see("0:b!")
}

// A pod that ended is replaced, whatever its exit code was.
func TestEndedPodsAreReplaced(t *testing.T) {
	w := rolledOut(t, 2)
	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		uid := w.pod(0).UID
		p := w.pod(0).DeepCopy()
		p.Status.Phase = phase
		w.Update(p)
		w.Settle()
		w.see("0:a! 1:a")
		if w.pod(0).UID == uid {
			t.Errorf("%s: it was not replaced", phase)
		}
		w.ready(0)
	}
	if got := w.Events("shop", "SuccessfulDelete"); len(got) != 1 || got[0] != "Delete Pod db-0 in StatefulSet db successful" {
		t.Errorf("events %v", got)
	}
}

// A pod that its node rejects is replaced, too, but no more often than once a second.
func TestRejectedPodsAreReplacedAtLeisure(t *testing.T) {
	w := rolledOut(t, 2)
	w.Commit(podset.Remove(w.pod(0), w.Now)...)
	w.Settle()
	w.isGone(0)
	p := w.pod(0).DeepCopy()
	p.Spec.NodeName, p.Status.Phase, p.Status.Reason = "n1", corev1.PodFailed, "NodePorts"
	w.Update(p)
	w.Settle()
	if now := w.pod(0); now.UID != p.UID || now.DeletionTimestamp != nil {
		t.Fatal("replaced at once")
	}
	w.Now = w.Now.Add(time.Second)
	w.Settle()
	if w.pod(0).UID == p.UID {
		t.Error("not replaced")
	}
}

// "A Pod that matches the selector, has such a name and no controller is adopted;
// one that the selector does not match any more is released."
func TestAdoptionAndRelease(t *testing.T) {
	w := rolledOut(t, 2)
	orphan := w.pod(0).DeepCopy()
	orphan.OwnerReferences = nil
	w.Update(orphan)
	w.Settle()
	if !metav1.IsControlledBy(w.pod(0), w.set()) {
		t.Error("it was not adopted")
	}
	stranger := w.pod(1).DeepCopy()
	stranger.Labels["app"] = "other"
	w.Update(stranger)
	w.Settle()
	if metav1.GetControllerOf(w.pod(1)) != nil {
		t.Error("it was not released")
	}
	w.see("0:a 1:a") // and its name is in use
	w.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-01", Labels: map[string]string{"app": "db"}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	w.Settle()
	if obj := w.Store.Get(store.Key{GroupResource: api.Pods(), Namespace: "shop", Name: "db-01"}); metav1.GetControllerOf(obj) != nil {
		t.Error("db-01 is nobody's name and was adopted")
	}
}

// A set that is being deleted makes and ends no pods; its status is kept.
func TestASetThatIsBeingDeleted(t *testing.T) {
	w := rolledOut(t, 2)
	s := w.set()
	s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: w.Now}, []string{metav1.FinalizerDeleteDependents}
	w.Update(s)
	w.Commit(store.Op{Verb: store.Delete, Object: w.pod(1)})
	w.Settle()
	w.see("0:a")
	if st := w.set().Status; st.Replicas != 1 {
		t.Errorf("status %+v", st)
	}
}

// ".spec.minReadySeconds: how long a Pod must be ready to be considered available";
// it holds for making pods and for updates.
func TestMinReadySeconds(t *testing.T) {
	w := newWorld(t, t)
	w.Create(db(2, func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 10 }))
	w.Settle()
	w.ready(0)
	w.see("0:a")
	if st := w.set().Status; st.ReadyReplicas != 1 || st.AvailableReplicas != 0 {
		t.Errorf("status %+v", st)
	}
	w.Now = w.Now.Add(10 * time.Second)
	w.Settle()
	w.see("0:a 1:a!")
	w.ready(1)
	w.Now = w.Now.Add(10 * time.Second)
	w.change(image("b"))
	w.see("0:a 1:a-")
	w.isGone(1)
	w.ready(1)
	w.see("0:a 1:b")
	w.Now = w.Now.Add(10 * time.Second)
	w.Settle()
	w.see("0:a- 1:b")
}

// A pod that may not enter is told of, and tried again; no claims are made for it.
func TestR12_ARefusedPodIsToldOf(t *testing.T) {
	w := newWorld(t, t)
	handler := "gvisor"
	w.Create(db(1, retain("Retain", "Retain"), func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.RuntimeClassName = &handler }))
	w.Settle()
	w.see("")
	got := w.Events("shop", "FailedCreate")
	if len(got) != 1 || !strings.HasPrefix(got[0], "Create Pod db-0 in StatefulSet db failed error: ") || !strings.Contains(got[0], "spec.runtimeClassName: Forbidden: not supported by this version of Headway") {
		t.Errorf("events %v", got)
	}
	if n := len(w.Store.List(api.PersistentVolumeClaims(), "shop")); n != 0 {
		t.Errorf("%d claims were made for no pod", n)
	}
	if st := w.set().Status; st.ObservedGeneration != 1 || st.Replicas != 0 {
		t.Errorf("status %+v", st)
	}
}

// A hundred pods and more are made in several transactions.
func TestManyParallelPods(t *testing.T) {
	w := newWorld(t, t)
	w.Create(db(120, parallel))
	w.Settle()
	if n := len(w.pods()); n != 120 {
		t.Errorf("%d pods", n)
	}
	if st := w.set().Status; st.Replicas != 120 {
		t.Errorf("status %+v", st)
	}
}

// Nothing is written when nothing is to be done.
func TestSteadyStateIsSilent(t *testing.T) {
	w := rolledOut(t, 3)
	before := w.Commits
	for range 3 {
		w.Now = w.Now.Add(10 * time.Minute)
		w.Settle()
	}
	if w.Commits != before {
		t.Errorf("%d commits", w.Commits-before)
	}
	if names := fmt.Sprint(len(w.revisions())); names != "1" {
		t.Errorf("%s revisions", names)
	}
}

// "Before a scaling operation is applied to a Pod, all of its predecessors must be
// Running and Ready": https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#deployment-and-scaling-guarantees
func TestScalingDownHaltsWhileAPredecessorIsNotReady(t *testing.T) {
	w := rolledOut(t, 3)
	for n := range 3 {
		w.run(w.pod(n), false)
	}
	w.change(replicas(0))
	w.see("0:a! 1:a! 2:a!")
	w.ready(0)
	w.see("0:a 1:a! 2:a!")
	w.ready(1) // 2 alone is not ready: nothing is below it that could suffer
	if p := w.pod(2); p.DeletionTimestamp == nil {
		t.Fatalf("pods are %s, want 2 to go", w.picture())
	}
	w.isGone(2)
	if p := w.pod(1); p.DeletionTimestamp == nil {
		t.Fatalf("pods are %s, want 1 to go", w.picture())
	}
}

// R13: pods that the set has left behind hold up no scaling down.
func TestR13_ScalingDownPassesPodsOfABadRevision(t *testing.T) {
	w := rolledOut(t, 3)
	for n := range 3 {
		w.run(w.pod(n), false)
	}
	w.change(replicas(1), image("hello:2"))
	w.later(patience)
	w.isGone(0) // the one that stays is replaced first
	w.ready(0)
	if p := w.pod(2); p.DeletionTimestamp == nil {
		t.Fatalf("pods are %s, want 2 to go", w.picture())
	}
	w.isGone(2)
	w.isGone(1)
	w.see("0:hello:2")
}

// What has a revision of its own for good, under OnDelete, halts it all the same.
func TestScalingDownHaltsUnderOnDelete(t *testing.T) {
	w := rolledOut(t, 3, onDelete)
	w.change(image("hello:2"))
	for n := range 3 {
		w.run(w.pod(n), false)
	}
	w.change(replicas(0))
	w.see("0:a! 1:a! 2:a!")
}
