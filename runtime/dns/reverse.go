package dns

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// reverse is the address that a name below in-addr.arpa or ip6.arpa stands for.
func reverse(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		parts := strings.Split(rest, ".")
		slices.Reverse(parts)
		addr, err := netip.ParseAddr(strings.Join(parts, "."))
		return addr, err == nil && addr.Is4()
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 32 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i, part := range parts {
		digit, err := strconv.ParseUint(part, 16, 4)
		if err != nil || len(part) != 1 {
			return netip.Addr{}, false
		}
		at := 31 - i
		b[at/2] |= byte(digit) << (4 * (1 - at%2))
	}
	return netip.AddrFrom16(b), true
}

// pointer answers who an address is; ok is false when that is for others to say.
func (z *zone) pointer(q dns.Question, addr netip.Addr) (r reply, ok bool) {
	names := z.namesOf(addr)
	if len(names) == 0 {
		return nothing(), within(z.own, addr)
	}
	if q.Qtype != dns.TypePTR {
		return reply{}, true
	}
	for _, name := range names {
		r.answer = append(r.answer, &dns.PTR{
			Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: ttl}, Ptr: name,
		})
	}
	return r, true
}

// How good a name is for an endpoint's address. Programs take the first one, so
// only the best are given: a database that asks who it is wants its hostname, not
// what it is called below some other Service.
const (
	byHostname = iota
	byHeadless
	byService
	worst
)

// namesOf returns the best names that an address has, sorted.
func (z *zone) namesOf(addr netip.Addr) []string {
	if k, ok := z.clusterIPs.Load(addr); ok {
		k := k.(key)
		return []string{k.name + "." + k.namespace + ".svc." + z.domain}
	}
	have, _ := z.endpoints.Load(addr)
	keys, _ := have.([]key)
	best, names := worst, []string(nil)
	for _, k := range keys {
		sl := z.slice(k)
		if sl == nil {
			continue // between the two changes of one that goes
		}
		s := z.service(key{k.namespace, sl.service})
		if s == nil || !s.known || s.external != "" {
			continue
		}
		for _, e := range sl.endpoints {
			if e.addr != addr || !e.ready && !s.all {
				continue
			}
			rank := byService
			switch {
			case e.host != "":
				rank = byHostname
			case s.headless:
				rank = byHeadless
			}
			if rank < best {
				best, names = rank, nil
			}
			if rank == best {
				names = append(names, e.name()+"."+sl.service+"."+k.namespace+".svc."+z.domain)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
