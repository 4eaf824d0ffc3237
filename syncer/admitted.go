package syncer

import (
	"maps"
	"slices"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// admitted is the manifest with what admission adds to a list that it declares: a
// declared Pod's tolerations are one value to Kubernetes, so without this the live
// Pod would differ from its manifest for ever. Nor are the rules of a ClusterRole its
// manifest's that the cluster fills in. m is not changed.
func admitted(m *api.Manifest) *api.Manifest {
	if isAggregate(m.Object) && m.Declared["rules"] != nil {
		out := *m
		out.Declared = maps.Clone(m.Declared)
		delete(out.Declared, "rules")
		return &out
	}
	pod, ok := m.Object.(*corev1.Pod)
	if !ok {
		return m
	}
	spec, _ := m.Declared["spec"].(map[string]any)
	own, declares := spec["tolerations"].([]any)
	more := admission.MissingTolerations(pod.Spec.Tolerations)
	if !declares || len(more) == 0 {
		return m
	}
	full := pod.DeepCopy()
	own = slices.Clone(own)
	for _, t := range more {
		full.Spec.Tolerations = append(full.Spec.Tolerations, t)
		own = append(own, map[string]any{"key": t.Key, "operator": string(t.Operator), "effect": string(t.Effect), "tolerationSeconds": *t.TolerationSeconds})
	}
	out := *m
	out.Object, out.Declared = full, maps.Clone(m.Declared)
	spec = maps.Clone(spec)
	spec["tolerations"], out.Declared["spec"] = own, spec
	return &out
}

// isAggregate says whether an object is a ClusterRole that is made of others.
func isAggregate(obj api.Object) bool {
	role, ok := obj.(*rbacv1.ClusterRole)
	return ok && role.AggregationRule != nil
}
