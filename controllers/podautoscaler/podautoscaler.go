package podautoscaler

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
)

// Period is how often an autoscaler is looked at.
const Period = 15 * time.Second

// stale is how old what a node has told may be.
const stale = 4 * api.FiguresPeriod

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

	mu     sync.Mutex
	recent map[store.Key]remembrance // of this leadership; one that is gone is looked at once more, and forgotten
	fence  store.Fence               // that recent is of
}

// New returns the controller's loop.
func New(cfg Config) *reconcile.Loop {
	c := &controller{Config: cfg, recent: map[store.Key]remembrance{},
		events: &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "horizontal-pod-autoscaler", Log: cfg.Log}}
	return reconcile.New(reconcile.Config{
		Name: "podautoscaler", Reconciler: c, Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics,
		Watches: []reconcile.Watch{{Resource: api.HorizontalPodAutoscalers(), Keys: c.ofAutoscaler}},
		List:    func() []reconcile.Key { return reconcile.Keys(cfg.Store, api.HorizontalPodAutoscalers()) },
	})
}

// ofAutoscaler wakes an autoscaler whose spec changed: not for its own status.
func (c *controller) ofAutoscaler(e store.Event) []reconcile.Key {
	before, _ := e.Previous.(*autoscalingv2.HorizontalPodAutoscaler)
	after, _ := e.Object.(*autoscalingv2.HorizontalPodAutoscaler)
	if before != nil && after != nil && before.UID == after.UID && equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil
	}
	return []reconcile.Key{e.Key}
}

// Reconcile observes, plans and applies for one autoscaler, and asks to be called again.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	a, ok := c.Store.Get(key).(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok || a.DeletionTimestamp != nil {
		c.forget(key)
		return nil
	}
	now, fence := c.Now(), c.Fence()
	o := c.observe(a, now)
	o.recent = c.remembered(a, fence)
	d := plan(o, now)
	if err := c.apply(ctx, o, d, fence); err != nil {
		return fmt.Errorf("scale by %s: %w", key, err)
	}
	c.remember(a, d.recent, fence)
	return reconcile.After(Period, "the next figures")
}

// observe reads what a plan is made from.
func (c *controller) observe(a *autoscalingv2.HorizontalPodAutoscaler, now time.Time) observed {
	o := observed{autoscaler: a, figures: map[types.UID]reading{}}
	resource, name, ok := api.ScaleTarget(a)
	if !ok {
		o.missing = fmt.Sprintf("no matches for kind %q in version %q", a.Spec.ScaleTargetRef.Kind, a.Spec.ScaleTargetRef.APIVersion)
		return o
	}
	if o.target = c.Store.Get(store.Key{GroupResource: resource, Namespace: a.Namespace, Name: name}); o.target == nil {
		o.missing = fmt.Sprintf("%s %q not found", resource, name)
		return o
	}
	var err error
	if o.scale, err = api.ScaleOf(o.target); err != nil {
		o.unselected = err.Error()
		return o
	}
	others := c.selectors(a)
	nodes, mine := map[string]bool{}, map[types.UID]bool{}
	for _, obj := range c.Store.List(api.Pods(), a.Namespace) {
		pod := obj.(*corev1.Pod)
		if !o.scale.Selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		o.pods, mine[pod.UID] = append(o.pods, pod), true
		nodes[pod.Spec.NodeName] = pod.Spec.NodeName != ""
		for _, other := range others {
			if o.rival == "" && other.selector.Matches(labels.Set(pod.Labels)) {
				o.rival = other.name
			}
		}
	}
	for node, bound := range nodes {
		record, _ := c.Store.Get(store.Key{GroupResource: api.NodeFigureRecords(), Name: node}).(*api.NodeFigures)
		if !bound || record == nil || now.Sub(record.Received.Time) > stale {
			continue
		}
		for i := range record.Pods {
			if f := &record.Pods[i]; mine[f.UID] {
				o.figures[f.UID] = reading{at: record.Time.Time, pod: f}
			}
		}
	}
	return o
}

// other is another autoscaler of the namespace.
type other struct {
	name     string
	selector labels.Selector
}

// selectors are those of the other autoscalers' targets.
func (c *controller) selectors(a *autoscalingv2.HorizontalPodAutoscaler) (out []other) {
	for _, obj := range c.Store.List(api.HorizontalPodAutoscalers(), a.Namespace) {
		b := obj.(*autoscalingv2.HorizontalPodAutoscaler)
		resource, name, ok := api.ScaleTarget(b)
		if b.Name == a.Name || !ok {
			continue
		}
		target := c.Store.Get(store.Key{GroupResource: resource, Namespace: a.Namespace, Name: name})
		if target == nil {
			continue
		}
		if scale, err := api.ScaleOf(target); err == nil {
			out = append(out, other{b.Name, scale.Selector})
		}
	}
	return out
}

// remembrance is what has been recommended for one autoscaler.
type remembrance struct {
	uid    types.UID
	recent []recommendation
}

// remembered are the recommendations that this leadership has made.
func (c *controller) remembered(a *autoscalingv2.HorizontalPodAutoscaler, fence store.Fence) []recommendation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fence != fence { // others may have led in between
		clear(c.recent)
		c.fence = fence
	}
	if m := c.recent[store.KeyOf(a)]; m.uid == a.UID {
		return m.recent
	}
	return nil
}

func (c *controller) remember(a *autoscalingv2.HorizontalPodAutoscaler, recent []recommendation, fence store.Fence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fence == fence {
		c.recent[store.KeyOf(a)] = remembrance{a.UID, recent}
	}
}

func (c *controller) forget(key store.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.recent, key)
}
