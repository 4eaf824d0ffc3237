package syncer

import (
	"reflect"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clearAssigned empties what only the cluster may fill.
func clearAssigned(obj api.Object) {
	obj.SetUID("")
	obj.SetResourceVersion("")
	obj.SetSelfLink("")
	obj.SetGeneration(0)
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetManagedFields(nil)
	if status := reflect.ValueOf(obj).Elem().FieldByName("Status"); status.IsValid() {
		status.SetZero()
	}
}

// provenanceKeys are the annotations that the syncer alone writes.
func provenanceKeys() []string {
	return []string{api.AnnotationSource, api.AnnotationCommit, api.AnnotationPath, api.AnnotationLine, api.AnnotationAuthor, api.AnnotationHash}
}

func clearProvenance(obj api.Object) {
	own := map[string]string{}
	for k, v := range obj.GetAnnotations() {
		own[k] = v
	}
	for _, k := range provenanceKeys() {
		delete(own, k)
	}
	obj.SetAnnotations(own)
}

// prepare fills a new object as the API does on create.
func prepare(obj api.Object) {
	switch o := obj.(type) {
	case *corev1.Namespace:
		o.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		o.Status.Phase = corev1.NamespaceActive
	case *corev1.Pod:
		o.Status.Phase, o.Status.QOSClass = corev1.PodPending, podset.QOS(&o.Spec)
	case *batchv1.Job:
		api.SelectJob(o)
	default:
		api.Complete(obj)
	}
}

// checkUpdate is Kubernetes' own judgement of a change in place.
func checkUpdate(m *api.Manifest, out, live api.Object) []api.Problem {
	return m.Problems(api.ValidateUpdate(out, live))
}

// bumpGeneration counts a change of the specification, as the API does.
func bumpGeneration(out, live api.Object) {
	a, b := reflect.ValueOf(out).Elem().FieldByName("Spec"), reflect.ValueOf(live).Elem().FieldByName("Spec")
	if a.IsValid() && b.IsValid() && !equality.Semantic.DeepEqual(a.Interface(), b.Interface()) {
		out.SetGeneration(live.GetGeneration() + 1)
	}
}

// graceOf says whether a deletion has to wait for someone, and how long a pod is
// given.
func graceOf(obj api.Object) (seconds int64, wait bool) {
	switch o := obj.(type) {
	case *corev1.Namespace:
		return 0, len(o.Spec.Finalizers)+len(o.Finalizers) > 0
	case *corev1.Pod:
		if o.Spec.NodeName != "" && o.Status.Phase != corev1.PodSucceeded && o.Status.Phase != corev1.PodFailed {
			seconds = corev1.DefaultTerminationGracePeriodSeconds
			if g := o.Spec.TerminationGracePeriodSeconds; g != nil {
				seconds = max(*g, 1)
			}
			return seconds, true
		}
	}
	return 0, len(obj.GetFinalizers()) > 0
}

func markDeleted(obj api.Object, now time.Time, grace int64) {
	at := metav1.NewTime(now.Add(api.Seconds(grace)).Truncate(time.Second))
	obj.SetDeletionTimestamp(&at)
	obj.SetDeletionGracePeriodSeconds(&grace)
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if ns, ok := obj.(*corev1.Namespace); ok {
		ns.Status.Phase = corev1.NamespaceTerminating
	}
}

// outcome is Complete or Failed for a Job that has finished, else empty.
func outcome(job *batchv1.Job) string {
	c := finished(job)
	if c == nil {
		return ""
	}
	return string(c.Type)
}

func finished(job *batchv1.Job) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// doneOp writes the done record of a finished Job; false when it need not.
func doneOp(job *batchv1.Job, old *api.DoneRecord, from api.Provenance, now time.Time) (store.Op, bool) {
	c := finished(job)
	if c == nil || old != nil && old.Hash == from.Hash && old.Source == from.Source && old.Outcome == string(c.Type) {
		return store.Op{}, false
	}
	record := &api.DoneRecord{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
	op := store.Op{Verb: store.Create, Object: record}
	if old != nil {
		record = old.DeepCopyObject().(*api.DoneRecord)
		op = store.Op{Verb: store.Update, Object: record}
	} else {
		store.Stamp(record, now)
	}
	record.Source, record.Hash, record.Outcome, record.FinishedAt = from.Source, from.Hash, string(c.Type), c.LastTransitionTime
	return op, true
}

func equalObjects(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
