package namespace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// observed is the state that a plan decides on.
type observed struct {
	name      string
	namespace *corev1.Namespace // nil: not there
	account   bool              // its ServiceAccount default is there
	rootCA    *corev1.ConfigMap // its ConfigMap kube-root-ca.crt; nil: not there
	authority string            // what that ConfigMap must hold, PEM
	content   []resource        // of a namespace that is being deleted
}

// resource is what a namespace has of one kind.
type resource struct {
	kind    api.Kind
	objects []api.Object
}

func (o *observed) deleting() bool { return podset.Closed(o.namespace) && !admission.Permanent(o.name) }

// verb is what a step does.
type verb string

const (
	create verb = "create" // the namespace or what each one has
	write  verb = "write"  // the same
	empty  verb = "empty"  // delete one object in it
	remove verb = "remove" // the namespace
)

// Step is one decided change.
type Step struct {
	Verb   verb
	Object api.Object
	Reason string
}

// perTxn is how many objects of a namespace one plan deletes; the rest of a
// transaction is the namespace itself.
const perTxn = store.BulkObjects - 3

// plan decides what a namespace needs now.
func plan(o observed, now time.Time) []Step {
	switch {
	case o.namespace == nil && !admission.Permanent(o.name):
		return nil
	case o.namespace == nil:
		ns := usable(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.name}})
		return append([]Step{{Verb: create, Object: ns, Reason: "the cluster needs it"}}, planOwn(o)...)
	case o.deleting():
		return planEmptying(o, now)
	case podset.Closed(o.namespace):
		return nil // permanent: admission refuses its deletion, so nobody asked properly
	}
	var steps []Step
	if ns := usable(o.namespace); !equality.Semantic.DeepEqual(ns, o.namespace) {
		steps = append(steps, Step{Verb: write, Object: ns, Reason: "what every namespace has"})
	}
	return append(steps, planOwn(o)...)
}

// planOwn keeps what every namespace has: the account its pods run under, and the
// certificate by which they know the API server.
func planOwn(o observed) []Step {
	var steps []Step
	if !o.account {
		steps = append(steps, Step{Verb: create, Reason: "pods run under it",
			Object: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: o.name, Name: account}}})
	}
	data := map[string]string{"ca.crt": o.authority}
	switch {
	case o.rootCA == nil:
		steps = append(steps, Step{Verb: create, Reason: "pods know the API server by it", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.name, Name: rootCA,
			Annotations: map[string]string{"kubernetes.io/description": "The certificate authority of this cluster's API server."},
		}, Data: data}})
	case o.rootCA.DeletionTimestamp == nil && (!maps.Equal(o.rootCA.Data, data) || len(o.rootCA.BinaryData) > 0):
		right := o.rootCA.DeepCopy()
		right.Data, right.BinaryData = data, nil
		steps = append(steps, Step{Verb: write, Object: right, Reason: "it does not hold the authority of this cluster"})
	}
	return steps
}

// usable returns the namespace with what the API server gives every new one.
func usable(ns *corev1.Namespace) *corev1.Namespace {
	ns = ns.DeepCopy()
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	if ns.Status.Phase == "" {
		ns.Status.Phase = corev1.NamespaceActive
	}
	return ns
}

// planEmptying deletes what is in the namespace, and at last the namespace.
func planEmptying(o observed, now time.Time) []Step {
	var steps []Step
	left := map[string]int{}       // objects that still stay, by resource
	finalizers := map[string]int{} // what holds them
	for _, r := range o.content {
		for _, obj := range r.objects {
			ops := podset.RemoveAny(obj, now)
			gone := len(ops) == 1 && ops[0].Verb == store.Delete
			if len(ops) > 0 && len(steps) < perTxn {
				steps = append(steps, Step{Verb: empty, Object: obj, Reason: "its namespace is being deleted"})
			} else if len(ops) > 0 {
				gone = false
			}
			if gone {
				continue
			}
			left[r.kind.Resource+"."+r.kind.Group]++
			for _, f := range obj.GetFinalizers() {
				finalizers[f]++
			}
		}
	}
	if len(steps) == 0 && len(left) == 0 {
		return release(o.namespace, now)
	}
	if len(left) == 0 {
		return steps // the deletions wake the namespace again
	}
	ns := o.namespace.DeepCopy()
	ns.Status.Phase = corev1.NamespaceTerminating
	ns.Status.Conditions = conditions(ns.Status.Conditions, left, finalizers, now)
	if !equality.Semantic.DeepEqual(ns, o.namespace) {
		steps = append(steps, Step{Verb: write, Object: ns, Reason: "what is left changed"})
	}
	return steps
}

// release takes our finalizer off an empty namespace, which then goes unless
// others hold it.
func release(ns *corev1.Namespace, now time.Time) []Step {
	rest := slices.DeleteFunc(slices.Clone(ns.Spec.Finalizers), func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	if len(rest) == 0 && len(ns.Finalizers) == 0 {
		return []Step{{Verb: remove, Object: ns, Reason: "it is empty"}}
	}
	held := ns.DeepCopy()
	held.Spec.Finalizers = rest
	held.Status.Phase = corev1.NamespaceTerminating
	held.Status.Conditions = conditions(held.Status.Conditions, nil, nil, now)
	if equality.Semantic.DeepEqual(held, ns) {
		return nil
	}
	return []Step{{Verb: write, Object: held, Reason: "it is empty, others hold it"}}
}

// conditions are Kubernetes' own for a namespace that is being deleted.
func conditions(before []corev1.NamespaceCondition, left, finalizers map[string]int, now time.Time) []corev1.NamespaceCondition {
	out := slices.Clone(before)
	set := func(kind corev1.NamespaceConditionType, bad bool, reason, message string) {
		c := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
		if bad {
			c.Status = corev1.ConditionTrue
		}
		i := slices.IndexFunc(out, func(c corev1.NamespaceCondition) bool { return c.Type == kind })
		if i < 0 {
			out = append(out, c)
			return
		}
		if out[i].Status == c.Status {
			c.LastTransitionTime = out[i].LastTransitionTime
		}
		out[i] = c
	}
	set(corev1.NamespaceDeletionDiscoveryFailure, false, "ResourcesDiscovered", "All resources successfully discovered")
	set(corev1.NamespaceDeletionGVParsingFailure, false, "ParsedGroupVersions", "All legacy kube types successfully parsed")
	set(corev1.NamespaceDeletionContentFailure, false, "ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	if len(left) > 0 {
		set(corev1.NamespaceContentRemaining, true, "SomeResourcesRemain", "Some resources are remaining: "+listed(left, "%s has %d resource instances"))
	} else {
		set(corev1.NamespaceContentRemaining, false, "ContentRemoved", "All content successfully removed")
	}
	if len(finalizers) > 0 {
		set(corev1.NamespaceFinalizersRemaining, true, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+listed(finalizers, "%s in %d resource instances"))
	} else {
		set(corev1.NamespaceFinalizersRemaining, false, "ContentHasNoFinalizers", "All content-preserving finalizers finished")
	}
	return out
}

func listed(counts map[string]int, format string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf(format, name, counts[name]))
	}
	return strings.Join(out, ", ")
}
