package deployment

import (
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile/reconciletest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestQuotaIsFilledAndTold: as many pods are made as fit, the rest is told as
// Kubernetes tells it (ReplicaFailure, FailedCreate), and made when there is room.
func TestQuotaIsFilledAndTold(t *testing.T) {
	w := newWorldOn(t, reconciletest.OpenBounded(t))
	w.FillsQuota(web(10, "25%", "25%"), func() int { return len(w.pods()) }, func(string) {
		failed := ""
		for _, obj := range w.Store.List(api.ReplicaSets(), "shop") {
			for _, c := range obj.(*appsv1.ReplicaSet).Status.Conditions {
				if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
					failed = c.Reason + ": " + c.Message
				}
			}
		}
		if !strings.HasPrefix(failed, "FailedCreate: ") || !strings.Contains(failed, reconciletest.PodsRefused) {
			t.Errorf("the condition says %q", failed)
		}
	})
}

// TestAQuotaOfSetsIsTold: a new ReplicaSet that a quota refuses is told of by the
// condition Progressing and an event on the Deployment, both ReplicaSetCreateError as
// in Kubernetes, and is made when there is room. The pods of the sets before run on.
// https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#failed-deployment
func TestAQuotaOfSetsIsTold(t *testing.T) {
	const kind = "count/replicasets.apps"
	w := newWorldOn(t, reconciletest.OpenBounded(t))
	w.Create(web(2, "25%", "25%"))
	w.Settle()
	quota := reconciletest.Quota("shop", kind, "1")
	quota.Status.Used = quota.Status.Hard
	w.Create(quota)
	w.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "hello:2" })
	w.Settle() // the controller backs off
	progressing := func() *appsv1.DeploymentCondition {
		return condition(w.deployment().Status.Conditions, appsv1.DeploymentProgressing)
	}
	c := progressing()
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != "ReplicaSetCreateError" ||
		!strings.Contains(c.Message, `Failed to create new replica set "web-`) || !strings.Contains(c.Message, "exceeded quota: q, requested: count/replicasets.apps=1, used: count/replicasets.apps=1, limited: count/replicasets.apps=1") {
		t.Fatalf("the condition is %+v", c)
	}
	told := false
	for _, obj := range w.Store.List(api.Events(), "shop") {
		e := obj.(*corev1.Event)
		told = told || e.Reason == "ReplicaSetCreateError" && e.Type == corev1.EventTypeWarning && e.InvolvedObject.Kind == "Deployment" && e.Message == c.Message
	}
	if !told {
		t.Error("no event ReplicaSetCreateError")
	}
	sets := func() int { return len(w.Store.List(api.ReplicaSets(), "shop")) }
	if pods := len(w.pods()); sets() != 1 || pods != 2 {
		t.Errorf("%d sets and %d pods, want those of before", sets(), pods)
	}
	w.Raise("shop", kind, "5")
	w.Now = w.Now.Add(time.Minute)
	w.Settle()
	if c := progressing(); sets() != 2 || c == nil || c.Reason != "NewReplicaSetCreated" && c.Reason != "ReplicaSetUpdated" {
		t.Errorf("with room: %d sets, %+v", sets(), c)
	}
}
