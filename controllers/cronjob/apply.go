package cronjob

import (
	"context"
	"errors"
	"maps"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apply performs a plan in one transaction: the Jobs, the CronJob's status, and
// the events that tell of it.
func (c *controller) apply(ctx context.Context, o observed, p plan) error {
	t := store.Txn{Fence: c.Fence()}
	var made *batchv1.Job
	for _, s := range p.steps {
		switch s.verb {
		case createJob:
			made = newJob(p.cron, s.slot, c.Now())
			t.Ops = append(t.Ops, store.Op{Verb: store.Create, Object: made}, taking(o, s.slot, c.Now()))
			p.cron.Status.Active = append(p.cron.Status.Active, reference(made))
		case removeJob:
			t.Ops = append(t.Ops, podset.RemoveAny(s.job, c.Now())...)
		}
		kind := corev1.EventTypeNormal
		if s.warn {
			kind = corev1.EventTypeWarning
		}
		t.Ops = append(t.Ops, c.events.Op(o.cron, kind, s.reason, s.message)...)
	}
	if changed(o, p) || made != nil {
		t.Ops = append(t.Ops, store.Op{Verb: store.Update, Object: p.cron})
	}
	if len(t.Ops) == 0 {
		return nil
	}
	_, err := c.Store.Commit(ctx, t)
	var at *store.KeyError
	if made != nil && errors.Is(err, store.ErrExists) && (!errors.As(err, &at) || at.Key == store.KeyOf(made)) {
		return c.take(ctx, o, p, made)
	}
	if made != nil && podset.Refused(err) {
		c.events.Undo(t.Ops)
		c.events.Event(ctx, o.cron, corev1.EventTypeWarning, "FailedCreate", "Error creating job: "+err.Error())
	}
	return err
}

// take passes over a slot whose Job is there already under another owner: a
// CronJob of the same name that was deleted and declared anew (R5).
func (c *controller) take(ctx context.Context, o observed, p plan, made *batchv1.Job) error {
	if c.Store.Get(store.KeyOf(made)) == nil {
		return store.ErrConflict // something else existed, or the cache is behind: look again
	}
	cron := o.cron.DeepCopy()
	cron.Status.LastScheduleTime = p.cron.Status.LastScheduleTime
	_, err := c.Store.Commit(ctx, store.Txn{Fence: c.Fence(), Ops: []store.Op{{Verb: store.Update, Object: cron}}})
	return err
}

// taking is the operation that notes a slot of the CronJob as taken.
func taking(o observed, slot, now time.Time) store.Op {
	if o.taken != nil {
		r := o.taken.DeepCopyObject().(*api.SlotRecord)
		r.Take(slot)
		return store.Op{Verb: store.Update, Object: r}
	}
	kind, _ := api.KindOf(o.cron)
	r := &api.SlotRecord{ObjectMeta: metav1.ObjectMeta{Name: recordKey(o.cron.Namespace, o.cron.Name).Name}, CronJob: api.RefTo(kind, o.cron.Namespace, o.cron.Name)}
	r.Take(slot)
	store.Stamp(r, now)
	return store.Op{Verb: store.Create, Object: r}
}

// newJob makes the Job of a slot.
func newJob(cron *batchv1.CronJob, slot, now time.Time) *batchv1.Job {
	template := cron.Spec.JobTemplate.DeepCopy()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace:       cron.Namespace,
		Name:            jobName(cron, slot),
		Labels:          maps.Clone(template.Labels),
		Annotations:     maps.Clone(template.Annotations),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
	}, Spec: template.Spec}
	if j.Annotations == nil {
		j.Annotations = map[string]string{}
	}
	j.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = slot.Format(time.RFC3339)
	api.Scheme().Default(j)
	store.Stamp(j, now)
	return j
}
