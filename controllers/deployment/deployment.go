package deployment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

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
	p, refusal := c.admitted(o, d.Namespace, now)
	err = c.apply(ctx, o, p, now)
	for podset.Refused(err) && creates(p.steps) {
		// There may be room for some of them.
		if o.limit /= 2; o.limit == 0 {
			o.limit = 1
			for _, s := range p.steps {
				if s.Verb == write && s.Set.create > 0 {
					o.refused[s.Set.to.Name] = err.Error()
				}
			}
		}
		cause := err
		p, refusal = c.admitted(o, d.Namespace, now)
		if err = c.apply(ctx, o, p, now); refusal == nil && len(o.refused) > 0 {
			refusal = cause
		}
	}
	if podset.Refused(err) {
		err = errors.Join(err, c.tell(ctx, d, p.steps, err, now))
	}
	if err != nil {
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

// admitted decides until what it wants to make may enter; refusal is why something
// else may not.
func (c *controller) admitted(o observed, namespace string, now time.Time) (p plan, refusal error) {
	for {
		p = decide(o, now)
		set, err := c.admit(p.steps, namespace)
		if err == nil {
			return p, refusal
		}
		refusal = err
		o.refused[set] = err.Error()
	}
}

// creates says whether steps make pods.
func creates(steps []Step) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return s.Verb == write && s.Set.create > 0 })
}
