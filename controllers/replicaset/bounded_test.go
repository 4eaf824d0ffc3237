package replicaset

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
	commit(store.Create, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}})
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
