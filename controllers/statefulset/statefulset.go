package statefulset

import (
	"context"
	"fmt"
	"log/slog"
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
}

type controller struct {
	Config
	orphanPods      *podset.Orphans
	orphanRevisions *podset.Orphans
	events          *event.Recorder
}

// New returns the controller's loop.
func New(cfg Config) *reconcile.Loop { return newController(cfg).loop() }

func newController(cfg Config) *controller {
	return &controller{
		Config:          cfg,
		orphanPods:      podset.NewOrphans(api.Pods()),
		orphanRevisions: podset.NewOrphans(api.ControllerRevisions()),
		events:          &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "statefulset-controller", Log: cfg.Log},
	}
}

func (c *controller) loop() *reconcile.Loop {
	return reconcile.New(reconcile.Config{
		Name: "statefulset", Reconciler: c, List: c.list, Log: c.Log, Now: c.Now, Metrics: c.Metrics,
		Watches: []reconcile.Watch{
			reconcile.Itself(api.StatefulSets()),
			{Resource: api.Pods(), Keys: c.ofPod},
			{Resource: api.ControllerRevisions(), Keys: c.ofRevision},
			{Resource: api.PersistentVolumeClaims(), Keys: c.ofClaim},
			{Resource: api.ConfigMaps(), Keys: c.ofReferred},
			{Resource: api.Secrets(), Keys: c.ofReferred},
		},
	})
}

// Reconcile observes, plans and applies one step. A plan whose pods are refused is
// made again without them.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	set, ok := c.Store.Get(key).(*appsv1.StatefulSet)
	if !ok {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("selector of %s: %w", key, err))
	}
	now := c.Now()
	o, err := c.observe(set, selector)
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("observe %s: %w", key, err))
	}
	p, refusal := c.admitted(o, now)
	err = c.apply(ctx, o, p, now)
	for podset.Refused(err) && o.yield(p.steps, err) {
		cause := err
		p, refusal = c.admitted(o, now)
		if err = c.apply(ctx, o, p, now); refusal == nil && (len(o.refused) > 0 || o.claimless != "") {
			refusal = cause
		}
	}
	if err != nil {
		return fmt.Errorf("step %s on: %w", key, err)
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
func (c *controller) admitted(o observed, now time.Time) (p plan, refusal error) {
	for {
		p = decide(o, now)
		step, err := c.admitAll(p.steps, o.namespace)
		if err == nil {
			return p, refusal
		}
		refusal = err
		o.refused[step.Revision] = refused{step.Pod.Name, err.Error()}
	}
}
