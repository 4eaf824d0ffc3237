package deployment

import (
	"math"

	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// room is how far a Deployment's pods may go at any moment.
type room struct {
	owner        metav1.OwnerReference
	rolling      bool // RollingUpdate; else Recreate
	desired      int
	surge        int
	minAvailable int  // of all pods, at least this many stay available
	most         int  // of all sets, at most this many pods that are not terminating
	counted      bool // too many must stay available to name them: the sets' status counts
}

func roomOf(d *appsv1.Deployment) room {
	r := room{owner: podset.Controller(d), desired: 1, rolling: d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType}
	if d.Spec.Replicas != nil {
		r.desired = int(*d.Spec.Replicas)
	}
	if !r.rolling {
		r.most = math.MaxInt
		return r
	}
	surge, unavailable := intstr.FromString("25%"), intstr.FromString("25%")
	if u := d.Spec.Strategy.RollingUpdate; u != nil {
		if u.MaxSurge != nil {
			surge = *u.MaxSurge
		}
		if u.MaxUnavailable != nil {
			unavailable = *u.MaxUnavailable
		}
	}
	r.surge = scaled(surge, r.desired, true)
	n := scaled(unavailable, r.desired, false)
	if r.surge == 0 && n == 0 {
		// Both came to nothing by rounding: one pod may be missing, or nothing could
		// ever move.
		n = 1
	}
	r.minAvailable = r.desired - min(n, r.desired)
	r.most = r.desired + r.surge
	r.counted = r.minAvailable > maxWitnesses
	return r
}

// scaled resolves a number or percentage. Validation has refused what is neither;
// should one slip through, it allows nothing.
func scaled(v intstr.IntOrString, of int, up bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, of, up)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
