package podset

import (
	"maps"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New makes a pod of a template, controlled by owner and in its namespace, in the
// state that the API server would give it. The caller names and stamps it.
func New(owner api.Object, template *corev1.PodTemplateSpec) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       owner.GetNamespace(),
			GenerateName:    owner.GetName() + "-",
			Labels:          maps.Clone(template.Labels),
			Annotations:     maps.Clone(template.Annotations),
			Finalizers:      slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{Controller(owner)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	api.Scheme().Default(p) // a pod has defaults that a template has not: it requests what it limits
	p.Status.Phase = corev1.PodPending
	p.Status.QOSClass = QOS(&p.Spec)
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates"}}
	}
	return p
}

// Controller is the reference to owner by which an object says who controls it.
func Controller(owner api.Object) metav1.OwnerReference {
	yes := true
	ref := metav1.OwnerReference{Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes}
	if k, ok := api.KindOf(owner); ok {
		ref.APIVersion, ref.Kind = k.GroupVersion().String(), k.Kind
	}
	return ref
}

// PerTxn is how many pods of a template one transaction may create or delete.
func PerTxn(template *corev1.PodTemplateSpec) int {
	const metadata, events = 2 << 10, 10 // what a pod has beyond its template; room for the rest of the transaction
	return min(max(store.BulkBytes/(template.Size()+metadata), 1), store.BulkObjects-events)
}

// maxBase leaves room for a dash and the suffix in a name of 63 characters, which
// is what a pod's host name and Kubernetes' own generated names have.
const maxBase = 57

// suffixAlphabet has no vowels, so that no bad words come up, as in Kubernetes.
const suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// Name is base and a suffix of five characters made from random.
func Name(base string, random uint64) string {
	if len(base) > maxBase {
		base = strings.TrimRight(base[:maxBase], ".-")
	}
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = suffixAlphabet[random%uint64(len(suffixAlphabet))]
		random /= uint64(len(suffixAlphabet))
	}
	return base + "-" + string(suffix)
}

// Remove is the operation that deletes a pod as the API server would on request: a
// pod that a node may be running is marked, and its agent finishes; one that no
// node runs, or that has ended, goes at once, unless finalizers hold it. It returns
// nothing for a pod that is being deleted already and must wait for its agent or
// its finalizers.
func Remove(pod *corev1.Pod, now time.Time) []store.Op {
	waits := pod.Spec.NodeName != "" && !Ended(pod)
	if GoesAtOnce(pod) {
		return []store.Op{{Verb: store.Delete, Object: pod}}
	}
	if pod.DeletionTimestamp != nil {
		return nil
	}
	var grace int64
	if waits && pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	if grace < 0 || waits {
		grace = max(grace, LeastGrace)
	}
	marked := *pod
	marked.ObjectMeta = *pod.ObjectMeta.DeepCopy()
	at := metav1.NewTime(now.Add(api.Seconds(grace)).Truncate(time.Second))
	marked.DeletionTimestamp, marked.DeletionGracePeriodSeconds = &at, &grace
	if marked.Generation > 0 {
		marked.Generation++
	}
	return []store.Op{{Verb: store.Update, Object: &marked}}
}

// GoesAtOnce says whether Remove deletes the pod and does not only mark it.
func GoesAtOnce(pod *corev1.Pod) bool {
	return (pod.Spec.NodeName == "" || Ended(pod)) && len(pod.Finalizers) == 0
}

// Adopt returns the operation that makes owner the pod's controller.
func Adopt(pod *corev1.Pod, owner api.Object) store.Op {
	adopted := *pod
	adopted.ObjectMeta = *pod.ObjectMeta.DeepCopy()
	adopted.OwnerReferences = append(adopted.OwnerReferences, Controller(owner))
	return store.Op{Verb: store.Update, Object: &adopted}
}

// Release returns the operation that takes the owner with uid off the pod.
func Release(pod *corev1.Pod, owner api.Object) store.Op {
	released := *pod
	released.ObjectMeta = *pod.ObjectMeta.DeepCopy()
	released.OwnerReferences = slices.DeleteFunc(released.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
	return store.Op{Verb: store.Update, Object: &released}
}

// Copy returns another pod like an admitted one, with its own name and identity.
// The two share their spec, which nobody changes.
func Copy(pod *corev1.Pod, name string, now time.Time) *corev1.Pod {
	out := *pod
	out.ObjectMeta = *pod.ObjectMeta.DeepCopy()
	out.Status = *pod.Status.DeepCopy()
	out.Name = name
	store.Stamp(&out, now)
	return &out
}

// RemoveAny is Remove for an object of any kind: it goes at once, unless
// finalizers hold it.
func RemoveAny(obj api.Object, now time.Time) []store.Op {
	if pod, ok := obj.(*corev1.Pod); ok {
		return Remove(pod, now)
	}
	if len(obj.GetFinalizers()) == 0 {
		return []store.Op{{Verb: store.Delete, Object: obj}}
	}
	if obj.GetDeletionTimestamp() != nil {
		return nil
	}
	marked := obj.DeepCopyObject().(api.Object)
	at, grace := metav1.NewTime(now.Truncate(time.Second)), int64(0)
	marked.SetDeletionTimestamp(&at)
	marked.SetDeletionGracePeriodSeconds(&grace)
	if g := marked.GetGeneration(); g > 0 {
		marked.SetGeneration(g + 1)
	}
	return []store.Op{{Verb: store.Update, Object: marked}}
}
