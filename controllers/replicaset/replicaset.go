package replicaset

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	Random  func() uint64 // for pod names; nil: math/rand
}

type controller struct {
	Config
	kind    kind
	orphans *podset.Orphans
	events  *event.Recorder
}

// New returns the loop of ReplicaSets.
func New(cfg Config) *reconcile.Loop { return newLoop(cfg, replicaSets()) }

// NewReplication returns the loop of ReplicationControllers.
func NewReplication(cfg Config) *reconcile.Loop { return newLoop(cfg, replicationControllers()) }

func newLoop(cfg Config, k kind) *reconcile.Loop {
	if cfg.Random == nil {
		cfg.Random = rand.Uint64
	}
	c := &controller{
		Config:  cfg,
		kind:    k,
		orphans: podset.NewOrphans(api.Pods()),
		events:  &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: k.component, Log: cfg.Log},
	}
	return reconcile.New(reconcile.Config{
		Name: k.loop, Reconciler: c, List: c.list, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
		Watches: []reconcile.Watch{
			{Resource: k.resource, Keys: c.ofSet},
			{Resource: api.Pods(), Keys: c.ofPod},
		},
	})
}

func (c *controller) list() []reconcile.Key {
	c.orphans.Fill(c.Store.List(api.Pods(), ""))
	var keys []reconcile.Key
	for _, obj := range c.Store.List(c.kind.resource, "") {
		if !deployed(obj) {
			keys = append(keys, store.KeyOf(obj))
		}
	}
	return keys
}

func (c *controller) ofSet(e store.Event) []reconcile.Key {
	if e.Object != nil && deployed(e.Object) {
		return nil
	}
	return []reconcile.Key{e.Key}
}

// ofPod wakes the pod's set, before and now; and for a pod without a controller
// the sets that may want it.
func (c *controller) ofPod(e store.Event) []reconcile.Key {
	var keys []reconcile.Key
	for _, obj := range []api.Object{e.Previous, e.Object} {
		if obj == nil {
			continue
		}
		ref := metav1.GetControllerOfNoCopy(obj)
		if ref == nil || ref.Kind != c.kind.name {
			continue
		}
		key := c.kind.key(e.Key.Namespace, ref.Name)
		if set := c.Store.Get(key); set != nil && set.GetUID() == ref.UID && !deployed(set) {
			keys = append(keys, key)
		}
	}
	if c.orphans.Note(e) {
		for _, obj := range c.Store.List(c.kind.resource, e.Key.Namespace) {
			set := c.kind.set(obj)
			if set == nil || deployed(obj) {
				continue
			}
			selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
			if err == nil && selector.Matches(labels.Set(e.Object.GetLabels())) {
				keys = append(keys, store.KeyOf(obj))
			}
		}
	}
	return keys
}

// Reconcile observes, plans and applies. A plan whose pods are refused is made
// again without them.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	owner := c.Store.Get(key)
	if owner == nil || deployed(owner) {
		return nil
	}
	set := c.kind.set(owner)
	if set == nil {
		return reconcile.Terminal(fmt.Errorf("%s has no template", key))
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("selector of %s: %w", key, err))
	}
	now := c.Now()
	ns, _ := c.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: set.Namespace}).(*corev1.Namespace)
	o := observed{set: set, selector: selector, limit: podset.PerTxn(&set.Spec.Template), closed: podset.Closed(ns), untold: c.kind.resource == api.ReplicationControllers()}
	for _, obj := range c.Store.Owned(set.UID) {
		if pod, ok := obj.(*corev1.Pod); ok && metav1.IsControlledBy(pod, owner) {
			o.pods = append(o.pods, pod)
		}
	}
	for _, obj := range c.orphans.Match(c.Store, set.Namespace, selector) {
		o.orphans = append(o.orphans, obj.(*corev1.Pod))
	}
	steps := plan(o, now)
	refusal := admit(owner, set, steps, admission.FactsFor(ns, c.Store))
	if refusal != nil {
		o.refused = refusal.Error()
		steps = plan(o, now)
	}
	err = c.apply(ctx, owner, steps, o.refused, now)
	for o.refused == "" && podset.Refused(err) {
		// There may be room for some of them.
		if o.limit /= 2; o.limit == 0 {
			o.limit, o.refused, refusal = 1, err.Error(), err
		}
		steps = plan(o, now)
		if err := admit(owner, set, steps, admission.FactsFor(ns, c.Store)); err != nil {
			return fmt.Errorf("create pods of %s: %w", key, err)
		}
		err = c.apply(ctx, owner, steps, o.refused, now)
	}
	if err != nil {
		return fmt.Errorf("scale %s: %w", key, err)
	}
	if refusal != nil {
		return fmt.Errorf("create pods of %s: %w", key, refusal)
	}
	if wait := nextTry(o, now); wait > 0 {
		return reconcile.After(wait, "nodes rejected pods of this set")
	}
	if wait := nextAvailable(o, now); wait > 0 {
		return reconcile.After(wait, "a pod to be ready for minReadySeconds")
	}
	return nil
}
