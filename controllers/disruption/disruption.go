package disruption

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

type controller struct {
	Config
	events *event.Recorder
}

// New returns the controller's loop.
func New(cfg Config) *reconcile.Loop {
	c := &controller{Config: cfg,
		events: &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "controllermanager", Log: cfg.Log}}
	watches := []reconcile.Watch{reconcile.Itself(api.PodDisruptionBudgets()), {Resource: api.Pods(), Keys: c.ofPod}, {Resource: api.Pods(), Keys: ofTarget}}
	for _, gr := range []schema.GroupResource{api.Deployments(), api.ReplicaSets(), api.StatefulSets(), api.ReplicationControllers()} {
		watches = append(watches, reconcile.Watch{Resource: gr, Keys: c.ofOwner})
	}
	return reconcile.New(reconcile.Config{
		Name: "disruption", Reconciler: c, Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics, Watches: watches,
		List: func() []reconcile.Key {
			return append(reconcile.Keys(cfg.Store, api.PodDisruptionBudgets()), targets(cfg.Store.List(api.Pods(), ""))...)
		},
	})
}

// ofPod wakes the budgets that select the pod, or did.
func (c *controller) ofPod(e store.Event) (keys []reconcile.Key) {
	for _, obj := range c.Store.List(api.PodDisruptionBudgets(), e.Key.Namespace) {
		selector, err := metav1.LabelSelectorAsSelector(obj.(*policyv1.PodDisruptionBudget).Spec.Selector)
		if err != nil {
			continue // it selects nothing
		}
		for _, pod := range []api.Object{e.Object, e.Previous} {
			if pod != nil && selector.Matches(labels.Set(pod.GetLabels())) {
				keys = append(keys, store.KeyOf(obj))
				break
			}
		}
	}
	return keys
}

// ofOwner wakes the budgets of a namespace in which something was scaled.
func (c *controller) ofOwner(e store.Event) (keys []reconcile.Key) {
	if e.Object != nil && e.Previous != nil && replicas(e.Object) == replicas(e.Previous) {
		return nil
	}
	for _, obj := range c.Store.List(api.PodDisruptionBudgets(), e.Key.Namespace) {
		keys = append(keys, store.KeyOf(obj))
	}
	return keys
}

// Reconcile observes, decides and acts for one budget.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	if key.GroupResource == api.Pods() {
		return c.settle(ctx, key)
	}
	budget, ok := c.Store.Get(key).(*policyv1.PodDisruptionBudget)
	if !ok {
		return nil
	}
	o := observed{budget: budget, scales: map[types.UID]int32{}}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		selector, o.failed = labels.Nothing(), err
	}
	for _, obj := range c.Store.List(api.Pods(), budget.Namespace) {
		if pod := obj.(*corev1.Pod); selector.Matches(labels.Set(pod.Labels)) {
			o.pods = append(o.pods, pod)
			c.own(&o, pod)
		}
	}
	now := c.Now()
	p := decide(o, now)
	if p.budget != nil {
		txn := store.Txn{Fence: c.Fence(), Ops: []store.Op{{Verb: store.Update, Object: p.budget}}}
		for _, n := range p.notices {
			about := api.Object(budget)
			if n.pod != nil {
				about = n.pod
			}
			txn.Ops = append(txn.Ops, c.events.Op(about, n.kind, n.reason, n.message)...)
		}
		if _, err := c.Store.Commit(ctx, txn); err != nil {
			return fmt.Errorf("write the status of %s: %w", key, err)
		}
	}
	if p.again > 0 {
		return reconcile.After(p.again, "an eviction to show")
	}
	return nil
}

// own finds the owner of a pod and how many it wants.
func (c *controller) own(o *observed, pod *corev1.Pod) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		o.bare++
		return
	}
	if _, known := o.scales[ref.UID]; known {
		return
	}
	uid, n, err := c.scale(pod, ref)
	if err != nil {
		if o.failed == nil { // one says enough
			o.failed = err
		}
		return
	}
	o.scales[uid] = n
}

// scale is the object at the top that says how many pods there are to be.
func (c *controller) scale(obj api.Object, ref *metav1.OwnerReference) (types.UID, int32, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return "", 0, fmt.Errorf("owner of %s: %w", store.KeyOf(obj), err)
	}
	k, ok := api.KindFor(gv.WithKind(ref.Kind))
	if !ok {
		return "", 0, fmt.Errorf("found no controllers for pod %q: %s is not known", obj.GetName(), ref.Kind)
	}
	owner := c.Store.Get(store.Key{GroupResource: k.GroupResource(), Namespace: obj.GetNamespace(), Name: ref.Name})
	if owner == nil || owner.GetUID() != ref.UID {
		return "", 0, fmt.Errorf("found no controllers for pod %q: %s %s is not there", obj.GetName(), ref.Kind, ref.Name)
	}
	if set, ok := owner.(*appsv1.ReplicaSet); ok {
		if up := metav1.GetControllerOfNoCopy(set); up != nil && up.Kind == "Deployment" {
			return c.scale(set, up)
		}
	}
	n := replicas(owner)
	if n < 0 {
		return "", 0, fmt.Errorf("%s does not implement the scale subresource", k.GroupResource())
	}
	return owner.GetUID(), n, nil
}

// replicas is how many pods an owner wants; -1 for one that cannot be scaled.
func replicas(owner api.Object) int32 {
	var n *int32
	switch o := owner.(type) {
	case *appsv1.Deployment:
		n = o.Spec.Replicas
	case *appsv1.ReplicaSet:
		n = o.Spec.Replicas
	case *appsv1.StatefulSet:
		n = o.Spec.Replicas
	case *corev1.ReplicationController:
		n = o.Spec.Replicas
	default:
		return -1
	}
	if n == nil {
		return 1
	}
	return *n
}
