package admission

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	podresource "k8s.io/component-helpers/resource"
)

// limitsSet is the annotation by which a pod says what a LimitRange gave it.
const limitsSet = "kubernetes.io/limit-ranger"

// Limit gives a new pod the requests and limits that it lacks and that the
// LimitRanges of its namespace have, and says why a pod or a claim that they bound
// may not be there. The object is not changed; the result may be the same object.
// https://kubernetes.io/docs/concepts/policy/limit-range/
func Limit(obj api.Object, ranges []*corev1.LimitRange) (api.Object, error) {
	var wrong []error
	switch o := obj.(type) {
	case *corev1.Pod:
		pod, found := Excesses(o, ranges)
		for _, e := range found {
			wrong = append(wrong, errors.New(e.Why))
		}
		obj = pod
	case *corev1.PersistentVolumeClaim:
		for _, r := range ranges {
			for _, item := range r.Spec.Limits {
				if item.Type != corev1.LimitTypePersistentVolumeClaim {
					continue
				}
				b := bounded{what: item.Type, requests: o.Spec.Resources.Requests}
				wrong = append(wrong, each(item.Min, b.atLeast)...)
				wrong = append(wrong, each(item.Max, b.requestAtMost)...)
			}
		}
	default:
		return obj, nil
	}
	if len(wrong) == 0 {
		return obj, nil
	}
	k, _ := api.KindOf(obj)
	return nil, apierrors.NewForbidden(k.GroupResource(), named(obj), utilerrors.NewAggregate(wrong))
}

// Excess is one thing that a LimitRange forbids of a pod.
type Excess struct {
	Range string // its name; "" when what they give does not go with what is there
	Field string // of the pod
	Why   string // in Kubernetes' words
}

// Excesses is the pod with what the LimitRanges give it, and what they forbid of it.
func Excesses(pod *corev1.Pod, ranges []*corev1.LimitRange) (*corev1.Pod, []Excess) {
	var found []Excess
	out := pod
	for _, r := range ranges {
		out = defaulted(out, r)
	}
	for _, r := range ranges {
		found = append(found, podWithin(out, r)...)
	}
	if out != pod { // what was given must go with what is there
		found = append(found, consistent(out)...)
	}
	return out, found
}

// eachContainer visits every container of a pod with its field.
func eachContainer(spec *corev1.PodSpec, visit func(field string, c *corev1.Container)) {
	for i := range spec.Containers {
		visit(fmt.Sprintf("spec.containers[%d].resources", i), &spec.Containers[i])
	}
	for i := range spec.InitContainers {
		visit(fmt.Sprintf("spec.initContainers[%d].resources", i), &spec.InitContainers[i])
	}
}

// named is what messages call an object: one that is made of a template says so the
// same each time.
func named(obj api.Object) string {
	if base := obj.GetGenerateName(); base != "" {
		return base
	}
	return obj.GetName()
}

// defaulted is the pod with what the containers lack of a LimitRange's defaults.
func defaulted(pod *corev1.Pod, r *corev1.LimitRange) *corev1.Pod {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, item := range r.Spec.Limits {
		if item.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, item.DefaultRequest)
			maps.Copy(limits, item.Default)
		}
	}
	var told []string
	out := pod
	give := func(at func(*corev1.Pod) *corev1.Container, kind string) {
		c := at(out)
		for _, d := range []struct {
			what string
			has  corev1.ResourceList
			all  corev1.ResourceList
		}{{"request", c.Resources.Requests, requests}, {"limit", c.Resources.Limits, limits}} {
			var given []string
			for _, name := range slices.Sorted(maps.Keys(d.all)) {
				if _, ok := d.has[name]; ok {
					continue
				}
				if out == pod {
					out = pod.DeepCopy()
				}
				to := &at(out).Resources.Requests
				if d.what == "limit" {
					to = &at(out).Resources.Limits
				}
				if *to == nil {
					*to = corev1.ResourceList{}
				}
				(*to)[name] = d.all[name].DeepCopy()
				given = append(given, string(name))
			}
			if len(given) > 0 {
				told = append(told, fmt.Sprintf("%s %s for %s %s", strings.Join(given, ", "), d.what, kind, c.Name))
			}
		}
	}
	for i := range pod.Spec.Containers {
		give(func(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[i] }, "container")
	}
	for i := range pod.Spec.InitContainers {
		give(func(p *corev1.Pod) *corev1.Container { return &p.Spec.InitContainers[i] }, "init container")
	}
	if len(told) > 0 {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[limitsSet] = "LimitRanger plugin set: " + strings.Join(told, "; ")
	}
	return out
}

// consistent finds requests above their limits.
func consistent(pod *corev1.Pod) (found []Excess) {
	eachContainer(&pod.Spec, func(field string, c *corev1.Container) {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
			request := c.Resources.Requests[name]
			if limit, ok := c.Resources.Limits[name]; ok && request.Cmp(limit) > 0 {
				found = append(found, Excess{Field: field, Why: fmt.Sprintf("container %s: the %s request %s must be less than or equal to the limit %s, which a LimitRange may have given", c.Name, name, request.String(), limit.String())})
			}
		}
	})
	return found
}

// podWithin finds what a LimitRange forbids of a pod and its containers.
func podWithin(pod *corev1.Pod, r *corev1.LimitRange) (found []Excess) {
	check := func(item corev1.LimitRangeItem, field string, requests, limits corev1.ResourceList) {
		b := bounded{what: item.Type, requests: requests, limits: limits}
		for _, err := range slices.Concat(each(item.Min, b.atLeast), each(item.Max, b.atMost), each(item.MaxLimitRequestRatio, b.ratio)) {
			found = append(found, Excess{Range: r.Name, Field: field, Why: err.Error()})
		}
	}
	for _, item := range r.Spec.Limits {
		switch item.Type {
		case corev1.LimitTypeContainer:
			eachContainer(&pod.Spec, func(field string, c *corev1.Container) {
				check(item, field, c.Resources.Requests, c.Resources.Limits)
			})
		case corev1.LimitTypePod:
			opts := podresource.PodResourcesOptions{ExcludeOverhead: true}
			check(item, "spec", podresource.PodRequests(pod, opts), podresource.PodLimits(pod, opts))
		}
	}
	return found
}

// each asks about every resource of a list, by name.
func each(list corev1.ResourceList, ask func(corev1.ResourceName, resource.Quantity) string) (wrong []error) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if why := ask(name, list[name]); why != "" {
			wrong = append(wrong, errors.New(why))
		}
	}
	return wrong
}

// bounded is what a LimitRange looks at, in Kubernetes' words.
type bounded struct {
	what             corev1.LimitType
	requests, limits corev1.ResourceList
}

func (b bounded) atLeast(name corev1.ResourceName, least resource.Quantity) string {
	request, requested := b.requests[name]
	limit, limited := b.limits[name]
	head := fmt.Sprintf("minimum %s usage per %s is %s", name, b.what, least.String())
	switch {
	case !requested:
		return head + ".  No request is specified"
	case request.Cmp(least) < 0:
		return head + ", but request is " + request.String()
	case limited && limit.Cmp(least) < 0:
		return head + ", but limit is " + limit.String()
	}
	return ""
}

func (b bounded) atMost(name corev1.ResourceName, most resource.Quantity) string {
	request, requested := b.requests[name]
	limit, limited := b.limits[name]
	head := fmt.Sprintf("maximum %s usage per %s is %s", name, b.what, most.String())
	switch {
	case !limited:
		return head + ".  No limit is specified"
	case limit.Cmp(most) > 0:
		return head + ", but limit is " + limit.String()
	case requested && request.Cmp(most) > 0:
		return head + ", but request is " + request.String()
	}
	return ""
}

func (b bounded) requestAtMost(name corev1.ResourceName, most resource.Quantity) string {
	request, requested := b.requests[name]
	head := fmt.Sprintf("maximum %s usage per %s is %s", name, b.what, most.String())
	switch {
	case !requested:
		return head + ".  No request is specified"
	case request.Cmp(most) > 0:
		return head + ", but request is " + request.String()
	}
	return ""
}

func (b bounded) ratio(name corev1.ResourceName, most resource.Quantity) string {
	request, limit := b.requests[name], b.limits[name]
	head := fmt.Sprintf("%s max limit to request ratio per %s is %s", name, b.what, most.String())
	switch {
	case request.IsZero():
		return head + ", but no request is specified or request is 0"
	case limit.IsZero():
		return head + ", but no limit is specified or limit is 0"
	}
	if got := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); got > most.AsApproximateFloat64()*(1+1e-9) {
		return fmt.Sprintf("%s, but provided ratio is %f", head, got)
	}
	return ""
}
