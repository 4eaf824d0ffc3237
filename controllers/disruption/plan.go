package disruption

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// confirmation is how long an eviction that was allowed may take to show.
const confirmation = 2 * time.Minute

// observed is a budget and what it is about.
type observed struct {
	budget *policyv1.PodDisruptionBudget
	pods   []*corev1.Pod
	scales map[types.UID]int32 // replicas of the owners of the pods
	bare   int                 // pods without an owner
	failed error               // why the owners could not be told
}

// plan is the budget as it should be, nil as it is, with what to say about it, and
// when to look again; 0: when something changes.
type plan struct {
	budget  *policyv1.PodDisruptionBudget
	notices []notice
	again   time.Duration
}

// notice is an event.
type notice struct {
	pod             *corev1.Pod // nil: about the budget
	kind            string
	reason, message string
}

// decide is the whole logic.
func decide(o observed, now time.Time) plan {
	expected, desired, err := expectations(o)
	out := o.budget.DeepCopy()
	if err != nil {
		out.Status.DisruptionsAllowed = 0
		condition(out, policyv1.SyncFailedReason, err.Error(), now)
		return changed(o.budget, out, plan{notices: []notice{{kind: corev1.EventTypeWarning, reason: "CalculateExpectedPodCountFailed",
			message: fmt.Sprintf("Failed to calculate the number of expected pods: %v", err)}}})
	}
	var p plan
	if len(o.pods) == 0 {
		p.notices = append(p.notices, notice{kind: corev1.EventTypeNormal, reason: "NoPods", message: "No matching pods found"})
	}
	if o.bare > 0 && byScale(o.budget) {
		p.notices = append(p.notices, notice{kind: corev1.EventTypeWarning, reason: "UnmanagedPods", message: fmt.Sprintf(
			"%d pods that this PodDisruptionBudget selects have no controller and are not expected. To count them, set minAvailable to a number.", o.bare)})
	}
	s := &out.Status
	s.ObservedGeneration, s.ExpectedPods, s.DesiredHealthy = out.Generation, expected, desired
	p = disrupted(o, out, p, now)
	s.CurrentHealthy = 0
	for _, pod := range o.pods {
		if _, going := s.DisruptedPods[pod.Name]; pod.DeletionTimestamp == nil && !going && ready(pod) {
			s.CurrentHealthy++
		}
	}
	s.DisruptionsAllowed = max(0, s.CurrentHealthy-s.DesiredHealthy)
	reason := policyv1.SufficientPodsReason
	if s.ExpectedPods <= 0 {
		s.DisruptionsAllowed = 0
	}
	if s.DisruptionsAllowed == 0 {
		reason = policyv1.InsufficientPodsReason
	}
	condition(out, reason, "", now)
	return changed(o.budget, out, p)
}

// changed makes the plan one that does nothing when there is nothing to write.
func changed(was, is *policyv1.PodDisruptionBudget, p plan) plan {
	if equality.Semantic.DeepEqual(was.Status, is.Status) {
		return plan{again: p.again}
	}
	p.budget = is
	return p
}

// byScale says whether a budget counts the replicas of owners.
func byScale(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.MaxUnavailable != nil || b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.String
}

func expectations(o observed) (expected, desired int32, err error) {
	least, most := o.budget.Spec.MinAvailable, o.budget.Spec.MaxUnavailable
	if !byScale(o.budget) {
		if least == nil {
			return int32(len(o.pods)), 0, nil
		}
		return int32(len(o.pods)), least.IntVal, nil
	}
	if o.failed != nil {
		return 0, 0, o.failed
	}
	for _, n := range o.scales {
		expected += n
	}
	value := least
	if most != nil {
		value = most
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, int(expected), true)
	if err != nil {
		return 0, 0, err
	}
	if most != nil {
		return expected, max(0, expected-int32(n)), nil
	}
	return expected, int32(n), nil
}

// disrupted keeps those of the evictions that were allowed which may still show.
func disrupted(o observed, out *policyv1.PodDisruptionBudget, p plan, now time.Time) plan {
	out.Status.DisruptedPods = nil
	for _, pod := range o.pods {
		at, going := o.budget.Status.DisruptedPods[pod.Name]
		if !going || pod.DeletionTimestamp != nil {
			continue
		}
		left := at.Add(confirmation).Sub(now)
		if left < 0 {
			p.notices = append(p.notices, notice{pod: pod, kind: corev1.EventTypeWarning, reason: "NotDeleted",
				message: fmt.Sprintf("Pod was expected by PDB %s/%s to be deleted but it wasn't", out.Namespace, out.Name)})
			continue
		}
		if out.Status.DisruptedPods == nil {
			out.Status.DisruptedPods = map[string]metav1.Time{}
		}
		out.Status.DisruptedPods[pod.Name] = at
		if left++; p.again == 0 || left < p.again {
			p.again = left
		}
	}
	return p
}

func condition(b *policyv1.PodDisruptionBudget, reason, message string, now time.Time) {
	c := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: b.Status.ObservedGeneration}
	if reason == policyv1.SufficientPodsReason {
		c.Status = metav1.ConditionTrue
	}
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	meta.SetStatusCondition(&b.Status.Conditions, c)
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
