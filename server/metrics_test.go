package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/server/nodes"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// meters answers for nodes by a script.
type meters map[string]nodes.Top

func (m meters) Figures(_ context.Context, node string) (nodes.Top, error) {
	top, ok := m[node]
	if !ok {
		return nodes.Top{}, errors.New("it is not connected")
	}
	return top, nil
}

// metrics.k8s.io has what nodes and pods use, as far as their nodes answer, by name and by
// selectors, and as a table.
func TestMetrics(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := start(t, 0, func(c *Config) {
		c.Figures = meters{"n1": {Time: at, Window: 10 * time.Second, Node: &nodes.Amount{CPU: 1_500_000_000, Memory: 1 << 30}, Pods: map[types.UID]nodes.PodTop{
			"uid-web": {Window: 9 * time.Second, Containers: map[string]nodes.Amount{"main": {CPU: 250_000_000, Memory: 64 << 20}, "aside": {CPU: 1, Memory: 0}}},
		}}}
	})
	ctx := context.Background()
	for _, name := range []string{"n1", "n2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"name": name}}}
		_, err := f.store.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Create, Object: n}}})
		must(t, err)
	}
	for name, node := range map[string]string{"web": "n1", "far": "n2", "waits": ""} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}, {Name: "aside"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		_, err := f.store.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Create, Object: p}}})
		must(t, err)
	}
	current, err := f.store.Current(ctx)
	must(t, err)
	must(t, f.store.WaitRevision(ctx, current))

	must(t, metricsv1beta1.AddToScheme(scheme.Scheme))
	conf := f.config()
	conf.GroupVersion, conf.APIPath, conf.NegotiatedSerializer = &metricsv1beta1.SchemeGroupVersion, "/apis", scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(conf)
	must(t, err)

	var list metricsv1beta1.PodMetricsList
	must(t, client.Get().Resource("pods").Do(ctx).Into(&list))
	if len(list.Items) != 1 || list.Items[0].Name != "web" || list.Items[0].Labels["app"] != "web" || list.Items[0].Window.Duration != 9*time.Second || !list.Items[0].Timestamp.Time.Equal(at) {
		t.Fatalf("%+v", list)
	}
	c := list.Items[0].Containers
	if len(c) != 2 || c[0].Name != "aside" || c[1].Name != "main" || c[1].Usage.Cpu().MilliValue() != 250 || c[1].Usage.Memory().Value() != 64<<20 {
		t.Errorf("%+v", c)
	}
	for selector, want := range map[string]int{"app=web": 1, "app=far": 0, "app!=web": 0} {
		var some metricsv1beta1.PodMetricsList
		must(t, client.Get().Namespace("default").Resource("pods").Param("labelSelector", selector).Do(ctx).Into(&some))
		if len(some.Items) != want {
			t.Errorf("%s: %+v", selector, some.Items)
		}
	}
	var one metricsv1beta1.PodMetrics
	must(t, client.Get().Namespace("default").Resource("pods").Name("web").Do(ctx).Into(&one))
	if one.Name != "web" || len(one.Containers) != 2 {
		t.Errorf("%+v", one)
	}
	for _, name := range []string{"far", "none"} {
		if err := client.Get().Namespace("default").Resource("pods").Name(name).Do(ctx).Error(); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}

	spec, err := f.adminHTTP().Get(f.url + "/openapi/v3/apis/metrics.k8s.io/v1beta1")
	must(t, err)
	defer spec.Body.Close()
	if body, err := io.ReadAll(spec.Body); err != nil || !strings.Contains(string(body), "io.k8s.metrics.pkg.apis.metrics.v1beta1.NodeMetrics") {
		t.Errorf("its description: %v, %.200s", err, body)
	}
	var machines metricsv1beta1.NodeMetricsList
	must(t, client.Get().Resource("nodes").Do(ctx).Into(&machines))
	if len(machines.Items) != 1 || machines.Items[0].Name != "n1" || machines.Items[0].Usage.Cpu().MilliValue() != 1500 || machines.Items[0].Usage.Memory().Value() != 1<<30 {
		t.Errorf("%+v", machines)
	}
	if err := client.Get().Resource("nodes").Name("n2").Do(ctx).Error(); !apierrors.IsNotFound(err) {
		t.Errorf("a node that does not answer: %v", err)
	}
	var table metav1.Table
	must(t, client.Get().Resource("nodes").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Into(&table))
	if len(table.Rows) != 1 || fmt.Sprint(table.Rows[0].Cells) != "[n1 1500m 1Gi 10s]" {
		t.Errorf("%+v", table.Rows)
	}
}
