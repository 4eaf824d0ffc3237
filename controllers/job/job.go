package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Config is what the controller needs. Log, Metrics and Random may be left out.
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

// New returns the loop of Jobs. Its keys are Jobs, and pods that a Job left
// behind.
func New(cfg Config) *reconcile.Loop {
	if cfg.Random == nil {
		cfg.Random = rand.Uint64
	}
	c := &controller{
		Config:  cfg,
		orphans: podset.NewOrphans(api.Pods()),
		events:  &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "job-controller", Log: cfg.Log},
	}
	return reconcile.New(reconcile.Config{
		Name:       "job",
		Reconciler: c,
		Now:        cfg.Now,
		Log:        cfg.Log,
		Metrics:    cfg.Metrics,
		List:       c.list,
		Watches: []reconcile.Watch{
			{Resource: api.Jobs(), Keys: c.ofJob},
			{Resource: api.Pods(), Keys: c.ofPod},
			{Resource: api.DoneRecords(), Keys: func(e store.Event) []reconcile.Key { return []reconcile.Key{jobKey(e.Key.Namespace, e.Key.Name)} }},
		},
	})
}

func jobKey(namespace, name string) reconcile.Key {
	return reconcile.Key{GroupResource: api.Jobs(), Namespace: namespace, Name: name}
}

func (c *controller) list() []reconcile.Key {
	keys := reconcile.Keys(c.Store, api.Jobs())
	pods := c.Store.List(api.Pods(), "")
	c.orphans.Fill(pods)
	for _, obj := range pods {
		if p := obj.(*corev1.Pod); tracked(p) && c.jobOf(p) == nil {
			keys = append(keys, store.KeyOf(p))
		}
	}
	return keys
}

// jobOf is the Job that controls a pod; nil when there is none, or none any more.
func (c *controller) jobOf(p *corev1.Pod) *batchv1.Job {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != "Job" {
		return nil
	}
	job, ok := c.Store.Get(jobKey(p.Namespace, ref.Name)).(*batchv1.Job)
	if !ok || job.UID != ref.UID {
		return nil
	}
	return job
}

// ofJob wakes the Job, and the pods that it left behind.
func (c *controller) ofJob(e store.Event) []reconcile.Key {
	keys := []reconcile.Key{e.Key}
	if e.Deleted() {
		for _, obj := range c.Store.Owned(e.Previous.GetUID()) {
			if p, ok := obj.(*corev1.Pod); ok && tracked(p) {
				keys = append(keys, store.KeyOf(p))
			}
		}
	}
	return keys
}

// ofPod wakes the pod's Job, before and now; for a pod without a controller the
// Jobs that may want it; and the pod itself when nobody would release it.
func (c *controller) ofPod(e store.Event) []reconcile.Key {
	var keys []reconcile.Key
	for _, obj := range []api.Object{e.Previous, e.Object} {
		if p, ok := obj.(*corev1.Pod); ok {
			if job := c.jobOf(p); job != nil {
				keys = append(keys, store.KeyOf(job))
			}
		}
	}
	if c.orphans.Note(e) {
		for _, job := range c.wanting(e.Object) {
			keys = append(keys, store.KeyOf(job))
		}
	}
	if p, ok := e.Object.(*corev1.Pod); ok && tracked(p) && c.jobOf(p) == nil {
		keys = append(keys, e.Key)
	}
	return keys
}

// wanting are the Jobs that go on and whose selector matches a pod.
func (c *controller) wanting(pod api.Object) (out []*batchv1.Job) {
	for _, obj := range c.Store.List(api.Jobs(), pod.GetNamespace()) {
		job := obj.(*batchv1.Job)
		if _, over := finished(job); over || job.DeletionTimestamp != nil || job.Spec.Selector == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.GetLabels())) {
			out = append(out, job)
		}
	}
	return out
}

// Reconcile observes, decides and acts for one Job. The Job is read before its
// pods: if the cache moves in between, the Job is the older one and the
// transaction, conditioned on it, fails. A plan whose pods are refused is made
// again without them.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	if key.GroupResource == api.Pods() {
		return c.releaseLeft(ctx, key)
	}
	job, ok := c.Store.Get(key).(*batchv1.Job)
	if !ok {
		return nil
	}
	ns, _ := c.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: job.Namespace}).(*corev1.Namespace)
	o := observed{job: job, closed: podset.Closed(ns), unrecorded: c.unrecorded(key, job)}
	for _, obj := range c.Store.Owned(job.UID) {
		if p, ok := obj.(*corev1.Pod); ok && metav1.IsControlledBy(p, job) {
			o.pods = append(o.pods, p)
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector); err == nil && job.Spec.Selector != nil {
		for _, obj := range c.orphans.Match(c.Store, job.Namespace, selector) {
			o.orphans = append(o.orphans, obj.(*corev1.Pod))
		}
	}
	now := c.Now()
	p := decide(o, now)
	var made *corev1.Pod
	var refusal error
	if created(p.steps) > 0 {
		if made, refusal = model(p.job, admission.FactsFor(ns, c.Store)); refusal != nil {
			o.refused = refusal.Error()
			p = decide(o, now)
		}
	}
	err := c.apply(ctx, o, p, made)
	for podset.Refused(err) && created(p.steps) > 0 {
		// There may be room for some of them.
		if o.bound = int(created(p.steps)) / 2; o.bound == 0 {
			o.refused, refusal = errors.Unwrap(err).Error(), errors.Unwrap(err)
		}
		p = decide(o, now)
		err = c.apply(ctx, o, p, made)
	}
	if err != nil {
		return err
	}
	switch {
	case refusal != nil:
		return fmt.Errorf("create pods of job %s/%s: %w", job.Namespace, job.Name, refusal)
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

// releaseLeft takes the finalizer from a pod that no Job will count: its Job is
// gone, or it has no controller and no Job wants it. Then it can go, too.
func (c *controller) releaseLeft(ctx context.Context, key reconcile.Key) error {
	p, ok := c.Store.Get(key).(*corev1.Pod)
	if !ok || !tracked(p) || c.jobOf(p) != nil {
		return nil
	}
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil && ref.Kind != "Job" || ref == nil && p.DeletionTimestamp == nil && len(c.wanting(p)) > 0 {
		return nil
	}
	if _, err := c.Store.Commit(ctx, store.Txn{Fence: c.Fence(), Ops: []store.Op{released(p)}}); err != nil {
		return fmt.Errorf("release pod %s/%s that no Job has: %w", key.Namespace, key.Name, err)
	}
	return nil
}
