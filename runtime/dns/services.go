package dns

import (
	"iter"
	"net/netip"

	"github.com/miekg/dns"
)

// serviceName answers for a Service and for what is below it.
func (z *zone) serviceName(q dns.Question, namespace string, labels []string) reply {
	n := len(labels)
	k := key{namespace, labels[n-1]}
	s := z.service(k)
	if s == nil || !s.known {
		return nothing()
	}
	labels = labels[:n-1]
	switch {
	case s.external != "":
		if len(labels) > 0 {
			return nothing()
		}
		return reply{alias: s.external, answer: []dns.RR{&dns.CNAME{
			Hdr:    dns.RR_Header{Name: q.Name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: ttl},
			Target: s.external,
		}}}
	case len(labels) == 0:
		return z.wholeService(q, k, s)
	case len(labels) == 1 && labels[0][:min(1, len(labels[0]))] != "_":
		addrs := s.host(labels[0])
		if len(addrs) == 0 {
			return nothing()
		}
		return addresses(q, addrs)
	case len(labels) == 1:
		return z.portName(q, k, s, "", labels[0])
	case len(labels) == 2:
		return z.portName(q, k, s, labels[0], labels[1])
	}
	return nothing()
}

// wholeService answers for a Service's own name. A headless one without an
// endpoint has no name, says the specification.
func (z *zone) wholeService(q dns.Question, k key, s *service) reply {
	addrs := s.ips
	if s.headless {
		if addrs = s.addrs(); len(addrs) == 0 {
			return nothing()
		}
	}
	if q.Qtype == dns.TypeSRV {
		return z.srv(q, k, s, func(port) bool { return true })
	}
	return addresses(q, addrs)
}

// portName answers for _<port>._<proto>, or for _<proto> alone, which has no
// records but is a name, since there are names below it.
func (z *zone) portName(q dns.Question, k key, s *service, name, proto string) reply {
	if len(proto) < 2 || proto[0] != '_' || name != "" && (len(name) < 2 || name[0] != '_') {
		return nothing()
	}
	match := func(p port) bool {
		return p.name != "" && p.proto == proto[1:] && (name == "" || p.name == name[1:])
	}
	if !s.hasPort(match) {
		return nothing()
	}
	if name == "" || q.Qtype != dns.TypeSRV {
		return reply{}
	}
	return z.srv(q, k, s, match)
}

// srv makes the SRV records of a Service's ports, with the addresses they need.
func (z *zone) srv(q dns.Question, k key, s *service, match func(port) bool) reply {
	var r reply
	base := k.name + "." + k.namespace + ".svc." + z.domain
	add := func(p port, target string) {
		r.answer = append(r.answer, &dns.SRV{
			Hdr:  dns.RR_Header{Name: q.Name, Rrtype: dns.TypeSRV, Class: dns.ClassINET, Ttl: ttl},
			Port: p.number, Weight: 1, Target: target,
		})
	}
	if !s.headless {
		for _, p := range s.ports {
			if match(p) {
				add(p, base)
			}
		}
		for _, ip := range s.ips {
			r.extra = append(r.extra, addressRecord(base, ip))
		}
		return r
	}
	type record struct {
		host   string
		number uint16
	}
	listed := map[record]bool{}
	given := map[endpoint]bool{}
	for sl, e := range s.published() {
		host := e.name()
		for _, p := range sl.ports {
			if !match(p) {
				continue
			}
			if !listed[record{host, p.number}] {
				listed[record{host, p.number}] = true
				add(p, host+"."+base)
			}
			if id := (endpoint{addr: e.addr, host: host}); !given[id] {
				given[id] = true
				r.extra = append(r.extra, addressRecord(host+"."+base, e.addr))
			}
		}
	}
	return r
}

// published are the endpoints that names are made of.
func (s *service) published() iter.Seq2[*slice, endpoint] {
	return func(yield func(*slice, endpoint) bool) {
		for _, sl := range s.slices {
			for _, e := range sl.endpoints {
				if (e.ready || s.all) && !yield(sl, e) {
					return
				}
			}
		}
	}
}

// addrs of a Service's endpoints, each once.
func (s *service) addrs() []netip.Addr {
	var out []netip.Addr
	seen := map[netip.Addr]bool{}
	for _, e := range s.published() {
		if !seen[e.addr] {
			seen[e.addr] = true
			out = append(out, e.addr)
		}
	}
	return out
}

// host returns the addresses of the endpoints of one name.
func (s *service) host(name string) []netip.Addr {
	var out []netip.Addr
	seen := map[netip.Addr]bool{}
	for _, sl := range s.slices {
		hosts := sl.hosts
		if s.all {
			hosts = sl.allHosts
		}
		for _, addr := range hosts[name] {
			if !seen[addr] {
				seen[addr] = true
				out = append(out, addr)
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	addr, ok := undashed(name)
	if !ok {
		return nil
	}
	for _, e := range s.published() {
		if e.host == "" && e.addr == addr {
			return []netip.Addr{addr}
		}
	}
	return nil
}

// hasPort reports whether a name is made of such a port.
func (s *service) hasPort(match func(port) bool) bool {
	if !s.headless {
		for _, p := range s.ports {
			if match(p) {
				return true
			}
		}
		return false
	}
	for sl := range s.published() {
		for _, p := range sl.ports {
			if match(p) {
				return true
			}
		}
	}
	return false
}
