package simulate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// identity says whether a pod's name is one that must not run twice.
func identity(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "StatefulSet"
}

// alone is R10 on the machines: of a container that has just started.
func (r *rules) alone(n *node, what *run) {
	if !what.sole {
		return
	}
	r.checked["R10"]++
	for _, other := range r.w.nodes {
		for _, o := range other.machine.sorted() {
			if o.pod == what.pod && o.uid != what.uid {
				r.w.fail("R10", "%s runs on %s, and its predecessor still does on %s", what.pod, n.name, other.name)
			}
		}
	}
}

// replaced is R10 in the store: a pod is made only when no machine runs what had its
// name.
func (r *rules) replaced(e store.Event) {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok || !created(e) || !identity(pod) {
		return
	}
	r.checked["R10"]++
	for _, n := range r.w.nodes {
		for _, o := range n.machine.sorted() {
			if o.pod == pod.Namespace+"/"+pod.Name && o.uid != pod.UID {
				r.w.fail("R10", "%s is made anew, and still runs on %s", o.pod, n.name)
			}
		}
	}
}

// withinQuota says whether pods that were made fit into the quotas in force. Somebody
// whose cache is behind may not know yet that there is a quota: their pods do not count,
// nor do those that are going: quotas leave out what is overdue, by a clock that may be
// anybody's.
func (r *rules) withinQuota(x *sent, news []store.Event) {
	made := ""
	for _, o := range r.w.truth.List(api.ResourceQuotas(), "default") {
		known := slices.ContainsFunc(x.quotas, func(q api.Object) bool { return q.GetUID() == o.GetUID() })
		for _, e := range news {
			if pod, ok := e.Object.(*corev1.Pod); ok && created(e) {
				made = pod.Name
				if !known {
					r.blind[pod.UID] = true
				}
			}
		}
		hard, bounded := o.(*corev1.ResourceQuota).Status.Hard[corev1.ResourcePods]
		if made == "" || !bounded {
			continue
		}
		r.checked["quota"]++
		used := int64(0)
		for _, p := range r.w.truth.List(api.Pods(), "default") {
			if pod := p.(*corev1.Pod); active(pod) && !r.blind[pod.UID] {
				used++
			}
		}
		if known && used > hard.Value() {
			r.w.fail("quota", "with %s there are %d pods, %s allows %d", made, used, o.GetName(), hard.Value())
		}
	}
}

// withinBudget checks how many evictions are allowed, by what whoever allows them
// knew.
func (r *rules) withinBudget(x *sent, news []store.Event) {
	for _, e := range news {
		b, ok := e.Object.(*policyv1.PodDisruptionBudget)
		if !ok {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			r.w.fail("budget", "%s: %v", b.Name, err)
			return
		}
		r.checked["budget"]++
		healthy := int32(0)
		for _, o := range x.pods {
			pod := o.(*corev1.Pod)
			if _, going := b.Status.DisruptedPods[pod.Name]; !going && active(pod) && selector.Matches(labelsOf(pod)) && available(pod, 0, x.at) {
				healthy++
			}
		}
		if spare := max(0, healthy-b.Spec.MinAvailable.IntVal); b.Status.DisruptionsAllowed > spare {
			r.w.fail("budget", "%s allows %d evictions with %d healthy pods, of which it wants %d", b.Name, b.Status.DisruptionsAllowed, healthy, b.Spec.MinAvailable.IntVal)
		}
	}
}
