package quota

import (
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// plan is the quota as it should be, nil as it is, and when to look again; 0: when
// something changes.
type plan struct {
	quota *corev1.ResourceQuota
	again time.Duration
}

// decide counts what a quota is about among objects of its namespace.
func decide(quota *corev1.ResourceQuota, objects []api.Object, now time.Time) (p plan) {
	used := corev1.ResourceList{}
	for name := range quota.Spec.Hard {
		used[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	for _, obj := range objects {
		for name, n := range admission.Used(obj, quota, now) {
			if total, bounded := used[name]; bounded {
				total.Add(n)
				used[name] = total
			}
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			if end, deleting := admission.Overdue(pod); deleting && !now.After(end) {
				if left := end.Sub(now) + time.Second; p.again == 0 || left < p.again {
					p.again = left
				}
			}
		}
	}
	if equality.Semantic.DeepEqual(quota.Status.Hard, quota.Spec.Hard) && equality.Semantic.DeepEqual(quota.Status.Used, used) {
		return p
	}
	p.quota = quota.DeepCopy()
	p.quota.Status.Hard, p.quota.Status.Used = quota.Spec.Hard.DeepCopy(), used
	return p
}
