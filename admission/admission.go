package admission

import (
	"errors"
	"fmt"
	"slices"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Verb is what a request wants to do.
type Verb string

const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
)

// EphemeralContainers is the subresource by which containers come to a pod that runs: as
// a new pod, it is held against its namespace's level.
const EphemeralContainers = "ephemeralcontainers"

// Request is one wanted write.
type Request struct {
	Verb        Verb
	Object      api.Object // what is to be written; for Delete, what is to go
	Old         api.Object // the live object; nil for Create
	Subresource string     // "status", "scale"; "" for the object itself
	User        string     // who asks; "" for a component of Headway
}

// Facts is what a decision depends on beside the request.
type Facts struct {
	// Namespace is the namespace that a namespaced object is in; nil when there is
	// no such namespace.
	Namespace *corev1.Namespace
	// PriorityClasses are those there are; a new pod gets its priority from them.
	PriorityClasses []api.Object
	// Accounts are the ServiceAccounts of the namespace, perhaps with others; a new pod
	// runs as one of them.
	Accounts []api.Object
	// StorageClasses are those there are; a new claim gets the default one.
	StorageClasses []api.Object
}

// FactsFor are the facts for what is written into a namespace, which is nil when there
// is none.
func FactsFor(namespace *corev1.Namespace, r interface {
	List(gr schema.GroupResource, namespace string) []api.Object
}) Facts {
	out := Facts{Namespace: namespace, PriorityClasses: r.List(api.PriorityClasses(), ""), StorageClasses: r.List(api.StorageClasses(), "")}
	if namespace != nil {
		out.Accounts = r.List(api.ServiceAccounts(), namespace.Name)
	}
	return out
}

// Admit returns the object to write or the reason why it may not be written. The
// request's objects are not changed; the result may be the same object.
func Admit(r Request, f Facts) (api.Object, error) {
	k, ok := api.KindOf(r.Object)
	if !ok {
		return nil, fmt.Errorf("admit %T: unknown kind", r.Object)
	}
	if err := lifecycle(k, r, f); err != nil {
		return nil, err
	}
	if r.Verb == Delete || r.Subresource != "" && r.Subresource != EphemeralContainers {
		return r.Object, nil
	}
	if errs := unsupported(r); len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.GroupKind(), r.Object.GetName(), errs)
	}
	switch o := r.Object.(type) {
	case *corev1.Pod:
		if r.Subresource == EphemeralContainers {
			if err := secure(o, f); err != nil {
				return nil, err
			}
			return o, limitDebugging(o, f)
		}
		if r.Verb == Create {
			if err := secure(o, f); err != nil {
				return nil, err
			}
			return complete(o, f)
		}
		// Whoever writes a pod's tolerations anew names his own only.
		if more := MissingTolerations(o.Spec.Tolerations); len(more) > 0 {
			out := o.DeepCopy()
			out.Spec.Tolerations = append(out.Spec.Tolerations, more...)
			return out, nil
		}
	case *corev1.PersistentVolumeClaim:
		if r.Verb == Create {
			return Claim(o, f.StorageClasses), nil
		}
		if old, ok := r.Old.(*corev1.PersistentVolumeClaim); ok {
			return o, Resize(o, old, f.StorageClasses)
		}
	case *corev1.PersistentVolume:
		if r.Verb == Create {
			return volume(o), nil
		}
	case *corev1.Namespace:
		return o, securityLabels(r, o)
	case *schedulingv1.PriorityClass:
		return o, oneDefault(o, f)
	}
	return r.Object, nil
}

// lifecycle keeps objects inside living namespaces, and the namespaces that the
// cluster itself needs alive.
func lifecycle(k api.Kind, r Request, f Facts) error {
	if k.Kind == "Namespace" && r.Verb == Delete {
		if Permanent(r.Object.GetName()) {
			return apierrors.NewForbidden(k.GroupResource(), r.Object.GetName(), errors.New("this namespace may not be deleted"))
		}
		return nil
	}
	if !k.Namespaced || r.Verb != Create || r.Subresource != "" {
		return nil
	}
	ns := r.Object.GetNamespace()
	switch {
	case f.Namespace == nil:
		return apierrors.NewNotFound(api.Namespaces(), ns)
	case f.Namespace.DeletionTimestamp != nil || f.Namespace.Status.Phase == corev1.NamespaceTerminating:
		err := apierrors.NewForbidden(k.GroupResource(), r.Object.GetName(), fmt.Errorf("unable to create new content in namespace %s because it is being terminated", ns))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", ns), Field: "metadata.namespace",
		})
		return err
	}
	return nil
}

// Permanent says whether a namespace belongs to the cluster itself.
func Permanent(namespace string) bool {
	switch namespace {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, corev1.NamespaceNodeLease:
		return true
	}
	return false
}

// unsupported lists the fields that this version does not act on (R12). A change
// is not blamed for what the live object has already.
func unsupported(r Request) field.ErrorList {
	errs := api.Unsupported(r.Object)
	if len(errs) == 0 || r.Verb != Update || r.Old == nil {
		return errs
	}
	known := map[string]bool{}
	for _, e := range api.Unsupported(r.Old) {
		known[e.Error()] = true
	}
	var out field.ErrorList
	for _, e := range errs {
		if !known[e.Error()] {
			out = append(out, e)
		}
	}
	return out
}

// grace is how long a pod stays bound to a node that is not ready or cannot be
// reached, unless it says otherwise itself.
const grace = int64(300)

// complete fills in what Kubernetes' admission fills in for a new pod: the
// service account and what comes with it, the priority, the tolerations for a node that fails, and what
// the scheduler does not say of a pod that it does not look at.
func complete(pod *corev1.Pod, f Facts) (api.Object, error) {
	out := pod.DeepCopy()
	if err := useAccount(out, f); err != nil {
		return nil, err
	}
	if err := prioritize(out, f); err != nil {
		return nil, err
	}
	out.Spec.Tolerations = append(out.Spec.Tolerations, MissingTolerations(pod.Spec.Tolerations)...)
	if len(out.Spec.SchedulingGates) > 0 && !slices.ContainsFunc(out.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }) {
		out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates"})
	}
	return out, nil
}

// MissingTolerations are those that a new or changed pod gets beside its own.
func MissingTolerations(own []corev1.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if tolerates(own, key) {
			continue
		}
		seconds := grace
		out = append(out, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
		})
	}
	return out
}

// tolerates says whether the pod speaks about being evicted for a taint at all.
func tolerates(tolerations []corev1.Toleration, key string) bool {
	for _, t := range tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
