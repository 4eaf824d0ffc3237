package endpointslice

import (
	"context"
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// apply performs the steps of one Service in transactions of bounded size, each on the
// condition that the Service is still the one that they were decided for.
func (c *controller) apply(ctx context.Context, key reconcile.Key, o observed, steps []step) error {
	t := store.Txn{Fence: c.Fence()}
	if o.service != nil {
		t.If = []api.Object{o.service}
	}
	bytes := 0
	for i, s := range steps {
		op := c.op(s, key.Name)
		if sized, ok := op.Object.(interface{ Size() int }); ok && s.verb != remove {
			bytes += sized.Size()
		}
		if i > 0 && (len(t.Ops) == store.BulkObjects || bytes > store.BulkBytes) {
			if err := c.commit(ctx, key, t); err != nil {
				return err
			}
			return reconcile.After(again, "more than one transaction of work")
		}
		t.Ops = append(t.Ops, op)
	}
	if len(t.Ops) == 0 {
		return nil
	}
	return c.commit(ctx, key, t)
}

func (c *controller) commit(ctx context.Context, key reconcile.Key, t store.Txn) error {
	if _, err := c.Store.Commit(ctx, t); err != nil {
		return fmt.Errorf("endpoints of Service %s/%s: %w", key.Namespace, key.Name, err)
	}
	return nil
}

func (c *controller) op(s step, service string) store.Op {
	switch s.verb {
	case remove:
		return store.Op{Verb: store.Delete, Object: s.object}
	case update:
		return store.Op{Verb: store.Update, Object: s.object}
	}
	if slice, ok := s.object.(*discoveryv1.EndpointSlice); ok {
		slice.GenerateName = base(service) + "-"
		slice.Name = slice.GenerateName + c.Suffix()
	}
	store.Stamp(s.object, c.Now())
	return store.Op{Verb: store.Create, Object: s.object}
}

// base is as much of a Service's name as leaves room for a suffix.
func base(service string) string {
	const most = 253 - 6
	return service[:min(len(service), most)]
}
