package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A HorizontalPodAutoscaler is served as Kubernetes serves it: the status apart from the
// spec, the columns of kubectl get hpa, its short name, no warning, and by name refused
// what has no source.
func TestHorizontalPodAutoscaler(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	scalers := f.admin.AutoscalingV2().HorizontalPodAutoscalers("default")
	a, err := scalers.Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 5,
	}}, metav1.CreateOptions{})
	must(t, err)
	if *a.Spec.MinReplicas != 1 || len(a.Spec.Metrics) != 1 || *a.Spec.Metrics[0].Resource.Target.AverageUtilization != 80 || a.Generation != 1 {
		t.Errorf("defaults %+v", a)
	}
	utilization, average := int32(37), resource.MustParse("37m")
	a.Status = autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: 3, DesiredReplicas: 3, CurrentMetrics: []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricStatus{Name: "cpu", Current: autoscalingv2.MetricValueStatus{AverageUtilization: &utilization, AverageValue: &average}}}}}
	a.Spec.MaxReplicas = 9
	a, err = scalers.UpdateStatus(ctx, a, metav1.UpdateOptions{})
	must(t, err)
	if a.Status.CurrentReplicas != 3 || a.Spec.MaxReplicas != 5 || a.Generation != 1 {
		t.Errorf("a status update changes the status alone: %+v", a)
	}
	raw, err := f.admin.RESTClient().Get().AbsPath("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	must(t, err)
	var table metav1.Table
	must(t, json.Unmarshal(raw, &table))
	var columns, cells []string
	for i, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
		if i < len(table.ColumnDefinitions)-1 { // but for the age
			cells = append(cells, fmt.Sprint(table.Rows[0].Cells[i]))
		}
	}
	if got := strings.Join(columns, "|"); got != "Name|Reference|Targets|MinPods|MaxPods|Replicas|Age" {
		t.Errorf("columns %s", got)
	}
	if got := strings.Join(cells, "|"); got != "web|Deployment/web|cpu: 37%/80%|1|5|3" {
		t.Errorf("row %s", got)
	}
	lists, err := f.admin.Discovery().ServerResourcesForGroupVersion("autoscaling/v2")
	must(t, err)
	if r := lists.APIResources[0]; r.Name != "horizontalpodautoscalers" || strings.Join(r.ShortNames, ",") != "hpa" {
		t.Errorf("discovery %+v", r)
	}
	queue := resource.MustParse("3")
	a.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &queue}}}}
	if _, err := scalers.Update(ctx, a, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "there is no source of such metrics") {
		t.Errorf("an External metric: %v", err)
	}
}

// What the controller writes to a target is what the scale subresource would leave.
func TestAutoscalerScalesAsTheSubresourceDoes(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	_, err := f.admin.AppsV1().Deployments("default").Create(ctx, deployment("web", 1), metav1.CreateOptions{})
	must(t, err)
	now, err := f.store.Current(ctx)
	must(t, err)
	must(t, f.store.WaitRevision(ctx, now))
	live := f.store.Get(store.Key{GroupResource: api.Deployments(), Namespace: "default", Name: "web"})
	wanted, err := api.WithReplicas(live, 4)
	must(t, err)
	_, err = f.admin.RESTClient().Patch("application/merge-patch+json").AbsPath("/apis/apps/v1/namespaces/default/deployments/web/scale").Body([]byte(`{"spec": {"replicas": 4}}`)).DoRaw(ctx)
	must(t, err)
	d, err := f.admin.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	must(t, err)
	got := wanted.(*appsv1.Deployment)
	if *d.Spec.Replicas != 4 || *got.Spec.Replicas != 4 || got.Generation != d.Generation || *live.(*appsv1.Deployment).Spec.Replicas != 1 {
		t.Errorf("%d of generation %d, want %d of %d; it was %d", *got.Spec.Replicas, got.Generation, *d.Spec.Replicas, d.Generation, *live.(*appsv1.Deployment).Spec.Replicas)
	}
}
