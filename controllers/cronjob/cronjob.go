package cronjob

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Config is what the controller needs. Log and Metrics may be left out.
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

// New returns the loop of CronJobs.
func New(cfg Config) *reconcile.Loop {
	c := &controller{Config: cfg, events: &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "cronjob-controller", Log: cfg.Log}}
	return reconcile.New(reconcile.Config{
		Name:       "cronjob",
		Reconciler: c,
		Now:        cfg.Now,
		Log:        cfg.Log,
		Metrics:    cfg.Metrics,
		List: func() []reconcile.Key {
			return append(reconcile.Keys(cfg.Store, api.CronJobs()), sweepKey())
		},
		Watches: []reconcile.Watch{
			reconcile.Itself(api.CronJobs()),
			reconcile.Owner(api.Jobs(), "CronJob", api.CronJobs()),
		},
	})
}

// Reconcile observes, decides and acts for one CronJob.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	if key == sweepKey() {
		return c.sweep(ctx)
	}
	cron, ok := c.Store.Get(key).(*batchv1.CronJob)
	if !ok {
		return nil
	}
	ns, _ := c.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: cron.Namespace}).(*corev1.Namespace)
	o := observed{cron: cron, closed: podset.Closed(ns)}
	o.taken, _ = c.Store.Get(recordKey(cron.Namespace, cron.Name)).(*api.SlotRecord)
	for _, obj := range c.Store.Owned(cron.UID) {
		if j, ok := obj.(*batchv1.Job); ok && metav1.IsControlledBy(j, cron) {
			o.jobs = append(o.jobs, j)
		}
	}
	p := decide(o, c.Now())
	if err := c.apply(ctx, o, p); err != nil {
		return err
	}
	if p.fatal != nil {
		return reconcile.Terminal(p.fatal)
	}
	if p.after > 0 {
		return reconcile.After(p.after, "next slot")
	}
	return nil
}

// changed says whether the plan writes the CronJob.
func changed(o observed, p plan) bool {
	return p.cron != nil && (!equality.Semantic.DeepEqual(o.cron.Status, p.cron.Status) || o.cron.Annotations[skipped] != p.cron.Annotations[skipped])
}
