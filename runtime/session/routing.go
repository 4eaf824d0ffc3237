package session

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ServiceForRouting is what a node may know of a Service (D5): its name and how it
// is reached. No annotation, no label and no status beside the addresses of a load
// balancer leaves the server. The copy shares memory with s.
func ServiceForRouting(s *corev1.Service) *corev1.Service {
	out := &corev1.Service{ObjectMeta: named(&s.ObjectMeta)}
	from, to := &s.Spec, &out.Spec
	to.Type, to.ClusterIP, to.ClusterIPs = from.Type, from.ClusterIP, from.ClusterIPs
	to.Ports, to.ExternalIPs, to.ExternalName = from.Ports, from.ExternalIPs, from.ExternalName
	to.SessionAffinity, to.SessionAffinityConfig = from.SessionAffinity, from.SessionAffinityConfig
	to.InternalTrafficPolicy, to.ExternalTrafficPolicy = from.InternalTrafficPolicy, from.ExternalTrafficPolicy
	to.HealthCheckNodePort, to.LoadBalancerSourceRanges = from.HealthCheckNodePort, from.LoadBalancerSourceRanges
	to.PublishNotReadyAddresses, to.TrafficDistribution = from.PublishNotReadyAddresses, from.TrafficDistribution
	out.Status.LoadBalancer = s.Status.LoadBalancer
	return out
}

// SliceForRouting is what a node may know of an EndpointSlice: whose it is, and the
// addresses, ports and states in it. The copy shares memory with s.
func SliceForRouting(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{ObjectMeta: named(&s.ObjectMeta), AddressType: s.AddressType, Ports: s.Ports, Endpoints: s.Endpoints}
	for _, key := range []string{discoveryv1.LabelServiceName, corev1.IsHeadlessService} {
		if v, ok := s.Labels[key]; ok {
			metav1.SetMetaDataLabel(&out.ObjectMeta, key, v)
		}
	}
	for i := range out.Endpoints {
		if len(out.Endpoints[i].DeprecatedTopology) == 0 {
			continue
		}
		out.Endpoints = append([]discoveryv1.Endpoint(nil), out.Endpoints...)
		for j := range out.Endpoints {
			out.Endpoints[j].DeprecatedTopology = nil
		}
		break
	}
	return out
}

func named(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

// Lists says whether a slice has a pod as one to send new connections to.
func Lists(s *discoveryv1.EndpointSlice, pod types.UID) bool {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if e.TargetRef == nil || e.TargetRef.UID != pod {
			continue
		}
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		if ready && (e.Conditions.Terminating == nil || !*e.Conditions.Terminating) {
			return true
		}
	}
	return false
}
