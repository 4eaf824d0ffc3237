package dns

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/miekg/dns"
)

// aliases is how many ExternalNames may lead to another before it is a circle.
const aliases = 8

// query is a question and how its answer has to be sent.
type query struct {
	in    *dns.Msg
	q     dns.Question
	name  string // in lower case
	opt   *dns.OPT
	limit int // bytes of the answer
}

// outcome of a packet: nothing to send, an answer, or one that has to be waited
// for.
type outcome struct {
	out   []byte
	later func(context.Context) []byte
}

// handle answers a packet. It waits for nothing: what needs a resolver is later.
func (s *Server) handle(packet []byte, tcp bool) (o outcome) {
	defer func() {
		if p := recover(); p != nil { // a mistake in reading what a stranger sent
			s.panicked(p)
			o = outcome{}
		}
	}()
	in := new(dns.Msg)
	if err := in.Unpack(packet); err != nil || in.Response {
		s.metrics.drop(dropMalformed)
		return outcome{}
	}
	k := &query{in: in, limit: dns.MinMsgSize, opt: in.IsEdns0()}
	if k.opt != nil {
		k.limit = min(max(int(k.opt.UDPSize()), dns.MinMsgSize), payload)
	}
	if tcp {
		k.limit = dns.MaxMsgSize
	}
	switch {
	case in.Opcode != dns.OpcodeQuery:
		return s.refuse(k, dns.RcodeNotImplemented)
	case len(in.Question) != 1 || len(in.Answer) > 0:
		return s.refuse(k, dns.RcodeFormatError)
	case k.opt != nil && k.opt.Version() != 0:
		return s.refuse(k, dns.RcodeBadVers)
	}
	k.q = in.Question[0]
	k.name = dns.CanonicalName(k.q.Name)
	switch t := k.q.Qtype; {
	case k.q.Qclass != dns.ClassINET:
		return s.refuse(k, dns.RcodeRefused)
	case t == dns.TypeANY: // RFC 8482: one record that says why there are no others
		hinfo := &dns.HINFO{Hdr: dns.RR_Header{Name: k.q.Name, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: 3600}, Cpu: "RFC8482"}
		return s.say(k, sourceRefused, &dns.Msg{Answer: []dns.RR{hinfo}})
	case t >= 128 && t < 256 || t == dns.TypeOPT: // zone transfers, and what is no question
		return s.refuse(k, dns.RcodeRefused)
	case s.forward.returned(k.name):
		return s.refuse(k, dns.RcodeRefused)
	}
	return s.lookup(k)
}

// lookup answers from what is known of the cluster, or says that a resolver has to
// be asked.
func (s *Server) lookup(k *query) outcome {
	ask, name := k.q, k.name
	var known dns.Msg
	known.Authoritative = true
	for range aliases {
		r, ok := s.zone.answer(ask, name)
		if !ok {
			break
		}
		if r.rcode == dns.RcodeNameError && r.guess && !s.synced.Load() {
			return s.refuse(k, dns.RcodeServerFailure)
		}
		shuffle(r.answer)
		known.Rcode = r.rcode
		known.Answer = append(known.Answer, r.answer...)
		known.Extra = r.extra
		if r.alias == "" || ask.Qtype == dns.TypeCNAME {
			if len(r.answer) == 0 {
				known.Ns = []dns.RR{s.zone.soa()}
			}
			return s.say(k, sourceCluster, &known)
		}
		ask.Name, name = r.alias, dns.CanonicalName(r.alias)
	}
	if _, ours := s.zone.path(name); ours { // aliases that lead in a circle
		return s.refuse(k, dns.RcodeServerFailure)
	}
	if !k.in.RecursionDesired {
		if len(known.Answer) > 0 {
			return s.say(k, sourceCluster, &known)
		}
		return s.refuse(k, dns.RcodeRefused)
	}
	return outcome{later: func(ctx context.Context) []byte { return s.recurse(ctx, k, ask, name, &known) }}
}

// shuffle spreads the clients that take the first address over all of them.
func shuffle(rrs []dns.RR) {
	rand.Shuffle(len(rrs), func(i, j int) { rrs[i], rrs[j] = rrs[j], rrs[i] })
}

// recurse has a resolver asked and answers with what it says, after the aliases
// that led there.
func (s *Server) recurse(ctx context.Context, k *query, ask dns.Question, name string, known *dns.Msg) (out []byte) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
			out = nil
		}
	}()
	q := question{name: name, qtype: ask.Qtype, cd: k.in.CheckingDisabled, ad: k.in.AuthenticatedData}
	q.do = k.opt != nil && k.opt.Do()
	m, fromCache, err := s.forward.ask(ctx, q, ask.Name)
	if err != nil {
		if ctx.Err() != nil {
			return nil // we end; the asker asks again
		}
		s.cfg.Log.Error("question not answered", "name", ask.Name, "error", err)
		return s.refuse(k, dns.RcodeServerFailure).out
	}
	for _, rr := range m.Answer {
		if h := rr.Header(); dns.CanonicalName(h.Name) == name {
			h.Name = ask.Name // in the case that it was asked in
		}
	}
	if len(known.Answer) == 0 {
		known.Authoritative = false
		known.AuthenticatedData = m.AuthenticatedData
	}
	known.Rcode = m.Rcode
	known.Answer = append(known.Answer, m.Answer...)
	known.Ns, known.Extra = m.Ns, m.Extra
	source := sourceUpstream
	if fromCache {
		source = sourceCache
	}
	return s.say(k, source, known).out
}

// refuse answers with a code alone.
func (s *Server) refuse(k *query, rcode int) outcome {
	return s.say(k, sourceRefused, &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: rcode}})
}

// say packs an answer into what the asker can take.
func (s *Server) say(k *query, source string, m *dns.Msg) outcome {
	m.Id, m.Response, m.Opcode = k.in.Id, true, k.in.Opcode
	m.RecursionDesired, m.CheckingDisabled, m.RecursionAvailable = k.in.RecursionDesired, k.in.CheckingDisabled, true
	if len(k.in.Question) == 1 {
		m.Question = k.in.Question
	}
	if k.opt != nil {
		opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		opt.SetUDPSize(payload)
		if k.opt.Do() {
			opt.SetDo()
		}
		m.Extra = append(m.Extra, opt)
	} else if m.Rcode > 0xf {
		m.Rcode = dns.RcodeServerFailure // the long codes have no room without EDNS
	}
	fit(m, k.limit)
	out, err := m.Pack()
	if err != nil || len(out) > k.limit {
		s.cfg.Log.Error("answer not sent", "question", fmt.Sprint(k.q.Name, " ", dns.TypeToString[k.q.Qtype]), "bytes", len(out), "error", err)
		return outcome{}
	}
	s.metrics.answered(source, m.Rcode)
	return outcome{out: out}
}

// fit takes away what does not fit: first what was only added for convenience,
// then, marked as cut short, the rest.
func fit(m *dns.Msg, limit int) {
	if m.Len() <= limit {
		return
	}
	m.Compress = true
	if m.Len() <= limit {
		return
	}
	m.Extra = onlyOPT(m)
	m.Truncate(limit)
}

func onlyOPT(m *dns.Msg) []dns.RR {
	if opt := m.IsEdns0(); opt != nil {
		return []dns.RR{opt}
	}
	return nil
}
