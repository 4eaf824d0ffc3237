package deployment

import (
	"context"
	"fmt"
	"slices"
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

func TestADeploymentBecomesPodsInOneTransaction(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(3, "25%", "25%"))
	w.Loop.Step(context.Background())
	w.Sync()
	if w.Commits != 1 {
		t.Fatalf("%d transactions, want 1", w.Commits)
	}
	w.see("1:3/3/0")
	w.progressing(reasonCreated)
	rs, d := w.sets()[0], w.deployment()
	if d.Annotations[annotationRevision] != "1" || d.Status.Replicas != 3 || d.Status.UpdatedReplicas != 3 || d.Status.UnavailableReplicas != 3 || d.Status.ObservedGeneration != 1 {
		t.Errorf("revision %q, status %+v", d.Annotations[annotationRevision], d.Status)
	}
	if rs.Status.Replicas != 3 || rs.Status.FullyLabeledReplicas != 3 || rs.Status.ObservedGeneration != rs.Generation {
		t.Errorf("status of the set: %+v", rs.Status)
	}
	if rs.Annotations["team"] != "red" || rs.Annotations[annotationDesired] != "3" || rs.Annotations[annotationMax] != "4" {
		t.Errorf("annotations of the set: %v", rs.Annotations)
	}
	if _, declared := api.ProvenanceOf(rs); declared {
		t.Error("the set looks declared: the syncer would prune it")
	}
	for _, p := range w.pods() {
		ref := metav1.GetControllerOf(p)
		if ref == nil || ref.UID != rs.UID || ref.Kind != "ReplicaSet" || ref.APIVersion != "apps/v1" {
			t.Errorf("controller of %s: %+v", p.Name, ref)
		}
		if !strings.HasPrefix(p.Name, rs.Name+"-") || p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "" || p.Spec.ServiceAccountName != "default" {
			t.Errorf("pod %s, labels %v, account %q", p.Name, p.Labels, p.Spec.ServiceAccountName)
		}
	}
	w.work()
	w.see("1:3/3/3")
	w.progressing(reasonComplete)
	want := []string{"Scaled up replica set " + rs.Name + " from 0 to 3"}
	if got := w.Events("shop", "ScalingReplicaSet"); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestIdleWritesNothing(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(3, "25%", "25%"))
	w.work()
	before := w.Commits
	for range 20 {
		w.Now = w.Now.Add(time.Minute)
		w.Loop.Wake(store.KeyOf(w.deployment()))
		w.Settle()
	}
	if w.Commits != before {
		t.Fatalf("%d transactions without a reason", w.Commits-before)
	}
}

func TestRollingUpdateStepByStep(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(10, "25%", "25%"))
	w.work()
	w.change(image("hello:2"))
	w.Settle()
	w.see("1:8/8/8 2:5/5/0")
	w.progressing(reasonCreated)
	n := 0
	for _, p := range w.pods() {
		if podset.Active(p) && !podset.Ready(p) && n < 2 {
			w.run(p, true)
			n++
		}
	}
	w.Settle()
	w.see("1:6/6/6 2:7/7/2")
	w.progressing(reasonUpdated)
	w.work()
	w.see("1:0/0/0 2:10/10/10")
	w.progressing(reasonComplete)
	if d := w.deployment(); d.Annotations[annotationRevision] != "2" {
		t.Errorf("revision %s", d.Annotations[annotationRevision])
	}
}

func TestRevertRollsBackToTheOldSet(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(2, "1", "0"))
	w.work()
	first := w.sets()[0].Name
	w.change(image("hello:2"))
	w.work()
	w.change(image("hello:1"))
	w.work()
	w.see("2:0/0/0 3:2/2/2")
	if rs := w.sets()[1]; rs.Name != first || rs.Annotations[annotationHistory] != "1" {
		t.Errorf("set %s, history %q, want %s and 1", rs.Name, rs.Annotations[annotationHistory], first)
	}
}

func TestRolloverWhileRolling(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(4, "1", "1"))
	w.work()
	w.change(image("hello:bad"))
	w.Settle()
	w.see("1:3/3/3 2:2/2/0")
	w.change(image("hello:3"))
	w.Settle()
	w.see("1:3/3/3 2:0/0/0 3:2/2/0")
	w.work()
	w.see("1:0/0/0 2:0/0/0 3:4/4/4")
}

func TestAVersionThatNeverGetsReadyStopsTheRollout(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(4, "25%", "25%"))
	w.work()
	w.change(image("hello:bad"))
	w.Settle()
	w.see("1:3/3/3 2:2/2/0")
	w.Now = w.Loop.Next()
	w.Settle()
	w.see("1:3/3/3 2:2/2/0")
	w.progressing(reasonTimedOut)
	if c := condition(w.deployment().Status.Conditions, appsv1.DeploymentAvailable); c.Status != corev1.ConditionTrue {
		t.Errorf("condition Available is %+v", c)
	}
	w.change(image("hello:1")) // the fix
	w.work()
	w.see("2:0/0/0 3:4/4/4")
	w.progressing(reasonComplete)
}

func TestRecreateWaitsForTheOldPodsToBeGone(t *testing.T) {
	w := newWorld(t, t)
	d := web(2, "1", "0")
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	w.Create(d)
	w.work()
	w.change(image("hello:2"))
	w.Settle()
	w.see("1:0/0/0")
	for _, p := range w.pods() {
		if p.DeletionTimestamp == nil {
			t.Errorf("%s is not being deleted", p.Name)
		}
	}
	w.end(w.pods()[0])
	w.Settle()
	w.see("1:0/0/0")
	w.end(w.pods()[0])
	w.Settle()
	w.see("1:0/0/0 2:2/2/0")
}

func TestPausedHoldsTheRolloutAndStillScales(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(4, "1", "1"))
	w.work()
	w.change(func(d *appsv1.Deployment) { image("hello:2")(d); d.Spec.Paused = true })
	w.Settle()
	w.see("1:4/4/4")
	w.progressing(reasonPaused)
	w.change(replicas(6))
	w.work()
	w.see("1:6/6/6")
	w.change(func(d *appsv1.Deployment) { d.Spec.Paused = false })
	w.work()
	w.see("1:0/0/0 2:6/6/6")
}

func TestScalingDuringARolloutIsProportional(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(10, "3", "2"))
	w.work()
	w.change(image("hello:2"))
	w.Settle()
	w.see("1:8/8/8 2:5/5/0")
	w.change(replicas(15))
	w.Sync()
	w.Loop.Step(context.Background())
	w.Sync()
	w.see("1:11/11/8 2:7/7/0")
	w.work()
	w.see("1:0/0/0 2:15/15/15")
}

func TestScaleDownTakesTheLeastMissed(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(3, "1", "1"))
	w.Settle()
	keep := w.pods()[1]
	w.run(keep, true)
	w.change(replicas(1))
	w.work()
	w.see("1:1/1/1")
	if got := w.pods()[0].Name; got != keep.Name {
		t.Errorf("%s stayed, want the ready one, %s", got, keep.Name)
	}
}

func TestAPodThatFailsIsReplaced(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(2, "1", "1"))
	w.work()
	w.end(w.pods()[0])
	w.Settle()
	w.see("1:2/2/1")
	w.Commit(podset.Remove(w.pods()[1], w.Now)...)
	w.work()
	w.see("1:2/2/2")
}

func TestHistoryIsCleanedUp(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(1, "1", "0"))
	w.work()
	for _, name := range []string{"hello:2", "hello:3", "hello:4", "hello:5"} {
		w.change(image(name))
		w.work()
	}
	w.see("3:0/0/0 4:0/0/0 5:1/1/1")
}

func TestMinReadySecondsDelaysAvailability(t *testing.T) {
	w := newWorld(t, t)
	d := web(2, "1", "0")
	d.Spec.MinReadySeconds = 30
	w.Create(d)
	w.Settle()
	for _, p := range w.pods() {
		w.run(p, true)
	}
	w.Settle()
	w.see("1:2/2/0")
	if got := w.Loop.Next().Sub(w.Now); got != 30*time.Second {
		t.Fatalf("looks again in %v, want 30s", got)
	}
	w.Now = w.Loop.Next()
	w.Settle()
	w.progressing(reasonComplete)
}

func TestSetsAndPodsAreAdoptedAndReleased(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(2, "1", "0"))
	w.work()
	rs := w.sets()[0].DeepCopy()
	rs.OwnerReferences = nil
	w.Update(rs)
	pod := w.pods()[0].DeepCopy()
	pod.OwnerReferences = nil
	w.Update(pod)
	w.Settle()
	if !metav1.IsControlledBy(w.sets()[0], w.deployment()) || !metav1.IsControlledBy(w.pods()[0], rs) {
		t.Fatal("orphans were not adopted")
	}
	w.see("1:2/2/2")
	pod = w.pods()[0].DeepCopy()
	pod.Labels = map[string]string{"app": "debug"}
	w.Update(pod)
	w.work()
	w.see("1:2/2/2")
	if len(w.pods()) != 3 {
		t.Fatalf("%d pods, want 3: two and the released one", len(w.pods()))
	}
}

func TestNamesAreKubernetesOwn(t *testing.T) {
	// The hash that kube-controller-manager 1.37.2 gives (pkg/controller.ComputeHash).
	d := web(1, "1", "0")
	if got, want := templateHash(&d.Spec.Template, nil), "7f78586dbb"; got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
	one := int32(1)
	if got, want := templateHash(&d.Spec.Template, &one), "58588b7c75"; got != want {
		t.Errorf("hash %s with a collision, want %s", got, want)
	}
}

func TestATakenNameIsACollision(t *testing.T) {
	w := newWorld(t, t)
	d := web(1, "1", "0")
	foreign := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-" + templateHash(&d.Spec.Template, nil)},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}}}
	w.Create(foreign)
	w.Create(d)
	w.work()
	got := w.deployment()
	if got.Status.CollisionCount == nil || *got.Status.CollisionCount != 1 || got.Status.AvailableReplicas != 1 {
		t.Fatalf("status %+v", got.Status)
	}
}

func TestNothingIsCreatedInANamespaceThatGoes(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(2, "1", "0"))
	w.work()
	ns := w.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: "shop"}).(*corev1.Namespace).DeepCopy()
	ns.Status.Phase = corev1.NamespaceTerminating
	w.Update(ns)
	w.change(image("hello:2"))
	w.end(w.pods()[0])
	w.Settle()
	w.see("1:2/1/1")
}

func TestALargeDeploymentRollsInBoundedTransactions(t *testing.T) {
	for _, n := range []int32{150, 400} { // below and above what witnesses can hold
		w := newWorld(t, t)
		w.Judge = w.checkR6
		w.Create(web(n, "25%", "25%"))
		w.work()
		w.see(fmt.Sprintf("1:%[1]d/%[1]d/%[1]d", n))
		w.change(image("hello:2"))
		w.work()
		w.see(fmt.Sprintf("1:0/0/0 2:%[1]d/%[1]d/%[1]d", n))
	}
}

func TestASetThatDoesNotSayItsSizeIsAdopted(t *testing.T) {
	w := newWorld(t, t)
	d := web(2, "1", "0")
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old", Labels: map[string]string{"app": "web"}},
		Spec: appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template}}
	w.Create(rs)
	w.Create(d)
	w.work()
	w.see("1:2/2/2")
	if got := w.sets()[0].Name; got != "old" {
		t.Errorf("set %s, want the one that was there", got)
	}
}

func TestRefusedPodsAreToldAndRetried(t *testing.T) {
	w := newWorld(t, t)
	d := web(2, "1", "0")
	d.Namespace = "nowhere"
	w.Create(d)
	w.Settle()
	got := w.Store.Get(store.KeyOf(d)).(*appsv1.Deployment)
	c := condition(got.Status.Conditions, appsv1.DeploymentReplicaFailure)
	if c == nil || c.Reason != "FailedCreate" || !strings.Contains(c.Message, "nowhere") {
		t.Fatalf("condition ReplicaFailure is %+v", c)
	}
	before := w.Commits
	w.Now = w.Loop.Next()
	w.Settle()
	if w.Commits != before {
		t.Errorf("%d transactions to say the same again", w.Commits-before)
	}
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}})
	w.Now = w.Loop.Next()
	w.Settle()
	got = w.Store.Get(store.KeyOf(d)).(*appsv1.Deployment)
	if c := condition(got.Status.Conditions, appsv1.DeploymentReplicaFailure); c != nil || got.Status.Replicas != 2 {
		t.Errorf("condition %+v, replicas %d", c, got.Status.Replicas)
	}
}
