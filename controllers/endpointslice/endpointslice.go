package endpointslice

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Config is what the controller needs. Log and Metrics may be left out.
type Config struct {
	Store interface {
		store.Reader
		store.Writer
	}
	Fence   func() store.Fence
	Now     store.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Suffix makes the end of a slice's name; nil: five random letters.
	Suffix func() string
}

type controller struct{ Config }

// New returns the loop of Services and their endpoints.
func New(cfg Config) *reconcile.Loop {
	if cfg.Suffix == nil {
		cfg.Suffix = suffix
	}
	c := &controller{cfg}
	return reconcile.New(reconcile.Config{
		Name:       "endpointslice",
		Reconciler: c,
		Now:        cfg.Now,
		Log:        cfg.Log,
		Metrics:    cfg.Metrics,
		List:       c.keys,
		Watches: []reconcile.Watch{
			reconcile.Itself(api.Services()),
			{Resource: api.Pods(), Keys: c.ofPod},
			{Resource: api.EndpointSlices(), Keys: ofSlice},
			{Resource: api.Endpoints(), Keys: func(e store.Event) []reconcile.Key { return []reconcile.Key{serviceKey(e.Key.Namespace, e.Key.Name)} }},
			{Resource: api.Nodes(), Keys: c.ofNode},
		},
	})
}

func serviceKey(namespace, name string) reconcile.Key {
	return reconcile.Key{GroupResource: api.Services(), Namespace: namespace, Name: name}
}

// keys are the Services, and those of which only slices are left.
func (c *controller) keys() []reconcile.Key {
	keys := reconcile.Keys(c.Store, api.Services())
	for _, obj := range c.Store.List(api.EndpointSlices(), "") {
		if slice := obj.(*discoveryv1.EndpointSlice); ours(slice) {
			if key := serviceKey(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]); c.Store.Get(key) == nil {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// ofPod wakes the Services that select a pod, or did before it changed.
func (c *controller) ofPod(e store.Event) (keys []reconcile.Key) {
	before, _ := e.Previous.(*corev1.Pod)
	after, _ := e.Object.(*corev1.Pod)
	for _, obj := range c.Store.List(api.Services(), e.Key.Namespace) {
		svc := obj.(*corev1.Service)
		if len(svc.Spec.Selector) == 0 {
			continue
		}
		s := labels.SelectorFromValidatedSet(svc.Spec.Selector)
		if before != nil && s.Matches(labels.Set(before.Labels)) || after != nil && s.Matches(labels.Set(after.Labels)) {
			keys = append(keys, store.KeyOf(svc))
		}
	}
	return keys
}

func ofSlice(e store.Event) (keys []reconcile.Key) {
	for _, obj := range []api.Object{e.Previous, e.Object} {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && ours(slice) {
			keys = append(keys, serviceKey(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]))
		}
	}
	return keys
}

// ofNode wakes everything when a node is in another zone, which hardly ever happens.
func (c *controller) ofNode(e store.Event) []reconcile.Key {
	zone := func(obj api.Object) string {
		if obj == nil {
			return ""
		}
		return obj.GetLabels()[corev1.LabelTopologyZone]
	}
	if zone(e.Previous) == zone(e.Object) {
		return nil
	}
	return reconcile.Keys(c.Store, api.Services())
}

// Reconcile observes, decides and acts for one Service. The Service is read before
// everything else: a transaction that is conditioned on it fails when it has changed.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	o := c.observe(key)
	return c.apply(ctx, key, o, plan(o))
}

func (c *controller) observe(key reconcile.Key) observed {
	o := observed{namespace: key.Namespace, name: key.Name, zones: map[string]string{}}
	o.service, _ = c.Store.Get(key).(*corev1.Service)
	o.endpoints, _ = c.Store.Get(store.Key{GroupResource: api.Endpoints(), Namespace: key.Namespace, Name: key.Name}).(*corev1.Endpoints)
	for _, obj := range c.Store.List(api.EndpointSlices(), key.Namespace) {
		if slice := obj.(*discoveryv1.EndpointSlice); ours(slice) && slice.Labels[discoveryv1.LabelServiceName] == key.Name {
			o.slices = append(o.slices, slice)
		}
	}
	if o.service == nil || len(o.service.Spec.Selector) == 0 {
		return o
	}
	s := labels.SelectorFromValidatedSet(o.service.Spec.Selector)
	for _, obj := range c.Store.List(api.Pods(), key.Namespace) {
		pod := obj.(*corev1.Pod)
		if !s.Matches(labels.Set(pod.Labels)) {
			continue
		}
		o.pods = append(o.pods, pod)
		if _, known := o.zones[pod.Spec.NodeName]; !known && pod.Spec.NodeName != "" {
			zone := ""
			if node := c.Store.Get(store.Key{GroupResource: api.Nodes(), Name: pod.Spec.NodeName}); node != nil {
				zone = node.GetLabels()[corev1.LabelTopologyZone]
			}
			o.zones[pod.Spec.NodeName] = zone
		}
	}
	return o
}

// suffix is five letters of Kubernetes' alphabet for generated names.
func suffix() string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, 5)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return string(b)
}

// again is when what did not fit into one transaction goes on.
const again = time.Nanosecond
