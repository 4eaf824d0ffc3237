package clusterrole

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Config is what the controller needs. Log and Metrics may be left out.
type Config struct {
	Store interface {
		store.Reader
		store.Writer
	}
	Fence   func() store.Fence
	Builtin []api.Object // the ClusterRoles and ClusterRoleBindings that every cluster has
	Now     store.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

type controller struct{ Config }

// New returns the loop. It looks at all roles at once: they are few, and which are made
// of which others is known only from all.
func New(cfg Config) *reconcile.Loop {
	c := &controller{cfg}
	one := []reconcile.Key{{GroupResource: api.ClusterRoles()}}
	woken := func(store.Event) []reconcile.Key { return one }
	return reconcile.New(reconcile.Config{
		Name: "clusterrole", Reconciler: c, Workers: 1, Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics,
		List:    func() []reconcile.Key { return one },
		Watches: []reconcile.Watch{{Resource: api.ClusterRoles(), Keys: woken}, {Resource: api.ClusterRoleBindings(), Keys: woken}},
	})
}

// Reconcile observes, decides and acts.
func (c *controller) Reconcile(ctx context.Context, _ reconcile.Key) error {
	o := observed{builtin: c.Builtin, live: map[store.Key]api.Object{}}
	for _, obj := range c.Store.List(api.ClusterRoles(), "") {
		o.roles = append(o.roles, obj.(*rbacv1.ClusterRole))
		o.live[store.KeyOf(obj)] = obj
	}
	for _, obj := range c.Store.List(api.ClusterRoleBindings(), "") {
		o.live[store.KeyOf(obj)] = obj
	}
	steps := plan(o)
	for len(steps) > 0 {
		n := min(len(steps), store.BulkObjects)
		if err := c.apply(ctx, steps[:n]); err != nil {
			return fmt.Errorf("roles of the cluster: %w", err)
		}
		steps = steps[n:]
	}
	return nil
}

// apply does steps in one transaction.
func (c *controller) apply(ctx context.Context, steps []Step) error {
	t := store.Txn{Fence: c.Fence()}
	for _, s := range steps {
		if s.Verb == store.Create {
			store.Stamp(s.Object, c.Now())
		}
		t.Ops = append(t.Ops, store.Op{Verb: s.Verb, Object: s.Object})
	}
	_, err := c.Store.Commit(ctx, t)
	return err
}
