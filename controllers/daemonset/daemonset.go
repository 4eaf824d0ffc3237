package daemonset

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
	admit           func(admission.Request, admission.Facts) (api.Object, error)
	orphanPods      *podset.Orphans
	orphanRevisions *podset.Orphans
	failures        *failures
	events          *event.Recorder
}

// New returns the controller's loop.
func New(cfg Config) *reconcile.Loop {
	if cfg.Random == nil {
		cfg.Random = rand.Uint64
	}
	c := &controller{
		Config:          cfg,
		admit:           admission.Admit,
		orphanPods:      podset.NewOrphans(api.Pods()),
		orphanRevisions: podset.NewOrphans(api.ControllerRevisions()),
		failures:        &failures{},
		events:          &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "daemonset-controller", Log: cfg.Log},
	}
	return reconcile.New(reconcile.Config{
		Name: "daemonset", Reconciler: c, List: c.list, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
		Watches: []reconcile.Watch{
			reconcile.Itself(api.DaemonSets()),
			{Resource: api.Pods(), Keys: c.ofPod},
			{Resource: api.Nodes(), Keys: c.ofNode},
			{Resource: api.ControllerRevisions(), Keys: c.ofRevision},
			{Resource: api.ConfigMaps(), Keys: c.ofReferred},
			{Resource: api.Secrets(), Keys: c.ofReferred},
		},
	})
}

// Reconcile observes, plans and applies one step. A plan whose pods are refused is
// made again without them.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	set, ok := c.Store.Get(key).(*appsv1.DaemonSet)
	if !ok || set.DeletionTimestamp != nil {
		// The pods of one that is deleted go with it.
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("selector of %s: %w", key, err))
	}
	now := c.Now()
	o, err := c.observe(set, selector, now)
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("observe %s: %w", key, err))
	}
	p := decide(o, now)
	refusal := c.admitFirst(o, p.steps)
	if refusal != nil {
		o.refused = refusal.Error()
		p = decide(o, now)
	}
	err = c.apply(ctx, o, p, now)
	for o.refused == "" && podset.Refused(err) && p.creates() {
		// There may be room for some of them.
		if o.limit /= 2; o.limit == 0 {
			o.limit, o.refused, refusal = 1, err.Error(), err
		}
		p = decide(o, now)
		if err := c.admitFirst(o, p.steps); err != nil {
			return fmt.Errorf("create pods of %s: %w", key, err)
		}
		err = c.apply(ctx, o, p, now)
	}
	if err != nil {
		return fmt.Errorf("step %s on: %w", key, err)
	}
	for _, s := range p.steps {
		if s.Verb == remove && s.Failed {
			c.failures.note(set.UID, s.Node, now)
		}
	}
	switch {
	case refusal != nil:
		return fmt.Errorf("create pods of %s: %w", key, refusal)
	case p.wait > 0:
		return reconcile.After(p.wait, p.why)
	}
	return nil
}
