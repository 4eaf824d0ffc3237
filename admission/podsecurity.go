package admission

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	security "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"headway.dev/headway/api"
)

// levels are Kubernetes' checks of every Pod Security level and version.
var levels = sync.OnceValues(func() (policy.Evaluator, error) { return policy.NewEvaluator(policy.DefaultChecks(), nil) })

// PodSecurity says what of a pod breaks the Pod Security level that its namespace
// enforces, and what the level that it only warns of, by the namespace's labels
// pod-security.kubernetes.io/…. Both empty: nothing. A label that cannot be read
// counts as restricted, as in Kubernetes.
// https://kubernetes.io/docs/concepts/security/pod-security-admission/
func PodSecurity(ns *corev1.Namespace, pod *corev1.PodTemplateSpec) (enforced, warned string, err error) {
	if ns == nil {
		return "", "", nil
	}
	privileged := security.LevelVersion{Level: security.LevelPrivileged, Version: security.LatestVersion()}
	wanted, _ := security.PolicyToEvaluate(ns.Labels, security.Policy{Enforce: privileged, Audit: privileged, Warn: privileged})
	if wanted.FullyPrivileged() {
		return "", "", nil
	}
	checks, err := levels()
	if err != nil {
		return "", "", fmt.Errorf("pod security: %w", err)
	}
	judge := func(level security.LevelVersion) string {
		result := policy.AggregateCheckResults(checks.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
		if result.Allowed {
			return ""
		}
		return fmt.Sprintf("violates PodSecurity %q: %s", level.String(), result.ForbiddenDetail())
	}
	if enforced = judge(wanted.Enforce); wanted.Warn != wanted.Enforce {
		return enforced, judge(wanted.Warn), nil
	}
	return enforced, "", nil
}

// secure refuses a new pod that breaks what its namespace enforces.
func secure(pod *corev1.Pod, f Facts) error {
	reason, _, err := PodSecurity(f.Namespace, &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if reason != "" {
		return apierrors.NewForbidden(api.Pods(), pod.Name, errors.New(reason))
	}
	return nil
}

// securityLabels refuses new labels of a namespace that name no level or version.
func securityLabels(r Request, ns *corev1.Namespace) error {
	if r.Old != nil && maps.Equal(r.Old.GetLabels(), ns.Labels) {
		return nil
	}
	_, errs := security.PolicyToEvaluate(ns.Labels, security.Policy{})
	if len(errs) == 0 {
		return nil
	}
	k, _ := api.KindOf(ns)
	return apierrors.NewInvalid(k.GroupKind(), ns.Name, errs)
}
