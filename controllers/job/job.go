package job

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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
	// Suffix makes the end of a pod's name; nil: five random letters.
	Suffix func() string
}

type controller struct {
	Config
	events *event.Recorder
}

// New returns the loop of Jobs.
func New(cfg Config) *reconcile.Loop {
	if cfg.Suffix == nil {
		cfg.Suffix = suffix
	}
	c := &controller{Config: cfg, events: &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "job-controller", Log: cfg.Log}}
	return reconcile.New(reconcile.Config{
		Name:       "job",
		Reconciler: c,
		Now:        cfg.Now,
		Log:        cfg.Log,
		Metrics:    cfg.Metrics,
		List:       func() []reconcile.Key { return reconcile.Keys(cfg.Store, api.Jobs()) },
		Watches: []reconcile.Watch{
			reconcile.Itself(api.Jobs()),
			reconcile.Owner(api.Pods(), "Job", api.Jobs()),
			{Resource: api.DoneRecords(), Keys: func(e store.Event) []reconcile.Key {
				return []reconcile.Key{{GroupResource: api.Jobs(), Namespace: e.Key.Namespace, Name: e.Key.Name}}
			}},
		},
	})
}

// Reconcile observes, decides and acts for one Job. The Job is read before its
// pods: if the cache moves in between, the Job is the older one and the
// transaction, conditioned on it, fails.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	job, ok := c.Store.Get(key).(*batchv1.Job)
	if !ok {
		return c.releaseOrphans(ctx, key)
	}
	o := observed{job: job, unrecorded: c.unrecorded(key, job)}
	for _, obj := range c.Store.Owned(job.UID) {
		if p, ok := obj.(*corev1.Pod); ok && metav1.IsControlledBy(p, job) {
			o.pods = append(o.pods, p)
		}
	}
	p := decide(o, c.Now())
	err := c.apply(ctx, o, p)
	switch {
	case err != nil:
		return err
	case p.more:
		return reconcile.After(time.Nanosecond, "more than one transaction of work")
	case p.after > 0:
		return reconcile.After(p.after, p.why)
	}
	return nil
}

// unrecorded says whether a declared Job has no done record for its manifest.
func (c *controller) unrecorded(key reconcile.Key, job *batchv1.Job) bool {
	from, declared := api.ProvenanceOf(job)
	if !declared || metav1.GetControllerOfNoCopy(job) != nil {
		return false
	}
	d, ok := c.Store.Get(store.Key{GroupResource: api.DoneRecords(), Namespace: key.Namespace, Name: key.Name}).(*api.DoneRecord)
	return !ok || d.Source != from.Source || d.Hash != from.Hash
}

// releaseOrphans takes the finalizer from pods whose Job is gone, so that they
// can go too.
func (c *controller) releaseOrphans(ctx context.Context, key reconcile.Key) error {
	t := store.Txn{Fence: c.Fence()}
	for _, obj := range c.Store.List(api.Pods(), key.Namespace) {
		p, ok := obj.(*corev1.Pod)
		if !ok || !tracked(p) {
			continue
		}
		if ref := metav1.GetControllerOf(p); ref == nil || ref.Kind != "Job" || ref.Name != key.Name {
			continue
		}
		if t.Ops = append(t.Ops, released(p)); len(t.Ops) == store.BulkObjects {
			break
		}
	}
	if len(t.Ops) == 0 {
		return nil
	}
	if _, err := c.Store.Commit(ctx, t); err != nil {
		return fmt.Errorf("release the pods of the Job %s/%s that is gone: %w", key.Namespace, key.Name, err)
	}
	return reconcile.After(time.Nanosecond, "perhaps there are more")
}

// suffix is five letters of Kubernetes' alphabet for generated names.
func suffix() string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, 5)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return string(b)
}
