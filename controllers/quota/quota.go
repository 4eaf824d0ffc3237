package quota

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// Config is what the controller needs. Store, Fence and Now are required.
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

// New returns the controller's loop.
func New(cfg Config) *reconcile.Loop {
	c := &controller{Config: cfg}
	var watches []reconcile.Watch
	for _, k := range api.Kinds() {
		if k.Namespaced && k.GroupResource() != api.ResourceQuotas() {
			watches = append(watches, reconcile.Watch{Resource: k.GroupResource(), Keys: c.ofCounted})
		}
	}
	watches = append(watches, reconcile.Itself(api.ResourceQuotas()), reconcile.Watch{Resource: api.ResourceQuotas(), Keys: c.ofCounted})
	return reconcile.New(reconcile.Config{
		Name: "quota", Reconciler: c, Watches: watches, Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics,
		List: func() []reconcile.Key { return reconcile.Keys(cfg.Store, api.ResourceQuotas()) },
	})
}

// ofCounted wakes the quotas that count an object which comes, goes or changes what
// it uses.
func (c *controller) ofCounted(e store.Event) (keys []reconcile.Key) {
	if e.Object != nil && e.Previous != nil && !uses(e.Previous, e.Object) {
		return nil
	}
	for _, obj := range c.Store.List(api.ResourceQuotas(), e.Key.Namespace) {
		if admission.Bounds(obj.(*corev1.ResourceQuota).Spec.Hard, e.Key.GroupResource) {
			keys = append(keys, store.KeyOf(obj))
		}
	}
	return keys
}

// uses says whether a change of an object may change what it uses.
func uses(was, is api.Object) bool {
	switch o := is.(type) {
	case *corev1.Pod:
		return o.Status.Phase != was.(*corev1.Pod).Status.Phase || (o.DeletionTimestamp == nil) != (was.GetDeletionTimestamp() == nil)
	case *corev1.Service, *corev1.PersistentVolumeClaim:
		return is.GetGeneration() != was.GetGeneration() || is.GetGeneration() == 0
	}
	return false
}

// Reconcile counts for one quota. The quota is read before what it counts.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	quota, ok := c.Store.Get(key).(*corev1.ResourceQuota)
	if !ok {
		return nil
	}
	var objects []api.Object
	for _, k := range api.Kinds() {
		if k.Namespaced && admission.Bounds(quota.Spec.Hard, k.GroupResource()) {
			objects = append(objects, c.Store.List(k.GroupResource(), quota.Namespace)...)
		}
	}
	p := decide(quota, objects, c.Now())
	if p.quota != nil {
		if _, err := c.Store.Commit(ctx, store.Txn{Fence: c.Fence(), Ops: []store.Op{{Verb: store.Update, Object: p.quota}}}); err != nil {
			return fmt.Errorf("write the status of %s: %w", key, err)
		}
	}
	if p.again > 0 {
		return reconcile.After(p.again, "a pod that is being deleted to be overdue")
	}
	return nil
}
