package job

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apply performs a plan in one transaction: the Job's status, its pods, and the
// events that tell of them.
func (c *controller) apply(ctx context.Context, o observed, p plan) error {
	now := c.Now()
	t := store.Txn{Fence: c.Fence()}
	add := func(ops ...store.Op) { t.Ops = append(t.Ops, ops...) }
	for _, s := range p.steps {
		switch s.verb {
		case deleteJob:
			add(store.Op{Verb: store.Delete, Object: o.job})
		case countPod:
			add(released(s.pod))
		case removePod, dropPod:
			add(removal(s.pod, s.verb == dropPod, now))
			add(c.events.Op(o.job, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+s.pod.Name)...)
		case createPods:
			for range s.count {
				pod := newPod(p.job, c.Suffix(), now)
				add(store.Op{Verb: store.Create, Object: pod})
				add(c.events.Op(o.job, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+pod.Name)...)
			}
		}
	}
	// A transaction that creates pods always writes the Job (R7).
	if p.job != nil && (created(p.steps) > 0 || !equality.Semantic.DeepEqual(o.job.Status, p.job.Status) || o.job.Spec.Selector == nil) {
		add(store.Op{Verb: store.Update, Object: p.job})
		add(c.outcome(o.job, p.job)...)
	}
	if len(t.Ops) == 0 {
		return nil
	}
	if _, err := c.Store.Commit(ctx, t); err != nil {
		return fmt.Errorf("job %s/%s: %w", o.job.Namespace, o.job.Name, err)
	}
	return nil
}

// outcome is the event of a Job that has just ended.
func (c *controller) outcome(was, is *batchv1.Job) []store.Op {
	if _, before := finished(was); before {
		return nil
	}
	if condition(&is.Status, batchv1.JobComplete) != nil {
		return c.events.Op(was, corev1.EventTypeNormal, "Completed", "Job completed")
	}
	if f := condition(&is.Status, batchv1.JobFailed); f != nil {
		return c.events.Op(was, corev1.EventTypeWarning, f.Reason, f.Message)
	}
	return nil
}

// released takes the tracking finalizer away, and with it the object when the
// pod has ended and was only waiting for that.
func released(pod *corev1.Pod) store.Op {
	out := pod.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if pod.DeletionTimestamp != nil && len(out.Finalizers) == 0 && (ended || pod.Spec.NodeName == "") {
		return store.Op{Verb: store.Delete, Object: pod}
	}
	return store.Op{Verb: store.Update, Object: out}
}

// removal asks a bound pod to end gracefully; one that no node has seen is
// deleted at once. release takes its finalizer away too, so that it is not
// counted.
func removal(pod *corev1.Pod, release bool, now time.Time) store.Op {
	out := pod.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool {
		return f == batchv1.JobTrackingFinalizer && (release || pod.Spec.NodeName == "")
	})
	if pod.Spec.NodeName == "" && len(out.Finalizers) == 0 {
		return store.Op{Verb: store.Delete, Object: pod}
	}
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	// As the API server does: the timestamp is when the grace ends.
	out.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Duration(grace) * time.Second)}
	out.DeletionGracePeriodSeconds = &grace
	return store.Op{Verb: store.Update, Object: out}
}

// newPod makes one pod of the Job's template.
func newPod(job *batchv1.Job, suffix string, now time.Time) *corev1.Pod {
	template := job.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       job.Namespace,
			Name:            name(job.Name, suffix),
			GenerateName:    job.Name + "-",
			Labels:          maps.Clone(template.Labels),
			Annotations:     maps.Clone(template.Annotations),
			Finalizers:      append(slices.Clone(template.Finalizers), batchv1.JobTrackingFinalizer),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec:   template.Spec,
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	api.Scheme().Default(pod)
	store.Stamp(pod, now)
	return pod
}

// name joins a Job's name and a suffix within the 63 characters of a host name.
func name(base, suffix string) string {
	if most := 63 - len(suffix) - 1; len(base) > most {
		base = base[:most]
	}
	return base + "-" + suffix
}
