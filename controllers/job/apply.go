package job

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// apply performs a plan in one transaction: the Job's status, its pods, and the
// events that tell of them. model is what the pods that it creates are made of.
func (c *controller) apply(ctx context.Context, o observed, p plan, model *corev1.Pod) error {
	now := c.Now()
	t := store.Txn{Fence: c.Fence()}
	add := func(ops ...store.Op) { t.Ops = append(t.Ops, ops...) }
	tell := func(kind, reason, message string) { add(c.events.Op(o.job, kind, reason, message)...) }
	for _, s := range p.steps {
		switch s.verb {
		case deleteJob:
			add(podset.RemoveAny(o.job, now)...)
		case countPod:
			add(released(s.pod))
		case adoptPod:
			add(adopted(s.pod, o.job))
		case loosePod:
			op := podset.Release(s.pod, o.job)
			untrack(op.Object.(*corev1.Pod))
			add(op)
		case removePod:
			add(removal(s.pod, now))
			tell(corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+s.pod.Name)
		case createPod:
			pod := copyOf(model, p.job, s, c.Random(), now)
			add(store.Op{Verb: store.Create, Object: pod})
			tell(corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+pod.Name)
		}
	}
	switch {
	case p.job != nil && (created(p.steps) > 0 || !equality.Semantic.DeepEqual(o.job.Status, p.job.Status) || o.job.Spec.Selector == nil):
		// A transaction that creates pods always writes the Job (R7).
		add(store.Op{Verb: store.Update, Object: p.job})
		c.news(o.job, p.job, tell)
	case len(t.Ops) > 0 && p.deletes() == 0:
		t.If = append(t.If, o.job)
	}
	if o.refused != "" {
		tell(corev1.EventTypeWarning, "FailedCreate", "Error creating: "+o.refused)
	}
	if len(t.Ops) == 0 {
		return nil
	}
	if _, err := c.Store.Commit(ctx, t); err != nil {
		if podset.Refused(err) {
			c.events.Undo(t.Ops)
		}
		return fmt.Errorf("job %s/%s: %w", o.job.Namespace, o.job.Name, err)
	}
	return nil
}

// deletes is how many of the steps write the Job themselves.
func (p plan) deletes() (n int) {
	for _, s := range p.steps {
		if s.verb == deleteJob {
			n++
		}
	}
	return n
}

// news tells of what has just become of the Job.
func (c *controller) news(was, is *batchv1.Job, tell func(kind, reason, message string)) {
	before, after := condition(&was.Status, batchv1.JobSuspended), condition(&is.Status, batchv1.JobSuspended)
	switch {
	case before == nil && after != nil:
		tell(corev1.EventTypeNormal, "Suspended", "Job suspended")
	case before != nil && after == nil:
		tell(corev1.EventTypeNormal, "Resumed", "Job resumed")
	}
	if _, ended := finished(was); ended {
		return
	}
	if condition(&is.Status, batchv1.JobComplete) != nil {
		if n := is.Spec.Completions; n != nil && is.Status.Succeeded > *n {
			tell(corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached")
		}
		tell(corev1.EventTypeNormal, "Completed", "Job completed")
	}
	if f := condition(&is.Status, batchv1.JobFailed); f != nil {
		tell(corev1.EventTypeWarning, f.Reason, f.Message)
	}
}

// untrack takes the tracking finalizer away from a pod that is ours to change.
func untrack(pod *corev1.Pod) {
	pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
}

// released takes the tracking finalizer away, and with it the object when the
// pod has ended and was only waiting for that.
func released(pod *corev1.Pod) store.Op {
	out := pod.DeepCopy()
	untrack(out)
	if pod.DeletionTimestamp != nil && len(out.Finalizers) == 0 && (podset.Terminal(pod) || pod.Spec.NodeName == "") {
		return store.Op{Verb: store.Delete, Object: pod}
	}
	return store.Op{Verb: store.Update, Object: out}
}

// removal releases a pod and deletes it as a user would.
func removal(pod *corev1.Pod, now time.Time) store.Op {
	out := pod.DeepCopy()
	untrack(out)
	if ops := podset.Remove(out, now); len(ops) > 0 {
		return ops[0]
	}
	return store.Op{Verb: store.Update, Object: out}
}

// adopted makes a pod the Job's own, to be counted.
func adopted(pod *corev1.Pod, job *batchv1.Job) store.Op {
	op := podset.Adopt(pod, job)
	if out := op.Object.(*corev1.Pod); !tracked(out) {
		out.Finalizers = append(out.Finalizers, batchv1.JobTrackingFinalizer)
	}
	return op
}

// indexVariable is the variable in which a container finds its pod's index.
const indexVariable = "JOB_COMPLETION_INDEX"

// model is a pod of the Job's template as it may enter, without name and index.
func model(job *batchv1.Job, facts admission.Facts) (*corev1.Pod, error) {
	pod := podset.New(job, &job.Spec.Template)
	if !tracked(pod) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if indexed(job) {
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				giveIndex(&containers[i])
			}
		}
	}
	admitted, err := admission.Admit(admission.Request{Verb: admission.Create, Object: pod}, facts)
	if err != nil {
		return nil, err
	}
	return admitted.(*corev1.Pod), nil
}

// giveIndex adds the variable of the index, unless the container has its own of
// that name.
func giveIndex(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == indexVariable }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"}}})
}

// copyOf makes the pod of a step. A pod with an index has it in its name, host
// name, label and annotation.
func copyOf(model *corev1.Pod, job *batchv1.Job, s step, random uint64, now time.Time) *corev1.Pod {
	if s.index == none {
		return podset.Copy(model, podset.Name(job.Name, random), now)
	}
	index := strconv.Itoa(s.index)
	// The index stays whole in the name of 63 characters, which has a suffix of six.
	base := job.Name[:min(len(job.Name), 63-6-1-len(index))] + "-" + index
	pod := podset.Copy(model, podset.Name(base, random), now)
	pod.GenerateName = base + "-"
	pod.Spec.Hostname = job.Name + "-" + index
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Labels[batchv1.JobCompletionIndexAnnotation] = index
	pod.Annotations[batchv1.JobCompletionIndexAnnotation] = index
	if perIndex(job) {
		pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(s.failures)
		if s.ignored > 0 {
			pod.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(s.ignored)
		}
	}
	return pod
}
