package dns

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

const (
	// ttl of every record of the cluster, also of "there is no such name": so long
	// may a client believe what has changed since.
	ttl = 5
	// specification is the version of Kubernetes' DNS specification.
	specification = "1.1.0"
)

// zone answers for the cluster's domain and for the addresses of its networks.
type zone struct {
	names
	domain string // lower case, with the dot at its end
	self   netip.Addr
	pods   []netip.Prefix
	// own are the networks for which nobody else is asked who an address is.
	own []netip.Prefix
}

// reply is what the zone says to one question.
type reply struct {
	rcode  int
	answer []dns.RR
	extra  []dns.RR
	alias  string // the last record of answer is a CNAME to this name
	guess  bool   // "no such name" holds only if all Services are known
}

func nothing() reply { return reply{rcode: dns.RcodeNameError, guess: true} }

// path of a name below the domain: its labels, the outermost last. ok is false
// for a name of somebody else.
func (z *zone) path(name string) (labels []string, ok bool) {
	if name == z.domain {
		return nil, true
	}
	rest, ok := strings.CutSuffix(name, "."+z.domain)
	if !ok || strings.HasSuffix(rest, `\`) { // an escaped dot separates nothing
		return nil, false
	}
	return strings.Split(rest, "."), true
}

// answer says what the zone knows; ok is false when another resolver is to be
// asked. name is q's in lower case.
func (z *zone) answer(q dns.Question, name string) (r reply, ok bool) {
	if labels, ok := z.path(name); ok {
		return z.below(q, labels), true
	}
	if addr, ok := reverse(name); ok {
		return z.pointer(q, addr)
	}
	return reply{}, false
}

// below answers for a name in the domain.
func (z *zone) below(q dns.Question, labels []string) reply {
	n := len(labels)
	switch {
	case n == 0:
		return z.apex(q)
	case n == 1 && labels[0] == "dns-version":
		return one(q, dns.TypeTXT, &dns.TXT{Txt: []string{specification}})
	case n == 1 && labels[0] == "dns":
		return reply{}
	case n == 2 && labels[0] == "ns" && labels[1] == "dns":
		return addresses(q, []netip.Addr{z.self})
	}
	kind, labels := labels[n-1], labels[:n-1]
	switch {
	case kind != "svc" && kind != "pod":
		return reply{rcode: dns.RcodeNameError}
	case len(labels) == 0:
		return reply{}
	}
	namespace, labels := labels[len(labels)-1], labels[:len(labels)-1]
	switch {
	case len(labels) == 0:
		// Below pod there are addresses in every namespace.
		if _, there := z.namespaces.Load(namespace); !there && kind != "pod" {
			return nothing()
		}
		return reply{}
	case kind == "pod":
		return z.pod(q, labels)
	}
	return z.serviceName(q, namespace, labels)
}

func (z *zone) apex(q dns.Question) reply {
	switch q.Qtype {
	case dns.TypeSOA:
		soa := z.soa()
		soa.Hdr.Name = q.Name
		return reply{answer: []dns.RR{soa}}
	case dns.TypeNS:
		host := "ns.dns." + z.domain
		r := one(q, dns.TypeNS, &dns.NS{Ns: host})
		r.extra = addresses(dns.Question{Name: host, Qtype: addressType(z.self), Qclass: q.Qclass}, []netip.Addr{z.self}).answer
		return r
	}
	return reply{}
}

// soa goes with every answer that says no. Its numbers are for zone transfers,
// which there are none of, but for the last: how long a no may be believed.
func (z *zone) soa() *dns.SOA {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: z.domain, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  "ns.dns." + z.domain, Mbox: "hostmaster." + z.domain,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
}

// pod answers for the address that is a pod's name. There is a record for each
// address of the pods' network, whether a pod has it or not, and for no other: so
// no name in the cluster can be made to mean a machine outside of it.
func (z *zone) pod(q dns.Question, labels []string) reply {
	addr, ok := undashed(labels[0])
	if len(labels) != 1 || !ok || !within(z.pods, addr) {
		return reply{rcode: dns.RcodeNameError}
	}
	return addresses(q, []netip.Addr{addr})
}

func within(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// one is the answer of a name with a single record.
func one(q dns.Question, rrtype uint16, rr dns.RR) reply {
	if q.Qtype != rrtype {
		return reply{}
	}
	*rr.Header() = dns.RR_Header{Name: q.Name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
	return reply{answer: []dns.RR{rr}}
}

// addresses is the answer of a name that has them.
func addresses(q dns.Question, addrs []netip.Addr) reply {
	var r reply
	for _, addr := range addrs {
		if addressType(addr) == q.Qtype {
			r.answer = append(r.answer, addressRecord(q.Name, addr))
		}
	}
	return r
}

func addressType(addr netip.Addr) uint16 {
	if addr.Is4() {
		return dns.TypeA
	}
	return dns.TypeAAAA
}

func addressRecord(name string, addr netip.Addr) dns.RR {
	header := dns.RR_Header{Name: name, Rrtype: addressType(addr), Class: dns.ClassINET, Ttl: ttl}
	if addr.Is4() {
		return &dns.A{Hdr: header, A: addr.AsSlice()}
	}
	return &dns.AAAA{Hdr: header, AAAA: addr.AsSlice()}
}
