package route

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// name is a Service's.
type name struct{ namespace, name string }

func (n name) String() string { return n.namespace + "/" + n.name }

func (n name) compare(o name) int {
	return cmp.Or(cmp.Compare(n.namespace, o.namespace), cmp.Compare(n.name, o.name))
}

// target is where a member of a group listens.
type target struct{ addr, port uint32 }

func (t target) String() string { return netip.AddrPortFrom(addrOf(t.addr), uint16(t.port)).String() }

func (t target) compare(o target) int {
	return cmp.Or(cmp.Compare(t.addr, o.addr), cmp.Compare(t.port, o.port))
}

// road is where UDP that was sent to an address of a Service, inner or innerPorts,
// goes.
type road struct {
	from key
	to   target
}

func (r road) compare(o road) int {
	return cmp.Or(entry{key: r.from}.compare(entry{key: o.from}), r.to.compare(o.to))
}

// endpoint is a target and what its slices say of it.
type endpoint struct {
	target
	ready, serving, terminating, local bool
	dropped                            bool // its pod is being stopped on this node
}

// input is what the elements of one Service are decided from.
type input struct {
	name    name
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
	dropped map[netip.Addr]bool
	node    string
	taken   [2]netip.Prefix // where a Service has no address from outside
}

// takes reports whether an address is a pod's or a cluster IP, and so none that a
// Service can be reached at from outside.
func (in *input) takes(addr uint32) bool {
	return slices.ContainsFunc(in.taken[:], func(p netip.Prefix) bool { return p.Contains(addrOf(addr)) })
}

// entry is one element that a Service wants.
type entry struct {
	key key
	val value
}

func (e entry) compare(o entry) int { return e.key.compare(o.key) }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.set, o.set), cmp.Compare(k.a, o.a), cmp.Compare(k.b, o.b), cmp.Compare(k.c, o.c))
}

// outcome is what a Service wants.
type outcome struct {
	entries    []entry // sorted
	serving    []road  // to UDP targets that answer, sorted
	local      int     // addresses of this node that get connections
	healthPort int32   // where the number of those is asked for; 0: nowhere
}

// plan decides what a Service wants. ids gives groups and members their numbers.
func plan(in input, ids *numbers) outcome {
	if in.service == nil || !routed(in.service) {
		return outcome{}
	}
	p := planner{input: in, ids: ids, want: map[key]value{}, here: map[uint32]bool{}}
	for i := range in.service.Spec.Ports {
		p.port(&in.service.Spec.Ports[i])
	}
	entries := make([]entry, 0, len(p.want))
	for k, v := range p.want {
		entries = append(entries, entry{k, v})
	}
	slices.SortFunc(entries, entry.compare)
	slices.SortFunc(p.serving, road.compare)
	out := outcome{entries: entries, serving: slices.Compact(p.serving), local: len(p.here)}
	if in.service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		out.healthPort = in.service.Spec.HealthCheckNodePort
	}
	return out
}

// routed reports whether a Service has an address that leads somewhere.
func routed(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != corev1.ClusterIPNone && s.Spec.ClusterIP != ""
}

type planner struct {
	input
	ids     *numbers
	want    map[key]value
	serving []road
	here    map[uint32]bool // addresses of this node that get connections
}

// put wants an element; of two for one key the first stays.
func (p *planner) put(k key, v value) {
	if _, ok := p.want[k]; !ok {
		p.want[k] = v
	}
}

func protocolNumber(p corev1.Protocol) uint32 {
	switch p {
	case corev1.ProtocolUDP:
		return udp
	case corev1.ProtocolSCTP:
		return sctp
	default: // an unset protocol is TCP
		return tcp
	}
}

func (p *planner) port(port *corev1.ServicePort) {
	eps := endpoints(p.input, port)
	local := slices.DeleteFunc(slices.Clone(eps), func(e endpoint) bool { return !e.local })
	spec, proto := &p.service.Spec, protocolNumber(port.Protocol)
	group := func(scope string, of []endpoint) func() uint32 {
		var made uint32
		return func() uint32 {
			if made == 0 {
				made = p.group(groupName{p.name, port.Name, uint32(port.Port), proto, scope}, usable(of))
			}
			return made
		}
	}
	everywhere, here := group("cluster", eps), group("local", local)
	inside, outside := everywhere, everywhere
	if spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal {
		inside = here
	}
	if spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		outside = here
	}
	some := len(usable(eps)) > 0
	for _, e := range usable(local) {
		p.here[e.addr] = true
	}
	asked := func(s set, addr uint32) key { return key{s, addr, proto, uint32(port.Port)} }
	var ways []key
	if ip, ok := parse4(spec.ClusterIP); ok {
		ways = append(ways, asked(inner, ip))
		p.lead(asked(inner, ip), asked(refused, ip), inside(), reject)
	}
	for _, ip := range outsideAddresses(p.service) {
		if p.takes(ip) {
			continue
		}
		ways = append(ways, asked(inner, ip))
		p.lead(asked(inner, ip), asked(refused, ip), everywhere(), reject)
		p.lead(asked(outer, ip), asked(refused, ip), outside(), verdictWithout(some))
	}
	if n := uint32(port.NodePort); n != 0 {
		ways = append(ways, key{innerPorts, proto, n, 0})
		refuse := key{refusedPorts, proto, n, 0}
		p.lead(key{innerPorts, proto, n, 0}, refuse, everywhere(), reject)
		p.lead(key{outerPorts, proto, n, 0}, refuse, outside(), verdictWithout(some))
		if id := here(); id != 0 {
			p.put(key{loopPorts, proto, n, 0}, value{a: id})
		}
	}
	for _, e := range eps {
		if e.local {
			p.put(key{hairpins, e.addr, e.addr, 0}, value{})
		} else {
			p.put(key{remotes, e.addr, proto, e.port}, value{})
		}
		if proto == udp && (e.ready || e.serving) {
			for _, from := range ways {
				p.serving = append(p.serving, road{from, e.target})
			}
		}
	}
}

// verdictWithout says what is done with a packet from outside for which this node
// has no endpoint: silence when other nodes have some, so that a load balancer
// in front tries those.
func verdictWithout(elsewhere bool) uint32 {
	if elsewhere {
		return drop
	}
	return reject
}

// lead makes an address lead to a group, or to a refusal if the group is empty.
func (p *planner) lead(from, refusal key, group, verdict uint32) {
	if group != 0 {
		p.put(from, value{a: group})
		return
	}
	p.put(refusal, value{a: verdict})
}

// group wants the elements of a group and returns its number, 0 without members.
func (p *planner) group(n groupName, of []endpoint) uint32 {
	if len(of) == 0 {
		return 0
	}
	id, stick := p.ids.groups.get(n), stickSeconds(p.service)
	p.put(key{groups, id, 0, 0}, value{uint32(len(of)), stick})
	for i, e := range of {
		m := p.ids.members.get(memberName{id, e.target})
		p.put(key{members, m, 0, 0}, value{e.addr, e.port})
		if stick == 0 {
			p.put(key{slots, id, uint32(i), 0}, value{a: m})
			continue
		}
		p.put(key{picks, id, uint32(i), 0}, value{a: m})
		p.put(key{sticky, id, m, 0}, value{a: m})
	}
	return id
}

// stickSeconds says how long a client stays with its member, 0: not at all.
func stickSeconds(s *corev1.Service) uint32 {
	if s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil && *c.ClientIP.TimeoutSeconds > 0 {
		return uint32(*c.ClientIP.TimeoutSeconds)
	}
	return uint32(corev1.DefaultClientIPServiceAffinitySeconds)
}

func parse4(s string) (uint32, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Unmap().Is4() {
		return 0, false
	}
	return word(a.Unmap()), true
}

// outsideAddresses are those by which others than pods reach a Service.
func outsideAddresses(s *corev1.Service) []uint32 {
	var out []uint32
	for _, a := range s.Spec.ExternalIPs {
		if ip, ok := parse4(a); ok {
			out = append(out, ip)
		}
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return out
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		if in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy {
			continue // packets must pass through the balancer
		}
		if ip, ok := parse4(in.IP); ok {
			out = append(out, ip)
		}
	}
	return out
}

// usable returns those that new connections go to: the ready ones; while there
// are none, those that are terminating but still serve (KEP-1669).
func usable(eps []endpoint) []endpoint {
	var ready, last []endpoint
	for _, e := range eps {
		switch {
		case e.ready:
			ready = append(ready, e)
		case e.serving && e.terminating:
			last = append(last, e)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return last
}

// endpoints returns those of a Service's port, sorted, each once.
func endpoints(in input, port *corev1.ServicePort) []endpoint {
	found := map[target]endpoint{}
	for _, s := range in.slices {
		number, ok := slicePort(s, port)
		if s.AddressType != discoveryv1.AddressTypeIPv4 || !ok {
			continue
		}
		for i := range s.Endpoints {
			for _, a := range s.Endpoints[i].Addresses {
				ip, ok := parse4(a)
				if !ok {
					continue
				}
				e := endpointOf(&s.Endpoints[i], target{ip, number}, in)
				if before, twice := found[e.target]; twice {
					e = before.or(e) // it is moving from one slice to another
				}
				found[e.target] = e
			}
		}
	}
	out := make([]endpoint, 0, len(found))
	for _, e := range found {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b endpoint) int { return a.target.compare(b.target) })
	return out
}

func (e endpoint) or(o endpoint) endpoint {
	e.ready = e.ready || o.ready
	e.serving = e.serving || o.serving
	e.terminating = e.terminating && o.terminating
	e.local = e.local || o.local
	return e
}

func endpointOf(e *discoveryv1.Endpoint, t target, in input) endpoint {
	c := e.Conditions
	out := endpoint{
		target: t, ready: c.Ready == nil || *c.Ready, terminating: c.Terminating != nil && *c.Terminating,
		local: e.NodeName != nil && *e.NodeName == in.node, dropped: in.dropped[addrOf(t.addr)],
	}
	out.serving = out.ready
	if c.Serving != nil {
		out.serving = *c.Serving
	}
	if out.dropped {
		out.serving, out.ready, out.terminating = out.serving || out.ready, false, true
	}
	return out
}

func slicePort(s *discoveryv1.EndpointSlice, port *corev1.ServicePort) (uint32, bool) {
	for _, p := range s.Ports {
		name, proto := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			proto = *p.Protocol
		}
		if name == port.Name && protocolNumber(proto) == protocolNumber(port.Protocol) && p.Port != nil && *p.Port > 0 {
			return uint32(*p.Port), true
		}
	}
	return 0, false
}
