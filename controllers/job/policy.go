package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// ruling is what the first rule of a podFailurePolicy that fits a failed pod says;
// the zero ruling, that no rule fits, counts as Count does.
type ruling struct {
	action  batchv1.PodFailurePolicyAction
	message string // of FailJob
}

// counts says whether the failure counts towards the limits.
func (r ruling) counts() bool { return r.action != batchv1.PodFailurePolicyActionIgnore }

// rule judges a failed pod by the Job's policy.
func rule(policy *batchv1.PodFailurePolicy, p *corev1.Pod) ruling {
	if policy == nil {
		return ruling{}
	}
	for i, r := range policy.Rules {
		what := ""
		switch {
		case r.OnExitCodes != nil:
			if c := exitFits(r.OnExitCodes, slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses)); c != nil {
				what = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", c.Name, p.Namespace, p.Name, c.State.Terminated.ExitCode)
			}
		default:
			if c := conditionFits(r.OnPodConditions, p.Status.Conditions); c != "" {
				what = fmt.Sprintf("Pod %s/%s has condition %s", p.Namespace, p.Name, c)
			}
		}
		if what != "" {
			return ruling{action: r.Action, message: fmt.Sprintf("%s matching %s rule at index %d", what, r.Action, i)}
		}
	}
	return ruling{}
}

// exitFits finds a container that ended with one of the exit codes. A container
// that succeeded never fits.
func exitFits(want *batchv1.PodFailurePolicyOnExitCodesRequirement, containers []corev1.ContainerStatus) *corev1.ContainerStatus {
	for i := range containers {
		c := &containers[i]
		t := c.State.Terminated
		if t == nil || t.ExitCode == 0 || want.ContainerName != nil && *want.ContainerName != c.Name {
			continue
		}
		listed := slices.Contains(want.Values, t.ExitCode)
		if want.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && listed || want.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !listed {
			return c
		}
	}
	return nil
}

// conditionFits names the first of a pod's conditions that one of the patterns
// describes; "" when there is none.
func conditionFits(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, conditions []corev1.PodCondition) corev1.PodConditionType {
	for _, c := range conditions {
		for _, want := range patterns {
			if c.Type == want.Type && c.Status == want.Status {
				return c.Type
			}
		}
	}
	return ""
}

// enough says whether the indexes that succeeded satisfy a rule of the
// successPolicy, and which.
func enough(policy *batchv1.SuccessPolicy, completions int, done indexes) (message string, ok bool) {
	if policy == nil || len(done) == 0 {
		return "", false
	}
	for i, r := range policy.Rules {
		have, need := done.total(), completions
		if r.SucceededIndexes != nil {
			listed := parseIndexes(*r.SucceededIndexes, completions)
			if len(listed) == 0 {
				continue // nothing that can succeed
			}
			have, need = done.common(listed), listed.total()
		}
		if r.SucceededCount != nil {
			need = min(need, int(*r.SucceededCount))
		}
		if (r.SucceededIndexes != nil || r.SucceededCount != nil) && have >= need {
			return fmt.Sprintf("Matched rules at index %d", i), true
		}
	}
	return "", false
}
