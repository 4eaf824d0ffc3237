package syncer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
)

// keepsHeadless refuses a manifest that no longer says `clusterIP: None`. Kubernetes
// takes a clusterIP that is not mentioned for the one that there is, so the Service
// would stay headless without a word, and None cannot be changed in place.
func keepsHeadless(base, m *api.Manifest, live api.Object) []api.Problem {
	svc, ok := live.(*corev1.Service)
	if !ok || svc.Spec.ClusterIP != corev1.ClusterIPNone || base == nil || !saysHeadless(base) || saysHeadless(m) {
		return nil
	}
	if spec, _ := m.Declared["spec"].(map[string]any); spec["clusterIP"] != nil && spec["clusterIP"] != "" {
		return nil // another value, which the validation refuses
	}
	if next, ok := m.Object.(*corev1.Service); !ok || next.Spec.Type == corev1.ServiceTypeExternalName {
		return nil // it has no cluster IP
	}
	return []api.Problem{problem(m, "spec.clusterIP", `Invalid value: "": field is immutable: the Service is headless (clusterIP: None), and stays so without the field`)}
}

// saysHeadless says whether a manifest declares that its Service has no cluster IP.
func saysHeadless(m *api.Manifest) bool {
	spec, _ := m.Declared["spec"].(map[string]any)
	all, _ := spec["clusterIPs"].([]any)
	return spec["clusterIP"] == corev1.ClusterIPNone || slices.Contains(all, any(corev1.ClusterIPNone))
}

// checkExternalNames tells of names that look right and lead nowhere. Kubernetes takes
// them as they are.
// https://kubernetes.io/docs/concepts/services-networking/service/#externalname
func checkExternalNames(changed []*api.Manifest, f *findings) {
	for _, m := range changed {
		svc, ok := m.Object.(*corev1.Service)
		if !ok || svc.Spec.Type != corev1.ServiceTypeExternalName {
			continue
		}
		name := strings.TrimSuffix(svc.Spec.ExternalName, ".")
		if _, err := netip.ParseAddr(name); err == nil {
			f.add(ruleExternalName, problem(m, "spec.externalName", fmt.Sprintf("%q is looked up as a name made of digits, not used as an address: declare a Service without a selector, and an EndpointSlice with the address", name)))
		} else if name != "" && !strings.Contains(name, ".") {
			f.add(ruleExternalName, problem(m, "spec.externalName", fmt.Sprintf("%q is looked up as a name of the top level, not in namespace %s: write the whole name; of a Service that is NAME.NAMESPACE.svc and the cluster's domain", name, svc.Namespace)))
		}
	}
}
