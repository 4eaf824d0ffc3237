package api

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// setFamilies fills ipFamilies and ipFamilyPolicy as a Kubernetes cluster does that
// has IPv4 alone, and refuses what needs another family.
func setFamilies(svc, live *corev1.Service) field.ErrorList {
	s := &svc.Spec
	if !HasClusterIP(s) {
		return nil
	}
	single, dual := corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyRequireDualStack
	// Whoever gives endpoints to a headless Service by hand may give those of both
	// families, so Kubernetes takes it for one of both even where there is one.
	byHand := s.ClusterIP == corev1.ClusterIPNone && len(s.Selector) == 0
	switch {
	case s.IPFamilyPolicy != nil:
	case live != nil && live.Spec.IPFamilyPolicy != nil:
		policy := *live.Spec.IPFamilyPolicy
		s.IPFamilyPolicy = &policy
	case byHand:
		s.IPFamilyPolicy = &dual
	default:
		s.IPFamilyPolicy = &single
	}
	if live != nil && *s.IPFamilyPolicy == single && len(s.IPFamilies) > 1 && slices.Equal(s.IPFamilies, live.Spec.IPFamilies) {
		s.IPFamilies = s.IPFamilies[:1:1]
	}
	if byHand {
		if len(s.IPFamilies) == 0 {
			s.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		}
		if len(s.IPFamilies) == 1 && *s.IPFamilyPolicy != single {
			s.IPFamilies = append(s.IPFamilies[:1:1], other(s.IPFamilies[0]))
		}
		return nil
	}
	if errs := families(s); len(errs) > 0 {
		return errs
	}
	if len(s.IPFamilies) == 0 {
		s.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return nil
}

// families finds what asks for more than IPv4.
func families(s *corev1.ServiceSpec) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	policy := *s.IPFamilyPolicy
	if policy == corev1.IPFamilyPolicyRequireDualStack {
		errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), policy, "this cluster is not configured for dual-stack services: its pods have IPv4 alone"))
	}
	if policy == corev1.IPFamilyPolicySingleStack && len(s.ClusterIPs) > 1 {
		errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), policy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	for i, f := range s.IPFamilies {
		if f != corev1.IPv4Protocol {
			errs = append(errs, field.Invalid(spec.Child("ipFamilies").Index(i), f, "not configured on this cluster"))
		}
	}
	for i, text := range s.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil && !ip.Is4() && i >= len(s.IPFamilies) {
			errs = append(errs, field.Invalid(spec.Child("clusterIPs").Index(i), text, fmt.Sprintf("%s is not configured on this cluster", corev1.IPv6Protocol)))
		}
	}
	return errs
}

func other(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// portsOutOfRange finds the node ports that no Service may have. live has none.
func portsOutOfRange(svc *corev1.Service) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	check := func(at *field.Path, port int32) {
		if port != 0 && (port < FirstNodePort || port > LastNodePort) {
			errs = append(errs, field.Invalid(at, port, fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %d-%d", FirstNodePort, LastNodePort)))
		}
	}
	for i, p := range svc.Spec.Ports {
		check(spec.Child("ports").Index(i).Child("nodePort"), p.NodePort)
	}
	check(spec.Child("healthCheckNodePort"), svc.Spec.HealthCheckNodePort)
	return errs
}
