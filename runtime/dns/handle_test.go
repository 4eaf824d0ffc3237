package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus/testutil"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// newTestServer knows the shop and asks a scripted resolver.
func newTestServer(t testing.TB, answer exchange) *Server {
	t.Helper()
	s, err := New(Config{
		Domain: "cluster.local", Address: netip.MustParseAddrPort("127.0.0.1:53"),
		Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, Services: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
	})
	if err != nil {
		t.Fatal(err)
	}
	shop(s.names)
	s.Synced()
	if answer == nil {
		answer = func(context.Context, string, *upstream, *dns.Msg) (*dns.Msg, error) { return nil, errors.New("down") }
	}
	s.forward.exchange = answer
	s.forward.use([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:53")})
	return s
}

// ask passes a message through the handler; nil when nothing was sent.
func (s *Server) ask(t testing.TB, m *dns.Msg, tcp bool) *dns.Msg {
	t.Helper()
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	o := s.handle(packet, tcp)
	if o.later != nil {
		o.out = o.later(t.Context())
	}
	if o.out == nil {
		return nil
	}
	r := new(dns.Msg)
	if err := r.Unpack(o.out); err != nil {
		t.Fatal(err)
	}
	if r.Id != m.Id || !r.Response || r.Opcode != m.Opcode || r.RecursionDesired != m.RecursionDesired {
		t.Errorf("answer of %v has the header %v", m.MsgHdr, r.MsgHdr)
	}
	return r
}

func questionFor(name string, qtype uint16) *dns.Msg {
	m := new(dns.Msg)
	return m.SetQuestion(name, qtype)
}

func TestWhatIsRefused(t *testing.T) {
	s := newTestServer(t, nil)
	for name, c := range map[string]struct {
		change func(m *dns.Msg)
		rcode  int
	}{
		"notify":        {func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, dns.RcodeNotImplemented},
		"update":        {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		"no question":   {func(m *dns.Msg) { m.Question = nil }, dns.RcodeFormatError},
		"two questions": {func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, dns.RcodeFormatError},
		"class CH":      {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		"AXFR":          {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }, dns.RcodeRefused},
		"IXFR":          {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeIXFR }, dns.RcodeRefused},
		"TSIG":          {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTSIG }, dns.RcodeRefused},
		"EDNS 1":        {func(m *dns.Msg) { m.SetEdns0(1232, false).IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
		"not recursive": {func(m *dns.Msg) { m.RecursionDesired, m.Question[0].Name = false, "example.org." }, dns.RcodeRefused},
	} {
		m := questionFor("web.shop.svc.cluster.local.", dns.TypeA)
		c.change(m)
		r := s.ask(t, m, false)
		if r == nil || r.Rcode != c.rcode || len(r.Answer) != 0 {
			t.Errorf("%s: %v", name, r)
		}
	}
	r := s.ask(t, questionFor("web.shop.svc.cluster.local.", dns.TypeANY), false)
	if hinfo, ok := r.Answer[0].(*dns.HINFO); r.Rcode != dns.RcodeSuccess || len(r.Answer) != 1 || !ok || hinfo.Cpu != "RFC8482" {
		t.Errorf("ANY: %v", r)
	}
}

func TestWhatIsDropped(t *testing.T) {
	s := newTestServer(t, nil)
	m := questionFor("web.shop.svc.cluster.local.", dns.TypeA)
	good, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	m.Response = true
	response, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	packets := [][]byte{nil, []byte("x"), good[:11], good[:len(good)-1], response}
	for i, packet := range packets {
		if o := s.handle(packet, false); o.out != nil || o.later != nil {
			t.Errorf("packet %d: answered", i)
		}
	}
	if got := testutil.ToFloat64(s.metrics.dropped.WithLabelValues(dropMalformed)); got != float64(len(packets)) {
		t.Errorf("%v dropped packets are counted of %d", got, len(packets))
	}
}

func TestAnswerKeepsTheCaseOfTheQuestion(t *testing.T) {
	s := newTestServer(t, nil)
	const name = "wEb.ShOp.SVC.cluster.LOCAL."
	r := s.ask(t, questionFor(name, dns.TypeA), false)
	if !r.Authoritative || !r.RecursionAvailable || r.Question[0].Name != name || len(r.Answer) != 1 || r.Answer[0].Header().Name != name {
		t.Error(r)
	}
}

func TestNoHasItsTime(t *testing.T) {
	s := newTestServer(t, nil)
	for name, rcode := range map[string]int{"web.shop.svc.cluster.local.": dns.RcodeSuccess, "none.shop.svc.cluster.local.": dns.RcodeNameError, "1.1.43.10.in-addr.arpa.": dns.RcodeNameError} {
		r := s.ask(t, questionFor(name, dns.TypeAAAA), false)
		if r.Rcode != rcode || len(r.Ns) != 1 || len(r.Answer) != 0 {
			t.Fatal(r)
		}
		if soa := soaOf(r); soa == nil || soa.Minttl != ttl || soa.Hdr.Ttl != ttl {
			t.Error(r)
		}
	}
}

func TestUnknownNamesFailUntilAllAreKnown(t *testing.T) {
	s := newTestServer(t, nil)
	s.synced.Store(false)
	for name, want := range map[string]int{
		"web.shop.svc.cluster.local.":  dns.RcodeSuccess,
		"soon.shop.svc.cluster.local.": dns.RcodeServerFailure,
		"web.soon.svc.cluster.local.":  dns.RcodeServerFailure,
		"1.1.43.10.in-addr.arpa.":      dns.RcodeServerFailure,
		"wrong.cluster.local.":         dns.RcodeNameError, // whatever Services there are
	} {
		if r := s.ask(t, questionFor(name, dns.TypeA), false); r.Rcode != want {
			t.Errorf("%s: %s", name, dns.RcodeToString[r.Rcode])
		}
	}
}

// An answer is never longer than the asker can take; what does not fit is marked.
func TestAnswersFit(t *testing.T) {
	s := newTestServer(t, nil)
	s.SetService(clusterIP("shop", "big", "None"))
	for part := range 20 {
		var endpoints []discoveryv1.Endpoint
		for i := range 100 {
			endpoints = append(endpoints, ready(fmt.Sprintf("10.42.%d.%d", 10+part, i), ""))
		}
		s.SetSlice(endpointSlice("shop", fmt.Sprint("big-", part), "big", []discoveryv1.EndpointPort{{Name: ptr("p"), Port: ptr[int32](1)}}, endpoints...))
	}
	for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV} {
		for _, c := range []struct {
			edns  uint16
			tcp   bool
			limit int
		}{{0, false, 512}, {100, false, 512}, {600, false, 600}, {4096, false, payload}, {0, true, dns.MaxMsgSize}, {1232, true, dns.MaxMsgSize}} {
			m := questionFor("big.shop.svc.cluster.local.", qtype)
			if c.edns > 0 {
				m.SetEdns0(c.edns, true)
			}
			packet, err := m.Pack()
			if err != nil {
				t.Fatal(err)
			}
			out := s.handle(packet, c.tcp).out
			r := new(dns.Msg)
			if err := r.Unpack(out); err != nil {
				t.Fatal(err)
			}
			all := len(r.Answer) == 2000
			if len(out) > c.limit || r.Truncated == all || len(r.Answer) == 0 || (qtype == dns.TypeA && c.tcp) != all {
				t.Errorf("%+v: %d bytes, %d records, truncated %v", c, len(out), len(r.Answer), r.Truncated)
			}
			if opt := r.IsEdns0(); (opt != nil) != (c.edns > 0) || opt != nil && (!opt.Do() || opt.UDPSize() != payload) {
				t.Errorf("%+v: %v", c, opt)
			}
		}
	}
	// What is only convenient is left out without a mark.
	s.SetService(clusterIP("shop", "some", "None"))
	var endpoints []discoveryv1.Endpoint
	for i := range 7 {
		endpoints = append(endpoints, ready(fmt.Sprintf("10.42.50.%d", i), ""))
	}
	s.SetSlice(endpointSlice("shop", "some-1", "some", []discoveryv1.EndpointPort{{Name: ptr("p"), Port: ptr[int32](1)}}, endpoints...))
	r := s.ask(t, questionFor("_p._tcp.some.shop.svc.cluster.local.", dns.TypeSRV), false)
	if r.Truncated || len(r.Answer) != 7 || len(r.Extra) != 0 {
		t.Error(r)
	}
}

func TestHeadlessAnswersAreSpread(t *testing.T) {
	s := newTestServer(t, nil)
	first := map[string]int{}
	for range 200 {
		r := s.ask(t, questionFor("db.shop.svc.cluster.local.", dns.TypeA), false)
		first[r.Answer[0].(*dns.A).A.String()]++
	}
	if len(first) != 3 {
		t.Errorf("first addresses: %v", first)
	}
}

// script is a resolver that knows some names.
func script(records map[string]string) exchange {
	return func(_ context.Context, _ string, _ *upstream, m *dns.Msg) (*dns.Msg, error) {
		r := new(dns.Msg).SetReply(m)
		text, ok := records[strings.ToLower(m.Question[0].Name)+" "+dns.TypeToString[m.Question[0].Qtype]]
		if !ok {
			r.Rcode = dns.RcodeNameError
			r.Ns = []dns.RR{rrOf(". 86400 IN SOA a. b. 1 2 3 4 60")}
			return r, nil
		}
		for line := range strings.Lines(text) {
			r.Answer = append(r.Answer, rrOf(line))
		}
		return r, nil
	}
}

func rrOf(text string) dns.RR {
	rr, err := dns.NewRR(text)
	if err != nil {
		panic(err)
	}
	return rr
}

func TestExternalNames(t *testing.T) {
	s := newTestServer(t, script(map[string]string{"www.example.org. A": "www.example.org. 60 IN A 192.0.2.80"}))
	for _, c := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{"out.shop.svc.cluster.local.", dns.TypeA, "NOERROR CNAME www.example.org., A 192.0.2.80"},
		{"out.shop.svc.cluster.local.", dns.TypeAAAA, "NXDOMAIN CNAME www.example.org."},
		{"out.shop.svc.cluster.local.", dns.TypeCNAME, "NOERROR CNAME www.example.org."},
		{"in.shop.svc.cluster.local.", dns.TypeA, "NOERROR CNAME web.shop.svc.cluster.local., A 10.43.0.7"},
		{"in.shop.svc.cluster.local.", dns.TypeAAAA, "NOERROR CNAME web.shop.svc.cluster.local."},
		{"inner.shop.svc.cluster.local.", dns.TypeA, "NOERROR CNAME in.shop.svc.cluster.local., CNAME web.shop.svc.cluster.local., A 10.43.0.7"},
		{"circle.shop.svc.cluster.local.", dns.TypeA, "SERVFAIL "},
	} {
		r := s.ask(t, questionFor(c.name, c.qtype), false)
		var parts []string
		for _, rr := range r.Answer {
			parts = append(parts, dns.TypeToString[rr.Header().Rrtype]+" "+strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
		if got := dns.RcodeToString[r.Rcode] + " " + strings.Join(parts, ", "); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.name, dns.TypeToString[c.qtype], got, c.want)
		}
	}
}

func TestStrangersAreThoseFromElsewhere(t *testing.T) {
	s := newTestServer(t, nil)
	for text, want := range map[string]bool{"127.0.0.1": false, "127.3.3.3": false, "10.42.7.7": false, "::1": false, "10.43.0.1": true, "192.0.2.7": true, "169.254.1.1": true} {
		if got := s.stranger(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is a stranger: %v", text, got)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{{Domain: "", Address: netip.MustParseAddrPort("127.0.0.1:1")}, {Domain: "a..b", Address: netip.MustParseAddrPort("127.0.0.1:1")}, {Domain: "cluster.local"}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

// FuzzHandle gives any packet to the handler: it answers with something that can
// be read, to the very question, within the bounds, or not at all.
func FuzzHandle(f *testing.F) {
	s := newTestServer(f, script(map[string]string{"www.example.org. A": "www.example.org. 60 IN A 192.0.2.80"}))
	s.cfg.Now = time.Now
	for _, name := range []string{"web.shop.svc.cluster.local.", "out.shop.svc.cluster.local.", "www.example.org.", "7.0.43.10.in-addr.arpa.", ".", `a\.b\000.cluster.local.`} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypePTR, dns.TypeANY, dns.TypeAXFR} {
			m := questionFor(name, qtype)
			for _, edns := range []bool{false, true} {
				if edns {
					m.SetEdns0(700, true)
				}
				packet, err := m.Pack()
				if err != nil {
					f.Fatal(err)
				}
				f.Add(packet, edns)
			}
		}
	}
	f.Fuzz(func(t *testing.T, packet []byte, tcp bool) {
		before := slices.Clone(packet)
		panics := testutil.ToFloat64(s.metrics.dropped.WithLabelValues(dropPanic))
		o := s.handle(packet, tcp)
		if o.later != nil {
			o.out = o.later(t.Context())
		}
		if !slices.Equal(packet, before) {
			t.Error("the packet was changed")
		}
		if testutil.ToFloat64(s.metrics.dropped.WithLabelValues(dropPanic)) != panics {
			t.Error("panic")
		}
		if o.out == nil {
			return
		}
		var in, out dns.Msg
		if err := in.Unpack(packet); err != nil {
			t.Fatalf("an answer to what cannot be read: %v", err)
		}
		if err := out.Unpack(o.out); err != nil {
			t.Fatalf("an answer that cannot be read: %v", err)
		}
		if out.Id != in.Id || !out.Response || len(in.Question) == 1 && (len(out.Question) != 1 || out.Question[0] != in.Question[0]) {
			t.Errorf("%v answered by %v", in, out)
		}
		if limit := max(512, payload); !tcp && len(o.out) > limit {
			t.Errorf("%d bytes by UDP", len(o.out))
		}
	})
}
