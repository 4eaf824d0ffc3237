package loadbalancer

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
}

type controller struct{ Config }

// New returns the loop of the Services of type LoadBalancer.
func New(cfg Config) *reconcile.Loop {
	c := &controller{cfg}

	return reconcile.New(reconcile.Config{
		Name:       "loadbalancer",
		Reconciler: c,
		Now:        cfg.Now,
		Log:        cfg.Log,
		Metrics:    cfg.Metrics,
		List:       c.keys,
		Watches: []reconcile.Watch{
			{Resource: api.Services(), Keys: func(e store.Event) []reconcile.Key {
				before, _ := e.Previous.(*corev1.Service)
				after, _ := e.Object.(*corev1.Service)
				if !balanced(before) && !balanced(after) {
					return nil
				}
				return c.keys() // another may have waited for its port
			}},
			{Resource: api.Nodes(), Keys: func(e store.Event) []reconcile.Key {
				before, _ := e.Previous.(*corev1.Node)
				after, _ := e.Object.(*corev1.Node)
				if addressOf(before) == addressOf(after) {
					return nil
				}
				return c.keys()
			}},
			{Resource: api.EndpointSlices(), Keys: c.ofSlice},
		},
	})
}

func balanced(svc *corev1.Service) bool {
	return svc != nil && svc.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func (c *controller) services() (out []*corev1.Service) {
	for _, obj := range c.Store.List(api.Services(), "") {
		if svc := obj.(*corev1.Service); balanced(svc) {
			out = append(out, svc)
		}
	}
	return out
}

func (c *controller) keys() (keys []reconcile.Key) {
	for _, svc := range c.services() {
		keys = append(keys, store.KeyOf(svc))
	}
	return keys
}

// ofSlice wakes the Service of a slice when it cares where its endpoints are.
func (c *controller) ofSlice(e store.Event) []reconcile.Key {
	obj := e.Object
	if e.Deleted() {
		obj = e.Previous
	}
	key := reconcile.Key{GroupResource: api.Services(), Namespace: e.Key.Namespace, Name: obj.GetLabels()[discoveryv1.LabelServiceName]}
	if svc, ok := c.Store.Get(key).(*corev1.Service); ok && local(svc) {
		return []reconcile.Key{key}
	}
	return nil
}

func local(svc *corev1.Service) bool { return api.HasHealthCheckPort(&svc.Spec) }

// Reconcile observes, decides and acts for one Service.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	svc, ok := c.Store.Get(key).(*corev1.Service)
	if !ok || !balanced(svc) || svc.DeletionTimestamp != nil {
		return nil
	}
	o := observed{service: svc, others: c.services()}
	for _, obj := range c.Store.List(api.Nodes(), "") {
		o.nodes = append(o.nodes, obj.(*corev1.Node))
	}
	if local(svc) {
		o.at = map[string]bool{}
		for _, obj := range c.Store.List(api.EndpointSlices(), key.Namespace) {
			if slice := obj.(*discoveryv1.EndpointSlice); slice.Labels[discoveryv1.LabelServiceName] == key.Name {
				nodesOf(slice, o.at)
			}
		}
	}
	p := plan(o, c.Now())
	if p.service == nil {
		return nil
	}
	t := store.Txn{Fence: c.Fence(), Ops: []store.Op{{Verb: store.Update, Object: p.service}}}
	for _, rival := range p.rivals {
		t.If = append(t.If, rival)
	}
	if _, err := c.Store.Commit(ctx, t); err != nil {
		return fmt.Errorf("addresses of Service %s/%s: %w", key.Namespace, key.Name, err)
	}
	return nil
}
