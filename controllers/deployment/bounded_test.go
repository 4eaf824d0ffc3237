package deployment

import (
	"context"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestQuotaIsFilledAndTold: as many pods are made as fit, the rest is told as
// Kubernetes tells it (ReplicaFailure, FailedCreate), and made when there is room.
func TestQuotaIsFilledAndTold(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	st := store.New(memory.New(), store.Options{Seal: storetest.SealKey(), Bounds: store.Bounds{Limit: admission.Limit, Charge: admission.Charge}})
	ctx := context.Background()
	if err := st.Load(ctx); err != nil {
		t.Fatal(err)
	}
	random := uint64(0)
	loop := New(Config{Store: st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return now },
		Random: func() uint64 { random++; return random * 0x9e3779b97f4a7c15 }})
	st.OnEvents(loop.Handle)
	commit := func(verb store.Verb, obj api.Object) {
		t.Helper()
		if verb == store.Create {
			store.Stamp(obj, now)
		}
		if _, err := st.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
			t.Fatal(err)
		}
	}
	settle := func() {
		for range 200 {
			storetest.Settle(t, st)
			if loop.Step(ctx) {
				continue
			}
			next := loop.Next()
			if next.IsZero() || next.Sub(now) > 100*time.Millisecond {
				return
			}
			now = next // a retry
		}
		t.Fatal("the controller does not come to rest")
	}
	commit(store.Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	three := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: three}, Status: corev1.ResourceQuotaStatus{Hard: three}}
	commit(store.Create, quota)
	storetest.Settle(t, st)
	replicas, labels := int32(10), map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "hello:1"}}}}
	part := intstr.FromString("25%")
	history := int32(10)
	commit(store.Create, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template, RevisionHistoryLimit: &history,
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &part, MaxUnavailable: &part}}}})
	settle()
	if n := len(st.List(api.Pods(), "shop")); n != 3 {
		t.Fatalf("%d pods were made, 3 fit", n)
	}
	failed := ""
	for _, obj := range st.List(api.ReplicaSets(), "shop") {
		for _, c := range obj.(*appsv1.ReplicaSet).Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				failed = c.Reason + ": " + c.Message
			}
		}
	}
	if !strings.Contains(failed, "FailedCreate: ") || !strings.Contains(failed, "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3") {
		t.Errorf("the condition says %q", failed)
	}
	told := false
	for _, obj := range st.List(api.Events(), "shop") {
		e := obj.(*corev1.Event)
		told = told || e.Reason == "FailedCreate" && strings.Contains(e.Message, "exceeded quota: q")
	}
	if !told {
		t.Error("no event FailedCreate")
	}
	quota = st.Get(store.KeyOf(quota)).(*corev1.ResourceQuota).DeepCopy()
	quota.Status.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("20")}
	commit(store.Update, quota)
	now = now.Add(2 * time.Minute) // the next try
	settle()
	if n := len(st.List(api.Pods(), "shop")); n != 10 {
		t.Errorf("%d pods, want 10", n)
	}
}

// TestAQuotaOfSetsIsTold: a new ReplicaSet that a quota refuses is told of by the
// condition Progressing and an event on the Deployment, both ReplicaSetCreateError as
// in Kubernetes, and is made when there is room. The pods of the sets before run on.
// https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#failed-deployment
func TestAQuotaOfSetsIsTold(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	st := store.New(memory.New(), store.Options{Seal: storetest.SealKey(), Bounds: store.Bounds{Limit: admission.Limit, Charge: admission.Charge}})
	if err := st.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	random := uint64(0)
	loop := New(Config{Store: st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return now },
		Random: func() uint64 { random++; return random * 0x9e3779b97f4a7c15 }})
	st.OnEvents(loop.Handle)
	commit := func(verb store.Verb, obj api.Object) {
		t.Helper()
		if verb == store.Create {
			store.Stamp(obj, now)
		}
		if _, err := st.Commit(t.Context(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
			t.Fatal(err)
		}
		storetest.Settle(t, st)
	}
	steps := 0
	settle := func() { // until the controller waits
		t.Helper()
		for loop.Step(t.Context()) {
			storetest.Settle(t, st)
			if steps++; steps > 100 {
				t.Fatal("the controller does not back off")
			}
		}
	}
	commit(store.Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	replicas, deadline, labels := int32(2), int32(600), map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "hello:1"}}}}
	commit(store.Create, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 1}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template, ProgressDeadlineSeconds: &deadline}})
	settle()
	one := corev1.ResourceList{"count/replicasets.apps": resource.MustParse("1")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: one}, Status: corev1.ResourceQuotaStatus{Hard: one, Used: one}}
	commit(store.Create, quota)
	live := func() *appsv1.Deployment {
		return st.List(api.Deployments(), "shop")[0].DeepCopyObject().(*appsv1.Deployment)
	}
	d := live()
	d.Spec.Template.Spec.Containers[0].Image = "hello:2"
	d.Generation++
	commit(store.Update, d)
	steps = 0
	settle()
	c := condition(live().Status.Conditions, appsv1.DeploymentProgressing)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != "ReplicaSetCreateError" ||
		!strings.Contains(c.Message, `Failed to create new replica set "web-`) || !strings.Contains(c.Message, "exceeded quota: q, requested: count/replicasets.apps=1, used: count/replicasets.apps=1, limited: count/replicasets.apps=1") {
		t.Errorf("the condition is %+v", c)
	}
	told := false
	for _, obj := range st.List(api.Events(), "shop") {
		e := obj.(*corev1.Event)
		told = told || e.Reason == "ReplicaSetCreateError" && e.Type == corev1.EventTypeWarning && e.InvolvedObject.Kind == "Deployment" && e.Message == c.Message
	}
	if !told {
		t.Error("no event ReplicaSetCreateError")
	}
	if sets, pods := len(st.List(api.ReplicaSets(), "shop")), len(st.List(api.Pods(), "shop")); sets != 1 || pods != 2 {
		t.Errorf("%d sets and %d pods, want those of before", sets, pods)
	}
	quota = st.Get(store.KeyOf(quota)).DeepCopyObject().(*corev1.ResourceQuota)
	quota.Status.Hard = corev1.ResourceList{"count/replicasets.apps": resource.MustParse("5")}
	commit(store.Update, quota)
	now = now.Add(time.Minute)
	steps = 0
	settle()
	if c := condition(live().Status.Conditions, appsv1.DeploymentProgressing); len(st.List(api.ReplicaSets(), "shop")) != 2 || c == nil || c.Reason != "NewReplicaSetCreated" && c.Reason != "ReplicaSetUpdated" {
		t.Errorf("with room: %d sets, %+v", len(st.List(api.ReplicaSets(), "shop")), c)
	}
}
