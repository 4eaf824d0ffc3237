package api

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The node ports that Services may have, as in Kubernetes.
const (
	FirstNodePort = 30000
	LastNodePort  = 32767
)

// Claim is something of which the cluster has one, and one Service at most: a
// cluster IP, or a port of every node, whatever the protocol.
type Claim struct {
	Address  string
	NodePort int32
}

// String is for people: "10.43.0.7", "30080".
func (c Claim) String() string {
	if c.Address != "" {
		return c.Address
	}
	return strconv.Itoa(int(c.NodePort))
}

// Claims lists what a Service has of these, each once.
func Claims(svc *corev1.Service) []Claim {
	var out []Claim
	add := func(c Claim) {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	addresses := svc.Spec.ClusterIPs
	if len(addresses) == 0 {
		addresses = []string{svc.Spec.ClusterIP} // of one that is not prepared yet
	}
	for _, address := range addresses {
		if address != "" && address != corev1.ClusterIPNone {
			add(Claim{Address: address})
		}
	}
	for _, p := range svc.Spec.Ports {
		if p.NodePort != 0 {
			add(Claim{NodePort: p.NodePort})
		}
	}
	if svc.Spec.HealthCheckNodePort != 0 {
		add(Claim{NodePort: svc.Spec.HealthCheckNodePort})
	}
	return out
}

// PrepareService makes svc what Kubernetes' API makes of it before it gives out
// addresses and ports: what it leaves out and live has stays, fields that its new
// type has no use for and that nobody changed go, and it gets its address families.
// live is what it replaces; nil when it is new.
func PrepareService(svc, live *corev1.Service) field.ErrorList {
	if live == nil {
		if svc.Spec.ClusterIP != "" && len(svc.Spec.ClusterIPs) == 0 {
			svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
		}
		return setFamilies(svc, nil)
	}
	inherit(&svc.Spec, &live.Spec)
	followAddress(&svc.Spec, &live.Spec)
	dropUnused(&svc.Spec, &live.Spec)
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		meta.RemoveStatusCondition(&svc.Status.Conditions, corev1.LoadBalancerPortsError)
	}
	return setFamilies(svc, live)
}

// HasClusterIP says whether a Service of this type has a cluster IP or none by its
// own wish.
func HasClusterIP(s *corev1.ServiceSpec) bool { return s.Type != corev1.ServiceTypeExternalName }

// HasNodePorts says whether a Service may have node ports.
func HasNodePorts(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer
}

// GetsNodePorts says whether a Service is given node ports that it does not name.
func GetsNodePorts(s *corev1.ServiceSpec) bool {
	return HasNodePorts(s) && (s.Type == corev1.ServiceTypeNodePort || s.AllocateLoadBalancerNodePorts == nil || *s.AllocateLoadBalancerNodePorts)
}

// HasHealthCheckPort says whether the nodes tell an outer load balancer on a port
// of its own whether they have endpoints.
func HasHealthCheckPort(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeLoadBalancer && s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// expectHealthCheckPort stands in for the port that a Service is given after its
// validation, which demands one.
func expectHealthCheckPort(s *corev1.ServiceSpec) {
	if HasHealthCheckPort(s) && s.HealthCheckNodePort == 0 {
		s.HealthCheckNodePort = FirstNodePort
	}
}

// inherit keeps what was given out and is not mentioned: who submits the manifest
// that the Service was made from once more changes nothing.
func inherit(s, live *corev1.ServiceSpec) {
	if HasClusterIP(s) && HasClusterIP(live) {
		if s.ClusterIP == "" {
			s.ClusterIP = live.ClusterIP
		}
		if len(s.ClusterIPs) == 0 {
			s.ClusterIPs = slices.Clone(live.ClusterIPs)
		}
	}
	if GetsNodePorts(s) && GetsNodePorts(live) {
		inheritNodePorts(s, live)
	}
	if HasHealthCheckPort(s) && HasHealthCheckPort(live) && s.HealthCheckNodePort == 0 {
		s.HealthCheckNodePort = live.HealthCheckNodePort
	}
}

// inheritNodePorts finds the ports again by their names. A node port that another
// port of the Service names now is not inherited.
func inheritNodePorts(s, live *corev1.ServiceSpec) {
	named, had := nodePorts(s), map[string]int32{}
	for _, p := range live.Ports {
		had[p.Name] = p.NodePort
	}
	for i := range s.Ports {
		if p := &s.Ports[i]; p.NodePort == 0 && !named[had[p.Name]] {
			p.NodePort = had[p.Name]
		}
	}
}

func nodePorts(s *corev1.ServiceSpec) map[int32]bool {
	out := map[int32]bool{}
	for _, p := range s.Ports {
		if p.NodePort != 0 {
			out[p.NodePort] = true
		}
	}
	return out
}

// followAddress lets the list follow clusterIP where only that one was changed.
func followAddress(s, live *corev1.ServiceSpec) {
	if s.ClusterIP == live.ClusterIP || !slices.Equal(s.ClusterIPs, live.ClusterIPs) {
		return
	}
	s.ClusterIPs = nil
	if s.ClusterIP != "" {
		s.ClusterIPs = []string{s.ClusterIP}
	}
}

// dropUnused takes away what a change of the type leaves without a use. What was
// changed together with the type stays, for the validation to refuse.
func dropUnused(s, live *corev1.ServiceSpec) {
	if HasClusterIP(live) && !HasClusterIP(s) {
		if s.ClusterIP == live.ClusterIP && slices.Equal(s.ClusterIPs, live.ClusterIPs) {
			s.ClusterIP, s.ClusterIPs = "", nil
		}
		if slices.Equal(s.IPFamilies, live.IPFamilies) {
			s.IPFamilies = nil
		}
		if equalPointers(s.IPFamilyPolicy, live.IPFamilyPolicy) {
			s.IPFamilyPolicy = nil
		}
	}
	if HasNodePorts(live) && !HasNodePorts(s) && contains(nodePorts(live), nodePorts(s)) {
		for i := range s.Ports {
			s.Ports[i].NodePort = 0
		}
	}
	if HasHealthCheckPort(live) && !HasHealthCheckPort(s) && s.HealthCheckNodePort == live.HealthCheckNodePort {
		s.HealthCheckNodePort = 0
	}
	if live.Type == corev1.ServiceTypeLoadBalancer && s.Type != corev1.ServiceTypeLoadBalancer {
		if equalPointers(s.AllocateLoadBalancerNodePorts, live.AllocateLoadBalancerNodePorts) {
			s.AllocateLoadBalancerNodePorts = nil
		}
		if equalPointers(s.LoadBalancerClass, live.LoadBalancerClass) {
			s.LoadBalancerClass = nil
		}
	}
	if outside(live) && !outside(s) && s.ExternalTrafficPolicy == live.ExternalTrafficPolicy {
		s.ExternalTrafficPolicy = ""
	}
}

// outside says whether clients outside of the cluster can reach a Service.
func outside(s *corev1.ServiceSpec) bool {
	return HasNodePorts(s) || s.Type == corev1.ServiceTypeClusterIP && len(s.ExternalIPs) > 0
}

func contains(all, some map[int32]bool) bool {
	for p := range some {
		if !all[p] {
			return false
		}
	}
	return true
}

func equalPointers[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
