package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Config is what the controller needs. Log and Metrics may be left out.
type Config struct {
	Store interface {
		store.Reader
		store.Writer
	}
	Fence func() store.Fence
	// Address is the Service's cluster IP.
	Address netip.Addr
	// Server is where pods reach the API; the zero value: nowhere.
	Server  func() netip.AddrPort
	Now     store.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

type controller struct{ Config }

// New returns the loop of the one Service.
func New(cfg Config) *reconcile.Loop {
	c := &controller{cfg}
	one := []reconcile.Key{key(api.Services())}
	named := func(e store.Event) []reconcile.Key {
		if e.Key.Namespace == metav1.NamespaceDefault && e.Key.Name == name {
			return one
		}
		return nil
	}
	return reconcile.New(reconcile.Config{
		Name:       "kubernetes",
		Reconciler: c,
		Workers:    1,
		Now:        cfg.Now,
		Log:        cfg.Log,
		Metrics:    cfg.Metrics,
		List:       func() []reconcile.Key { return one },
		Watches: []reconcile.Watch{
			{Resource: api.Services(), Keys: named}, {Resource: api.Endpoints(), Keys: named}, {Resource: api.EndpointSlices(), Keys: named},
			{Resource: api.Namespaces(), Keys: func(e store.Event) []reconcile.Key {
				if e.Key.Name == metav1.NamespaceDefault {
					return one
				}
				return nil
			}},
		},
	})
}

// Reconcile observes, decides and acts in one transaction.
func (c *controller) Reconcile(ctx context.Context, _ reconcile.Key) error {
	space := c.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: metav1.NamespaceDefault})
	if space == nil {
		return nil // its coming wakes us
	}
	o := observed{address: c.Address, server: c.Server()}
	o.service, _ = c.Store.Get(key(api.Services())).(*corev1.Service)
	o.endpoints, _ = c.Store.Get(key(api.Endpoints())).(*corev1.Endpoints)
	o.slice, _ = c.Store.Get(key(api.EndpointSlices())).(*discoveryv1.EndpointSlice)
	t := store.Txn{Fence: c.Fence(), If: []api.Object{space}}
	for _, s := range plan(o) {
		if s.verb == store.Create {
			store.Stamp(s.object, c.Now())
		}
		t.Ops = append(t.Ops, store.Op{Verb: s.verb, Object: s.object})
	}
	if len(t.Ops) == 0 {
		return nil
	}
	if _, err := c.Store.Commit(ctx, t); err != nil {
		return fmt.Errorf("service default/kubernetes: %w", err)
	}
	return nil
}
