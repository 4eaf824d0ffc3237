package admission

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	podresource "k8s.io/component-helpers/resource"
)

// Charge adds what writes use to the quotas of their namespace, or says which of
// them that exceeds. It returns the quotas that change, as they are to be written
// with the writes, in one transaction. What counts is status: hard is what the quota
// controller has taken over from spec, so a new quota holds from then on.
// https://kubernetes.io/docs/concepts/policy/resource-quotas/
func Charge(writes []api.Charged, quotas []*corev1.ResourceQuota, now time.Time) (changed []*corev1.ResourceQuota, err error) {
	for _, q := range quotas {
		used := q.Status.Used
		for _, w := range writes {
			more := delta(w, q, now)
			if err := fits(w, q, used, more); err != nil {
				return nil, err
			}
			if len(more) > 0 {
				used = sum(used, more)
			}
		}
		if !equality.Semantic.DeepEqual(used, q.Status.Used) {
			out := q.DeepCopy()
			out.Status.Used = used
			changed = append(changed, out)
		}
	}
	return changed, nil
}

// delta is what a write adds to what a quota has a bound for; what it frees is left
// to the quota controller.
func delta(w api.Charged, q *corev1.ResourceQuota, now time.Time) corev1.ResourceList {
	more := Used(w.Object, q, now)
	if w.Old != nil && more != nil {
		for name, was := range Used(w.Old, q, now) {
			n := more[name]
			n.Sub(was)
			more[name] = n
		}
	}
	maps.DeleteFunc(more, func(name corev1.ResourceName, n resource.Quantity) bool {
		_, bounded := q.Status.Hard[name]
		return !bounded || n.Sign() <= 0
	})
	return more
}

// fits says why a write does not fit into a quota.
func fits(w api.Charged, q *corev1.ResourceQuota, used, more corev1.ResourceList) error {
	k, _ := api.KindOf(w.Object)
	forbid := func(why string) error {
		return apierrors.NewForbidden(k.GroupResource(), named(w.Object), errors.New(why))
	}
	if pod, ok := w.Object.(*corev1.Pod); ok && w.Old == nil {
		if missing := unspecified(pod, q, q.Status.Hard); missing != "" {
			return forbid(fmt.Sprintf("failed quota: %s: must specify %s", q.Name, missing))
		}
	}
	over := map[corev1.ResourceName]bool{}
	for name, n := range sum(used, more) {
		if hard, bounded := q.Status.Hard[name]; bounded && n.Cmp(hard) > 0 {
			if _, asked := more[name]; asked {
				over[name] = true
			}
		}
	}
	if len(over) == 0 {
		return nil
	}
	return forbid(fmt.Sprintf("exceeded quota: %s, requested: %s, used: %s, limited: %s", q.Name, listed(more, over), listed(used, over), listed(q.Status.Hard, over)))
}

// listed writes down some resources of a list.
func listed(list corev1.ResourceList, which map[corev1.ResourceName]bool) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(which)) {
		n := list[name]
		out = append(out, string(name)+"="+n.String())
	}
	return strings.Join(out, ",")
}

func sum(a, b corev1.ResourceList) corev1.ResourceList {
	out := a.DeepCopy()
	if out == nil {
		out = corev1.ResourceList{}
	}
	for name, n := range b {
		total := out[name]
		total.Add(n)
		out[name] = total
	}
	return out
}

// Unspecified names what containers of a pod do not say and a quota, as it will be,
// wants each to say.
func Unspecified(pod *corev1.Pod, q *corev1.ResourceQuota) string {
	return unspecified(pod, q, q.Spec.Hard)
}

// unspecified names what each container must say when a quota bounds it.
func unspecified(pod *corev1.Pod, q *corev1.ResourceQuota, hard corev1.ResourceList) string {
	if !inScope(pod, q) {
		return ""
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		from := func(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests }
		of := name
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory:
		case corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory:
			of = corev1.ResourceName(strings.TrimPrefix(string(name), "requests."))
		case corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
			of = corev1.ResourceName(strings.TrimPrefix(string(name), "limits."))
			from = func(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits }
		default:
			continue
		}
		var lacking []string
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			if _, ok := from(&c)[of]; !ok {
				lacking = append(lacking, c.Name)
			}
		}
		if len(lacking) > 0 {
			slices.Sort(lacking)
			out = append(out, fmt.Sprintf("%s for: %s", name, strings.Join(lacking, ",")))
		}
	}
	return strings.Join(out, "; ")
}

// Used is what an object uses of what a quota counts; nothing when the quota's
// scopes leave it out.
func Used(obj api.Object, q *corev1.ResourceQuota, now time.Time) corev1.ResourceList {
	k, ok := api.KindOf(obj)
	if !ok || !inScope(obj, q) {
		return nil
	}
	one := *resource.NewQuantity(1, resource.DecimalSI)
	used := corev1.ResourceList{corev1.ResourceName("count/" + k.GroupResource().String()): one}
	switch o := obj.(type) {
	case *corev1.Pod:
		if counts(o, now) {
			maps.Copy(used, podUse(o))
		}
	case *corev1.Service:
		used[corev1.ResourceServices] = one
		ports := int64(0)
		switch {
		case o.Spec.Type == corev1.ServiceTypeNodePort:
			ports = int64(len(o.Spec.Ports))
		case o.Spec.Type == corev1.ServiceTypeLoadBalancer:
			used[corev1.ResourceServicesLoadBalancers] = one
			if o.Spec.AllocateLoadBalancerNodePorts == nil || *o.Spec.AllocateLoadBalancerNodePorts {
				ports = int64(len(o.Spec.Ports))
			}
		}
		used[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(ports, resource.DecimalSI)
	case *corev1.PersistentVolumeClaim:
		used[corev1.ResourcePersistentVolumeClaims] = one
		storage := o.Spec.Resources.Requests[corev1.ResourceStorage]
		used[corev1.ResourceRequestsStorage] = storage
		if class := o.Spec.StorageClassName; class != nil && *class != "" {
			used[corev1.ResourceName(*class+".storageclass.storage.k8s.io/persistentvolumeclaims")] = one
			used[corev1.ResourceName(*class+".storageclass.storage.k8s.io/requests.storage")] = storage
		}
	case *corev1.ConfigMap, *corev1.Secret, *corev1.ReplicationController, *corev1.ResourceQuota:
		used[corev1.ResourceName(k.Resource)] = one
	}
	return used
}

// counts says whether a pod still uses anything: one that has ended does not, nor
// one that should have stopped by now, as on a node that is lost.
func counts(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	end, ok := Overdue(pod)
	return !ok || !now.After(end)
}

// Overdue is when a pod that is being deleted stops counting.
func Overdue(pod *corev1.Pod) (time.Time, bool) {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return time.Time{}, false
	}
	return pod.DeletionTimestamp.Add(api.Seconds(*pod.DeletionGracePeriodSeconds)), true
}

func podUse(pod *corev1.Pod) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)}
	for name, n := range podresource.PodRequests(pod, podresource.PodResourcesOptions{}) {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name], used["requests."+name] = n, n
		default:
			used["requests."+name] = n
		}
	}
	for name, n := range podresource.PodLimits(pod, podresource.PodResourcesOptions{}) {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			used["limits."+name] = n
		}
	}
	return used
}

// inScope says whether a quota is about an object. A quota with scopes is about
// pods alone.
func inScope(obj api.Object, q *corev1.ResourceQuota) bool {
	scopes := q.Spec.Scopes
	var terms []corev1.ScopedResourceSelectorRequirement
	for _, s := range scopes {
		terms = append(terms, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		terms = append(terms, q.Spec.ScopeSelector.MatchExpressions...)
	}
	if len(terms) == 0 {
		return true
	}
	pod, ok := obj.(*corev1.Pod)
	return ok && !slices.ContainsFunc(terms, func(t corev1.ScopedResourceSelectorRequirement) bool { return !podInScope(pod, t) })
}

func podInScope(pod *corev1.Pod, t corev1.ScopedResourceSelectorRequirement) bool {
	deadline := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	switch t.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return deadline
	case corev1.ResourceQuotaScopeNotTerminating:
		return !deadline
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		class := pod.Spec.PriorityClassName
		switch t.Operator {
		case corev1.ScopeSelectorOpExists:
			return class != ""
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == ""
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(t.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(t.Values, class)
		}
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod)
	}
	return false
}

// bestEffort says whether no container asks for cpu or memory.
func bestEffort(pod *corev1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if n, ok := list[name]; ok && n.Sign() > 0 {
					return false
				}
			}
		}
	}
	return true
}

// crossesNamespaces says whether a pod's affinity looks into other namespaces.
func crossesNamespaces(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, p := range preferred {
			terms = append(terms, p.PodAffinityTerm)
		}
	}
	if a.PodAffinity != nil {
		add(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a.PodAntiAffinity != nil {
		add(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}

// Bounds says whether a quota with these bounds counts objects of a resource.
func Bounds(hard corev1.ResourceList, gr schema.GroupResource) bool {
	for name := range hard {
		of := string(name)
		switch {
		case of == "count/"+gr.String():
			return true
		case strings.HasPrefix(of, "count/"):
		case gr == api.Services():
			if of == "services" || strings.HasPrefix(of, "services.") {
				return true
			}
		case gr.Group == "" && gr.Resource == "persistentvolumeclaims":
			if of == gr.Resource || of == string(corev1.ResourceRequestsStorage) || strings.Contains(of, ".storageclass.storage.k8s.io/") {
				return true
			}
		case gr == api.Pods():
			if !strings.Contains(of, ".storageclass.storage.k8s.io/") { // all that has no other owner
				return true
			}
		case gr.Group == "" && of == gr.Resource:
			return true
		}
	}
	return false
}
