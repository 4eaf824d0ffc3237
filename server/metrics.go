package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/server/nodes"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/metrics"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// Meter asks nodes what they and their pods use.
type Meter interface {
	Figures(ctx context.Context, node string) (nodes.Top, error)
}

const (
	metricsWait  = 6 * time.Second // for all nodes of one request
	metricsWidth = 16              // nodes that one request asks at a time
)

// metricsGroup serves metrics.k8s.io, which kubectl top and others ask. The figures are
// taken when somebody asks, and kept nowhere.
func (s *Server) metricsGroup(scheme *runtime.Scheme, codecs serializer.CodecFactory) *genericserver.APIGroupInfo {
	info := genericserver.NewDefaultAPIGroupInfo(metrics.GroupName, scheme, runtime.NewParameterCodec(scheme), codecs)
	info.PrioritizedVersions = []schema.GroupVersion{metricsv1beta1.SchemeGroupVersion, metricsv1.SchemeGroupVersion}
	m := meter{store: s.cfg.Store, from: s.cfg.Figures}
	for _, v := range info.PrioritizedVersions {
		info.VersionedResourcesStorageMap[v.Version] = resources{"nodes": nodeMetrics{m}, "pods": podMetrics{m}}
	}
	return &info
}

// meter asks nodes.
type meter struct {
	store store.Reader
	from  Meter
}

// ask asks nodes side by side, each once. One that does not answer in time is missing,
// as its figures are in Kubernetes.
func (m meter) ask(ctx context.Context, names []string) map[string]nodes.Top {
	ctx, cancel := context.WithTimeout(ctx, metricsWait)
	defer cancel()
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	out := make(map[string]nodes.Top, len(names))
	var mu sync.Mutex
	var wg sync.WaitGroup
	width := make(chan struct{}, metricsWidth)
	for _, name := range names {
		width <- struct{}{}
		wg.Go(func() {
			defer func() { <-width }()
			top, err := m.from.Figures(ctx, name)
			if err != nil {
				return // a node that is lost is shown as such by its own conditions
			}
			mu.Lock()
			defer mu.Unlock()
			out[name] = top
		})
	}
	wg.Wait()
	return out
}

func usage(a nodes.Amount) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(a.CPU, resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(a.Memory, resource.BinarySI),
	}
}

// selected reads the selectors of a list.
func selected(o *metainternal.ListOptions) (labels.Selector, fields.Selector) {
	byLabel, byField := labels.Everything(), fields.Everything()
	if o != nil && o.LabelSelector != nil {
		byLabel = o.LabelSelector
	}
	if o != nil && o.FieldSelector != nil {
		byField = o.FieldSelector
	}
	return byLabel, byField
}

// nodeMetrics is metrics.k8s.io nodes.
type nodeMetrics struct{ meter }

var (
	_ rest.Lister = nodeMetrics{}
	_ rest.Getter = nodeMetrics{}
	_ rest.Scoper = nodeMetrics{}
)

func (nodeMetrics) New() runtime.Object     { return &metrics.NodeMetrics{} }
func (nodeMetrics) NewList() runtime.Object { return &metrics.NodeMetricsList{} }
func (nodeMetrics) Destroy()                {}
func (nodeMetrics) NamespaceScoped() bool   { return false }
func (nodeMetrics) GetSingularName() string { return "" }
func (nodeMetrics) Kind() string            { return "NodeMetrics" }

// List implements rest.Lister.
func (n nodeMetrics) List(ctx context.Context, o *metainternal.ListOptions) (runtime.Object, error) {
	byLabel, byField := selected(o)
	var found []*corev1.Node
	for _, obj := range n.store.List(api.Nodes(), "") {
		node, ok := obj.(*corev1.Node)
		if ok && byLabel.Matches(labels.Set(node.Labels)) && byField.Matches(fields.Set{"metadata.name": node.Name}) {
			found = append(found, node)
		}
	}
	return &metrics.NodeMetricsList{Items: n.measure(ctx, found)}, nil
}

// Get implements rest.Getter.
func (n nodeMetrics) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if node, ok := n.store.Get(store.Key{GroupResource: api.Nodes(), Name: name}).(*corev1.Node); ok {
		if found := n.measure(ctx, []*corev1.Node{node}); len(found) == 1 {
			return &found[0], nil
		}
	}
	return nil, apierrors.NewNotFound(metrics.Resource("nodes"), name)
}

func (n nodeMetrics) measure(ctx context.Context, found []*corev1.Node) []metrics.NodeMetrics {
	var names []string
	for _, node := range found {
		names = append(names, node.Name)
	}
	tops := n.ask(ctx, names)
	out := []metrics.NodeMetrics{}
	for _, node := range found {
		if top, ok := tops[node.Name]; ok && top.Node != nil {
			out = append(out, metrics.NodeMetrics{
				ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, CreationTimestamp: metav1.NewTime(top.Time)},
				Timestamp:  metav1.NewTime(top.Time), Window: metav1.Duration{Duration: top.Window}, Usage: usage(*top.Node),
			})
		}
	}
	return out
}

// ConvertToTable implements rest.TableConvertor.
func (nodeMetrics) ConvertToTable(_ context.Context, obj, _ runtime.Object) (*metav1.Table, error) {
	t := metricsTable()
	add := func(m *metrics.NodeMetrics) {
		t.Rows = append(t.Rows, metricsRow(m, m.Name, m.Usage, m.Window))
	}
	switch obj := obj.(type) {
	case *metrics.NodeMetrics:
		add(obj)
	case *metrics.NodeMetricsList:
		for i := range obj.Items {
			add(&obj.Items[i])
		}
	}
	return t, nil
}

// podMetrics is metrics.k8s.io pods.
type podMetrics struct{ meter }

var (
	_ rest.Lister = podMetrics{}
	_ rest.Getter = podMetrics{}
	_ rest.Scoper = podMetrics{}
)

func (podMetrics) New() runtime.Object     { return &metrics.PodMetrics{} }
func (podMetrics) NewList() runtime.Object { return &metrics.PodMetricsList{} }
func (podMetrics) Destroy()                {}
func (podMetrics) NamespaceScoped() bool   { return true }
func (podMetrics) GetSingularName() string { return "" }
func (podMetrics) Kind() string            { return "PodMetrics" }

// List implements rest.Lister.
func (p podMetrics) List(ctx context.Context, o *metainternal.ListOptions) (runtime.Object, error) {
	byLabel, byField := selected(o)
	var found []*corev1.Pod
	for _, obj := range p.store.List(api.Pods(), request.NamespaceValue(ctx)) {
		pod, ok := obj.(*corev1.Pod)
		if ok && byLabel.Matches(labels.Set(pod.Labels)) && byField.Matches(podFields(pod)) {
			found = append(found, pod)
		}
	}
	return &metrics.PodMetricsList{Items: p.measure(ctx, found)}, nil
}

// podFields are those that pods' figures can be selected by.
func podFields(pod *corev1.Pod) fields.Set {
	return fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy), "spec.serviceAccountName": pod.Spec.ServiceAccountName, "status.phase": string(pod.Status.Phase),
	}
}

// Get implements rest.Getter.
func (p podMetrics) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	key := store.Key{GroupResource: api.Pods(), Namespace: request.NamespaceValue(ctx), Name: name}
	if pod, ok := p.store.Get(key).(*corev1.Pod); ok {
		if found := p.measure(ctx, []*corev1.Pod{pod}); len(found) == 1 {
			return &found[0], nil
		}
	}
	return nil, apierrors.NewNotFound(metrics.Resource("pods"), key.Namespace+"/"+name)
}

func (p podMetrics) measure(ctx context.Context, found []*corev1.Pod) []metrics.PodMetrics {
	var names []string
	for _, pod := range found {
		if pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodRunning {
			names = append(names, pod.Spec.NodeName)
		}
	}
	tops := p.ask(ctx, names)
	out := []metrics.PodMetrics{}
	for _, pod := range found {
		top, ok := tops[pod.Spec.NodeName].Pods[pod.UID]
		if !ok {
			continue
		}
		at := metav1.NewTime(tops[pod.Spec.NodeName].Time)
		m := metrics.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, CreationTimestamp: at},
			Timestamp:  at, Window: metav1.Duration{Duration: top.Window},
		}
		for name, amount := range top.Containers {
			m.Containers = append(m.Containers, metrics.ContainerMetrics{Name: name, Usage: usage(amount)})
		}
		slices.SortFunc(m.Containers, func(a, b metrics.ContainerMetrics) int { return strings.Compare(a.Name, b.Name) })
		out = append(out, m)
	}
	return out
}

// ConvertToTable implements rest.TableConvertor.
func (podMetrics) ConvertToTable(_ context.Context, obj, _ runtime.Object) (*metav1.Table, error) {
	t := metricsTable()
	add := func(m *metrics.PodMetrics) {
		sum := corev1.ResourceList{}
		for _, c := range m.Containers {
			for name, q := range c.Usage {
				all := sum[name]
				all.Add(q)
				sum[name] = all
			}
		}
		t.Rows = append(t.Rows, metricsRow(m, m.Name, sum, m.Window))
	}
	switch obj := obj.(type) {
	case *metrics.PodMetrics:
		add(obj)
	case *metrics.PodMetricsList:
		for i := range obj.Items {
			add(&obj.Items[i])
		}
	}
	return t, nil
}

func metricsTable() *metav1.Table {
	return &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "name of what is measured"},
		{Name: "CPU", Type: "string", Format: "quantity", Description: "CPU that it uses"},
		{Name: "Memory", Type: "string", Format: "quantity", Description: "memory of its working set"},
		{Name: "Window", Type: "string", Format: "duration", Description: "over which the CPU time was counted"},
	}}
}

func metricsRow(obj runtime.Object, name string, used corev1.ResourceList, window metav1.Duration) metav1.TableRow {
	return metav1.TableRow{Object: runtime.RawExtension{Object: obj}, Cells: []any{name, used.Cpu().String(), used.Memory().String(), window.Duration.String()}}
}
