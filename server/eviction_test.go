package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/controllers/disruption"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// runningPod makes a pod on node n1 that is ready.
func (f *fixture) runningPod(name string, ready bool) {
	f.t.Helper()
	p := pod(name, "n1")
	p.Labels = map[string]string{"app": "web"}
	made, err := f.admin.CoreV1().Pods("default").Create(f.t.Context(), p, metav1.CreateOptions{})
	must(f.t, err)
	made.Status.Phase = corev1.PodRunning
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if ready {
		c.Status = corev1.ConditionTrue
	}
	made.Status.Conditions = append(made.Status.Conditions, c)
	_, err = f.admin.CoreV1().Pods("default").UpdateStatus(f.t.Context(), made, metav1.UpdateOptions{})
	must(f.t, err)
}

func (f *fixture) evict(name string, dry ...string) error {
	return f.admin.PolicyV1().Evictions("default").Evict(f.t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, DeleteOptions: &metav1.DeleteOptions{DryRun: dry},
	})
}

// budget makes a PodDisruptionBudget over the running pods.
func (f *fixture) budget(least int, policy policyv1.UnhealthyPodEvictionPolicyType) {
	f.t.Helper()
	n := intstr.FromInt(least)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	b.Spec.MinAvailable, b.Spec.Selector = &n, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	if policy != "" {
		b.Spec.UnhealthyPodEvictionPolicy = &policy
	}
	_, err := f.admin.PolicyV1().PodDisruptionBudgets("default").Create(f.t.Context(), b, metav1.CreateOptions{})
	must(f.t, err)
}

// lookAtBudgets runs the disruption controller until nothing is left to do.
func (f *fixture) lookAtBudgets() {
	f.t.Helper()
	now, err := f.store.Current(f.t.Context())
	must(f.t, err)
	must(f.t, f.store.WaitRevision(f.t.Context(), now))
	loop := disruption.New(disruption.Config{Store: f.store, Fence: func() store.Fence { return store.Fence{} }, Now: time.Now})
	for loop.Step(f.t.Context()) {
	}
	now, err = f.store.Current(f.t.Context())
	must(f.t, err)
	must(f.t, f.store.WaitRevision(f.t.Context(), now))
}

// TestEviction: Kubernetes' own eviction works over the store, keeps to the budgets
// and answers as documented:
// https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
func TestEviction(t *testing.T) {
	f := start(t, 0, nil)
	list, err := f.admin.Discovery().ServerResourcesForGroupVersion("v1")
	must(t, err)
	found := false
	for _, r := range list.APIResources { // kubectl drain looks for it
		found = found || r.Name == "pods/eviction" && r.Kind == "Eviction" && r.Group == "policy" && r.Version == "v1"
	}
	if !found {
		t.Error("discovery does not have pods/eviction")
	}
	for _, name := range []string{"a", "b", "c"} {
		f.runningPod(name, true)
	}
	if err := f.evict("nobody"); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is not there: %v", err)
	}
	f.budget(2, "")
	// client-go would try again for minutes.
	body := `{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "default"}}`
	resp, err := f.adminHTTP().Post(f.url+"/api/v1/namespaces/default/pods/a/eviction", "application/json", strings.NewReader(body))
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "10" {
		t.Errorf("a budget that nobody looked at yet: %s", resp.Status)
	}
	f.lookAtBudgets()
	must(t, f.evict("a", metav1.DryRunAll))
	must(t, f.evict("a"))
	p, err := f.admin.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
	must(t, err)
	said := false
	for _, c := range p.Status.Conditions {
		said = said || c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
	}
	if p.DeletionTimestamp == nil || !said {
		t.Errorf("the evicted pod: %+v, %+v", p.DeletionTimestamp, p.Status.Conditions)
	}
	refused := f.evict("b")
	if !apierrors.IsTooManyRequests(refused) || !strings.Contains(refused.Error(), "Cannot evict pod as it would violate the pod's disruption budget.") {
		t.Errorf("below the budget: %v", refused)
	}
	f.lookAtBudgets()
	refused = f.evict("b")
	status, ok := refused.(apierrors.APIStatus)
	if !ok || status.Status().Details == nil || len(status.Status().Details.Causes) != 1 || status.Status().Details.Causes[0].Message != "The disruption budget web needs 2 healthy pods and has 2 currently" {
		t.Errorf("the cause: %+v", refused)
	}
	f.runningPod("d", true) // its replacement
	f.lookAtBudgets()
	must(t, f.evict("b"))
}

// TestUnhealthyPodEvictionPolicy: a pod that is not ready may go at any time with
// AlwaysAllow, else only while enough others are healthy.
func TestUnhealthyPodEvictionPolicy(t *testing.T) {
	for policy, want := range map[policyv1.UnhealthyPodEvictionPolicyType]bool{"": false, policyv1.IfHealthyBudget: false, policyv1.AlwaysAllow: true} {
		f := start(t, 0, nil)
		f.budget(2, policy)
		f.runningPod("a", true)
		f.runningPod("sick", false)
		f.lookAtBudgets()
		if err := f.evict("sick"); (err == nil) != want || err != nil && !apierrors.IsTooManyRequests(err) {
			t.Errorf("%q, too few are healthy: %v", policy, err)
		}
		f.runningPod("b", true)
		f.lookAtBudgets()
		if err := f.evict("sick"); err != nil {
			t.Errorf("%q, enough are healthy: %v", policy, err)
		}
		if err := f.evict("a"); !apierrors.IsTooManyRequests(err) {
			t.Errorf("%q, a healthy one: %v", policy, err)
		}
	}
}

// TestConcurrentEvictionsKeepToTheBudget: of evictions at once, exactly as many pass
// as the budget allows.
func TestConcurrentEvictionsKeepToTheBudget(t *testing.T) {
	f := start(t, 0, nil)
	const all, least = 8, 5
	for i := range all {
		f.runningPod(fmt.Sprintf("p%d", i), true)
	}
	f.budget(least, "")
	f.lookAtBudgets()
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() {
			if err := f.evict(fmt.Sprintf("p%d", i)); err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsTimeout(err) {
				t.Errorf("p%d: %v", i, err)
			}
		})
	}
	wait.Wait()
	page, err := f.store.ListAt(context.Background(), api.Pods(), "default", 0, 0, "")
	must(t, err)
	left := 0
	for _, obj := range page.Objects {
		if obj.GetDeletionTimestamp() == nil {
			left++
		}
	}
	if left != least {
		t.Errorf("%d pods are left, want %d", left, least)
	}
}

// TestBoundsAtTheAPI: a client hears what LimitRanges and ResourceQuotas say, at a
// dry run, too, and sees what it was given.
func TestBoundsAtTheAPI(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	_, err := f.admin.CoreV1().LimitRanges("default").Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")},
	}}}}, metav1.CreateOptions{})
	must(t, err)
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}}}
	q, err = f.admin.CoreV1().ResourceQuotas("default").Create(ctx, q, metav1.CreateOptions{})
	must(t, err)
	q.Status.Hard = q.Spec.Hard // as the controller does
	_, err = f.admin.CoreV1().ResourceQuotas("default").UpdateStatus(ctx, q, metav1.UpdateOptions{})
	must(t, err)
	f.lookAtBudgets() // the cache has all of it

	made, err := f.admin.CoreV1().Pods("default").Create(ctx, pod("a", ""), metav1.CreateOptions{})
	must(t, err)
	if limit := made.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]; limit.String() != "2" {
		t.Errorf("the pod has the limit %s", limit.String())
	}
	f.lookAtBudgets()
	for _, dry := range [][]string{nil, {metav1.DryRunAll}} {
		_, err = f.admin.CoreV1().Pods("default").Create(ctx, pod("b", ""), metav1.CreateOptions{DryRun: dry})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1") {
			t.Errorf("dry run %v: %v", dry, err)
		}
	}
	big := pod("c", "")
	big.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	if _, err = f.admin.CoreV1().Pods("default").Create(ctx, big, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "maximum cpu usage per Container is 3, but limit is 4") {
		t.Errorf("above the maximum: %v", err)
	}
}
