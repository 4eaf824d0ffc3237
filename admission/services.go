package admission

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultServiceCIDR is where cluster IPs come from unless the servers are told
// otherwise.
const DefaultServiceCIDR = "10.43.0.0/16"

// Services gives out cluster IPs and node ports. Of each range the lower part is
// left to those who choose themselves as long as the upper one has room, as in
// Kubernetes:
// https://kubernetes.io/docs/concepts/services-networking/cluster-ip-allocation/
type Services struct{ cidr netip.Prefix }

// Bounds of the range of cluster IPs, in bits of its prefix: a million addresses,
// and no fewer than a small cluster needs.
const (
	largestRange  = 12
	smallestRange = 28
)

// NewServices returns the Services of a range such as 10.43.0.0/16.
func NewServices(cidr string) (Services, error) {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return Services{}, fmt.Errorf("range of the Services: %w: write it as %s", err, DefaultServiceCIDR)
	}
	if !p.Addr().Is4() || p.Bits() < largestRange || p.Bits() > smallestRange {
		return Services{}, fmt.Errorf("range of the Services %s: must be of IPv4 with a prefix of %d to %d bits, such as %s", cidr, largestRange, smallestRange, DefaultServiceCIDR)
	}
	return Services{p.Masked()}, nil
}

// DefaultServices are those of DefaultServiceCIDR.
func DefaultServices() Services { return Services{netip.MustParsePrefix(DefaultServiceCIDR)} }

// Kubernetes is the cluster IP of the Service default/kubernetes: the first of the
// range, which no other Service gets.
func (s Services) Kubernetes() netip.Addr { return s.address(0) }

// CIDR is the range of the cluster IPs.
func (s Services) CIDR() netip.Prefix { return s.cidr }

// Allocate gives svc, which PrepareService has seen, the cluster IP and the node
// ports that it lacks, or says why it cannot have those that it names. live is what
// it replaces, nil when it is new; holder names who else has a claim, "" for nobody.
// The choice follows from the names, so a Service that is deleted and made again
// is where it was, and two servers that choose at once rarely choose the same.
func (s Services) Allocate(svc, live *corev1.Service, holder func(api.Claim) string) error {
	if errs := s.Refuse(svc, live, holder); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, svc.Name, errs)
	}
	if err := s.giveAddress(svc, holder); err != nil {
		return err
	}
	return givePorts(svc, holder)
}

// Refuse finds what svc names and cannot have: what is outside of the ranges, and
// what another Service has. What live has already is not looked at.
func (s Services) Refuse(svc, live *corev1.Service, holder func(api.Claim) string) (errs field.ErrorList) {
	has := map[api.Claim]bool{}
	if live != nil {
		for _, c := range api.Claims(live) {
			has[c] = true
		}
	}
	spec := field.NewPath("spec")
	refuse := func(at *field.Path, value any, c api.Claim, what, outside string) {
		if has[c] {
			return
		}
		switch by := holder(c); {
		case outside != "":
			errs = append(errs, field.Invalid(at, value, outside))
		case by != "":
			errs = append(errs, field.Invalid(at, value, fmt.Sprintf("provided %s is already allocated: %s has it", what, by)))
		}
		has[c] = true // said once
	}
	for i, ip := range svc.Spec.ClusterIPs {
		if ip == "" || ip == corev1.ClusterIPNone {
			continue
		}
		at := spec.Child("clusterIPs").Index(i)
		if ip == svc.Spec.ClusterIP {
			at = spec.Child("clusterIP") // which people write
		}
		refuse(at, ip, api.Claim{Address: ip}, "IP", s.foreign(svc, ip))
	}
	for i, ip := range svc.Spec.ExternalIPs {
		if live == nil || !slices.Contains(live.Spec.ExternalIPs, ip) {
			errs = append(errs, s.external(spec.Child("externalIPs").Index(i), ip)...)
		}
	}
	port := func(at *field.Path, number int32) {
		outside := ""
		if number < api.FirstNodePort || number > api.LastNodePort {
			outside = fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %d-%d", api.FirstNodePort, api.LastNodePort)
		}
		refuse(at, number, api.Claim{NodePort: number}, "port", outside)
	}
	for i, p := range svc.Spec.Ports {
		if p.NodePort != 0 {
			port(spec.Child("ports").Index(i).Child("nodePort"), p.NodePort)
		}
	}
	if p := svc.Spec.HealthCheckNodePort; p != 0 {
		port(spec.Child("healthCheckNodePort"), p)
	}
	return errs
}

// foreign says why a Service cannot have a cluster IP, whoever else has it.
func (s Services) foreign(svc *corev1.Service, text string) string {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return "must be a valid IP address"
	}
	i := s.index(ip)
	switch {
	case i < 0 || i >= s.size():
		return fmt.Sprintf("provided IP is not in the valid range. The range of valid IPs is %s", s.cidr)
	case i == 0 && (svc.Namespace != corev1.NamespaceDefault || svc.Name != "kubernetes"):
		return "provided IP is that of the Service default/kubernetes: choose another, or leave it out"
	}
	return ""
}

// external refuses an address from outside that is in the range: it would take what
// is sent to the Service that has it as its cluster IP.
func (s Services) external(at *field.Path, text string) field.ErrorList {
	ip, err := netip.ParseAddr(text)
	if err != nil || !s.cidr.Contains(ip.Unmap()) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, text, fmt.Sprintf("is in the range of the cluster IPs, %s: a Service can have such an address as its clusterIP only", s.cidr))}
}

// size is how many addresses the range has, without the first, which names the
// range, and the last, which is for broadcasts.
func (s Services) size() int { return 1<<(32-s.cidr.Bits()) - 2 }

func (s Services) address(i int) netip.Addr {
	first := s.cidr.Addr().As4()
	var out [4]byte
	binary.BigEndian.PutUint32(out[:], binary.BigEndian.Uint32(first[:])+1+uint32(i))
	return netip.AddrFrom4(out)
}

// index is the inverse of address; -1 for an address of another range.
func (s Services) index(ip netip.Addr) int {
	if !ip.Is4() || !s.cidr.Contains(ip) {
		return -1
	}
	a, first := ip.As4(), s.cidr.Addr().As4()
	return int(binary.BigEndian.Uint32(a[:])) - int(binary.BigEndian.Uint32(first[:])) - 1
}

func (s Services) giveAddress(svc *corev1.Service, holder func(api.Claim) string) error {
	if !api.HasClusterIP(&svc.Spec) || svc.Spec.ClusterIP != "" || len(svc.Spec.ClusterIPs) > 0 {
		return nil
	}
	n := s.size()
	i, ok := free(n, band(n+2, 16, 16, 256), svc.Namespace+"/"+svc.Name, func(i int) bool {
		return i > 0 && holder(api.Claim{Address: s.address(i).String()}) == ""
	})
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("no cluster IP of %s is free: delete Services that nobody needs, or make some headless (clusterIP: None)", s.cidr))
	}
	svc.Spec.ClusterIP = s.address(i).String()
	svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	return nil
}

func givePorts(svc *corev1.Service, holder func(api.Claim) string) error {
	taken := map[int32]bool{}
	for _, c := range api.Claims(svc) {
		taken[c.NodePort] = true
	}
	give := func(name string) (int32, error) {
		const n = api.LastNodePort - api.FirstNodePort + 1
		i, ok := free(n, band(n, 16, 32, 128), svc.Namespace+"/"+svc.Name+"/"+name, func(i int) bool {
			port := api.FirstNodePort + int32(i)
			return !taken[port] && holder(api.Claim{NodePort: port}) == ""
		})
		if !ok {
			return 0, apierrors.NewInternalError(fmt.Errorf("no node port of %d-%d is free: delete Services of type NodePort or LoadBalancer that nobody needs, or set their allocateLoadBalancerNodePorts to false", api.FirstNodePort, api.LastNodePort))
		}
		taken[api.FirstNodePort+int32(i)] = true
		return api.FirstNodePort + int32(i), nil
	}
	var err error
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.NodePort != 0 || !api.GetsNodePorts(&svc.Spec) {
			continue
		}
		if p.NodePort = twin(svc.Spec.Ports, p); p.NodePort != 0 {
			continue
		}
		if p.NodePort, err = give(fmt.Sprintf("%d/%s", p.Port, p.Protocol)); err != nil {
			return err
		}
	}
	if api.HasHealthCheckPort(&svc.Spec) && svc.Spec.HealthCheckNodePort == 0 {
		svc.Spec.HealthCheckNodePort, err = give("health")
	}
	return err
}

// twin is the node port of the port with the same number and another protocol, such
// as that of DNS over TCP for DNS over UDP; 0 when there is none or it is in use.
func twin(ports []corev1.ServicePort, of *corev1.ServicePort) int32 {
	for _, p := range ports {
		if p.NodePort == 0 || p.Port != of.Port || p.Protocol == of.Protocol {
			continue
		}
		for _, q := range ports {
			if q.NodePort == p.NodePort && q.Protocol == of.Protocol {
				return 0
			}
		}
		return p.NodePort
	}
	return 0
}

// band is how many members at the start of a range of n are left to those who
// choose themselves: a part of it within bounds, none of a range that is too small.
func band(n, least, part, most int) int {
	if n < least {
		return 0
	}
	return min(max(n/part, least), most)
}

// free finds a member of [0, n) above the band, from the place of a name on and
// around, and in the band when there is none.
func free(n, band int, name string, is func(int) bool) (int, bool) {
	h := fnv.New32a()
	h.Write([]byte(name))
	if upper := n - band; upper > 0 {
		start := int(h.Sum32() % uint32(upper))
		for i := range upper {
			if at := band + (start+i)%upper; is(at) {
				return at, true
			}
		}
	}
	for at := range min(band, n) {
		if is(at) {
			return at, true
		}
	}
	return 0, false
}
