package replicaset

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
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
	orphans *podset.Orphans
	events  *event.Recorder
}

// New returns the controller's loop.
func New(cfg Config) *reconcile.Loop {
	if cfg.Random == nil {
		cfg.Random = rand.Uint64
	}
	c := &controller{
		Config:  cfg,
		orphans: podset.NewOrphans(api.Pods()),
		events:  &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "replicaset-controller", Log: cfg.Log},
	}
	return reconcile.New(reconcile.Config{
		Name: "replicaset", Reconciler: c, List: c.list, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
		Watches: []reconcile.Watch{
			{Resource: api.ReplicaSets(), Keys: c.ofSet},
			{Resource: api.Pods(), Keys: c.ofPod},
		},
	})
}

func (c *controller) list() []reconcile.Key {
	c.orphans.Fill(c.Store.List(api.Pods(), ""))
	var keys []reconcile.Key
	for _, obj := range c.Store.List(api.ReplicaSets(), "") {
		if !deployed(obj) {
			keys = append(keys, store.KeyOf(obj))
		}
	}
	return keys
}

// deployed says whether a Deployment controls the set.
func deployed(set api.Object) bool {
	ref := metav1.GetControllerOfNoCopy(set)
	return ref != nil && ref.Kind == "Deployment"
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
		if ref == nil || ref.Kind != "ReplicaSet" {
			continue
		}
		key := store.Key{GroupResource: api.ReplicaSets(), Namespace: e.Key.Namespace, Name: ref.Name}
		if set := c.Store.Get(key); set != nil && set.GetUID() == ref.UID && !deployed(set) {
			keys = append(keys, key)
		}
	}
	if c.orphans.Note(e) {
		for _, obj := range c.Store.List(api.ReplicaSets(), e.Key.Namespace) {
			set := obj.(*appsv1.ReplicaSet)
			selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
			if err == nil && !deployed(set) && selector.Matches(labels.Set(e.Object.GetLabels())) {
				keys = append(keys, store.KeyOf(set))
			}
		}
	}
	return keys
}

// Reconcile observes, plans and applies. A plan whose pods are refused is made
// again without them.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	set, ok := c.Store.Get(key).(*appsv1.ReplicaSet)
	if !ok || deployed(set) {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("selector of %s: %w", key, err))
	}
	now := c.Now()
	ns, _ := c.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: set.Namespace}).(*corev1.Namespace)
	o := observed{set: set, selector: selector, limit: podset.PerTxn(&set.Spec.Template), closed: podset.Closed(ns)}
	for _, obj := range c.Store.Owned(set.UID) {
		if pod, ok := obj.(*corev1.Pod); ok && metav1.IsControlledBy(pod, set) {
			o.pods = append(o.pods, pod)
		}
	}
	for _, obj := range c.orphans.Match(c.Store, set.Namespace, selector) {
		o.orphans = append(o.orphans, obj.(*corev1.Pod))
	}
	steps := plan(o, now)
	refusal := admit(set, steps, ns)
	if refusal != nil {
		o.refused = refusal.Error()
		steps = plan(o, now)
	}
	err = c.apply(ctx, set, steps, o.refused, now)
	for o.refused == "" && podset.Refused(err) {
		// There may be room for some of them.
		if o.limit /= 2; o.limit == 0 {
			o.limit, o.refused, refusal = 1, err.Error(), err
		}
		steps = plan(o, now)
		if err := admit(set, steps, ns); err != nil {
			return fmt.Errorf("create pods of %s: %w", key, err)
		}
		err = c.apply(ctx, set, steps, o.refused, now)
	}
	if err != nil {
		return fmt.Errorf("scale %s: %w", key, err)
	}
	if refusal != nil {
		return fmt.Errorf("create pods of %s: %w", key, refusal)
	}
	if wait := nextAvailable(o, now); wait > 0 {
		return reconcile.After(wait, "a pod to be ready for minReadySeconds")
	}
	return nil
}
