package deployment

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	orphanSets *podset.Orphans
	orphanPods *podset.Orphans
	events     *event.Recorder // about Deployments
	setEvents  *event.Recorder // about their ReplicaSets
}

// New returns the controller's loop.
func New(cfg Config) *reconcile.Loop {
	if cfg.Random == nil {
		cfg.Random = rand.Uint64
	}
	recorder := func(component string) *event.Recorder {
		return &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: component, Log: cfg.Log}
	}
	c := &controller{
		Config:     cfg,
		orphanSets: podset.NewOrphans(api.ReplicaSets()),
		orphanPods: podset.NewOrphans(api.Pods()),
		events:     recorder("deployment-controller"),
		setEvents:  recorder("replicaset-controller"),
	}
	return reconcile.New(reconcile.Config{
		Name: "deployment", Reconciler: c, List: c.list, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
		Watches: []reconcile.Watch{
			reconcile.Itself(api.Deployments()),
			{Resource: api.ReplicaSets(), Keys: c.ofSet},
			{Resource: api.Pods(), Keys: c.ofPod},
			{Resource: api.ConfigMaps(), Keys: c.ofReferred},
			{Resource: api.Secrets(), Keys: c.ofReferred},
		},
	})
}

// Reconcile observes, plans and applies one step. A plan whose pods are refused
// is made again without them.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	d, ok := c.Store.Get(key).(*appsv1.Deployment)
	if !ok {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("selector of %s: %w", key, err))
	}
	now := c.Now()
	o, err := c.observe(d, selector)
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("observe %s: %w", key, err))
	}
	p := decide(o, now)
	var refusal error
	for {
		set, err := c.admit(p.steps, d.Namespace)
		if err == nil {
			break
		}
		refusal = err
		o.refused[set] = err.Error()
		p = decide(o, now)
	}
	if err := c.apply(ctx, o, p, now); err != nil {
		return fmt.Errorf("roll out %s: %w", key, err)
	}
	switch {
	case refusal != nil:
		return fmt.Errorf("create pods of %s: %w", key, refusal)
	case p.wait > 0:
		return reconcile.After(p.wait, p.why)
	}
	return nil
}
