package dns

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func serviceOf(obj *corev1.Service) *service {
	s := &service{known: true, all: obj.Spec.PublishNotReadyAddresses}
	if obj.Spec.Type == corev1.ServiceTypeExternalName {
		s.external = dns.Fqdn(obj.Spec.ExternalName)
		return s
	}
	s.headless = obj.Spec.ClusterIP == corev1.ClusterIPNone
	texts := obj.Spec.ClusterIPs
	if len(texts) == 0 {
		texts = []string{obj.Spec.ClusterIP}
	}
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil { // None, or not given yet
			s.ips = append(s.ips, ip.Unmap())
		}
	}
	for _, p := range obj.Spec.Ports {
		s.ports = append(s.ports, port{strings.ToLower(p.Name), protocol(p.Protocol), uint16(p.Port)})
	}
	return s
}

func sliceOf(obj *discoveryv1.EndpointSlice) *slice {
	s := &slice{
		key:     key{strings.ToLower(obj.Namespace), strings.ToLower(obj.Name)},
		service: strings.ToLower(obj.Labels[discoveryv1.LabelServiceName]),
	}
	for _, e := range obj.Endpoints {
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		host := ""
		if e.Hostname != nil {
			host = strings.ToLower(*e.Hostname)
		}
		for _, text := range e.Addresses {
			if addr, err := netip.ParseAddr(text); err == nil { // else a name: addressType FQDN
				s.endpoints = append(s.endpoints, endpoint{addr.Unmap(), host, ready})
			}
		}
	}
	for _, p := range obj.Ports {
		if p.Port == nil {
			continue // every port: there is no number to give
		}
		one := port{proto: "tcp", number: uint16(*p.Port)}
		if p.Name != nil {
			one.name = strings.ToLower(*p.Name)
		}
		if p.Protocol != nil {
			one.proto = protocol(*p.Protocol)
		}
		s.ports = append(s.ports, one)
	}
	s.hosts, s.allHosts = hostsOf(s.endpoints)
	return s
}

// hostsOf indexes the endpoints with a hostname: the ready ones, and all.
func hostsOf(endpoints []endpoint) (ready, all map[string][]netip.Addr) {
	for _, e := range endpoints {
		if e.host == "" {
			continue
		}
		if all == nil {
			all, ready = map[string][]netip.Addr{}, map[string][]netip.Addr{}
		}
		all[e.host] = append(all[e.host], e.addr)
		if e.ready {
			ready[e.host] = append(ready[e.host], e.addr)
		}
	}
	if maps.EqualFunc(ready, all, slices.Equal) {
		ready = all
	}
	return ready, all
}

func protocol(p corev1.Protocol) string {
	if p == "" {
		return "tcp"
	}
	return strings.ToLower(string(p))
}

// equal compares all but the slices.
func (s *service) equal(o *service) bool {
	return s.known == o.known && s.external == o.external && s.headless == o.headless && s.all == o.all &&
		slices.Equal(s.ips, o.ips) && slices.Equal(s.ports, o.ports)
}

func (s *slice) equal(o *slice) bool {
	return s == o || s.service == o.service && slices.Equal(s.endpoints, o.endpoints) && slices.Equal(s.ports, o.ports)
}

// addrs is the set of a slice's addresses.
func (s *slice) addrs() map[netip.Addr]bool {
	if s == nil {
		return nil
	}
	out := make(map[netip.Addr]bool, len(s.endpoints))
	for _, e := range s.endpoints {
		out[e.addr] = true
	}
	return out
}

// name is what an endpoint is called below its Service.
func (e endpoint) name() string {
	if e.host != "" {
		return e.host
	}
	return dashed(e.addr)
}

// dashed is an address as one label of a name.
func dashed(addr netip.Addr) string {
	if addr.Is4() {
		return strings.ReplaceAll(addr.String(), ".", "-")
	}
	return strings.ReplaceAll(addr.String(), ":", "-")
}

// undashed reads what dashed wrote.
func undashed(label string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ".")); err == nil && addr.Is4() {
		return addr, true
	}
	addr, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ":"))
	return addr, err == nil && dashed(addr) == label
}
