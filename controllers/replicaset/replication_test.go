package replicaset

import (
	"slices"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func controllerWorld(t *testing.T) *world {
	w := newWorld(t, t)
	w.Run(NewReplication(Config{Store: w.Writer(), Fence: w.Fence, Now: w.Clock, Random: w.Random}))
	return w
}

func oldWeb(replicas int32) *corev1.ReplicationController {
	labels := map[string]string{"app": "web"}
	return &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ReplicationControllerSpec{Replicas: &replicas, Selector: labels, Template: &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "hello:1"}}}}}}
}

func (w *world) controller() *corev1.ReplicationController {
	return w.Store.Get(store.Key{GroupResource: api.ReplicationControllers(), Namespace: "shop", Name: "web"}).(*corev1.ReplicationController).DeepCopy()
}

// The suite of Kubernetes: "should serve a basic image on each replica", "should
// adopt matching pods on creation", "should release no longer matching pods".
func TestAReplicationControllerKeepsItsPods(t *testing.T) {
	w := controllerWorld(t)
	stray := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "stray", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "hello:1"}}}}
	w.Create(stray)
	w.Create(oldWeb(3))
	w.settle()
	rc := w.controller()
	for _, p := range w.pods() {
		ref := metav1.GetControllerOf(p)
		if ref == nil || ref.Kind != "ReplicationController" || ref.APIVersion != "v1" || ref.UID != rc.UID {
			t.Errorf("pod %s is controlled by %+v", p.Name, ref)
		}
		w.ready(p)
	}
	w.settle()
	rc = w.controller()
	if st := rc.Status; len(w.pods()) != 3 || st.Replicas != 3 || st.ReadyReplicas != 3 || st.AvailableReplicas != 3 || st.FullyLabeledReplicas != 3 || st.ObservedGeneration != 1 {
		t.Fatalf("%d pods, status %+v", len(w.pods()), st)
	}
	commits := w.Commits
	w.settle()
	if w.Commits != commits {
		t.Errorf("%d writes at rest", w.Commits-commits)
	}
	lost := w.pods()[0]
	lost.Labels = map[string]string{"app": "other"}
	w.do(store.Update, lost)
	w.settle()
	if p := w.Store.Get(store.KeyOf(lost)).(*corev1.Pod); metav1.GetControllerOf(p) != nil || len(w.pods()) != 4 {
		t.Errorf("not released: %+v, %d pods", p.OwnerReferences, len(w.pods()))
	}
	two := int32(2)
	rc = w.controller()
	rc.Spec.Replicas, rc.Generation = &two, 2
	w.do(store.Update, rc)
	w.settle()
	terminating := 0
	for _, p := range w.pods() {
		if p.DeletionTimestamp != nil {
			terminating++
		}
	}
	if st := w.controller().Status; st.Replicas != 2 || st.ObservedGeneration != 2 || len(w.pods())-terminating != 3 {
		t.Errorf("scaled down: status %+v, %d pods, %d of them terminating", st, len(w.pods()), terminating)
	}
}

// The suite of Kubernetes: "should surface a failure condition on a common issue
// like exceeded quota"; here it is a namespace that is not there.
func TestAReplicationControllerTellsWhatIsRefused(t *testing.T) {
	w := controllerWorld(t)
	rc := oldWeb(1)
	rc.Namespace = "nowhere"
	w.Create(rc)
	w.settle()
	got := w.Store.Get(store.KeyOf(rc)).(*corev1.ReplicationController).Status.Conditions
	if len(got) != 1 || got[0].Type != corev1.ReplicationControllerReplicaFailure || got[0].Reason != "FailedCreate" {
		t.Fatalf("conditions %+v", got)
	}
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}})
	w.Now = w.Loop.Next()
	w.settle()
	if st := w.Store.Get(store.KeyOf(rc)).(*corev1.ReplicationController).Status; len(st.Conditions) != 0 || st.Replicas != 1 {
		t.Errorf("status %+v", st)
	}
}

// https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost:
// the pod that costs less goes first, of pods that are equally far.
func TestPodDeletionCost(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(3))
	w.settle()
	for i, p := range w.pods() {
		if cost := []string{"10", "", "-5"}[i]; cost != "" {
			p.Annotations = map[string]string{corev1.PodDeletionCost: cost}
		}
		w.ready(p)
	}
	dear, free := w.pods()[0].Name, w.pods()[1].Name
	for _, want := range [][]string{{dear, free}, {dear}} {
		set := w.set()
		n := int32(len(want))
		set.Spec.Replicas = &n
		w.do(store.Update, set)
		w.settle()
		var stay []string
		for _, p := range w.pods() {
			if p.DeletionTimestamp == nil {
				stay = append(stay, p.Name)
			}
		}
		if !slices.Equal(stay, want) {
			t.Fatalf("%v stay, want %v", stay, want)
		}
	}
}
