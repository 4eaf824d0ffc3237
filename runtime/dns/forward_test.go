package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// resolvers are upstreams of a test: what each does, by its address, and what it
// was asked.
type resolvers struct {
	mu    sync.Mutex
	do    map[string]func(ctx context.Context, network string, m *dns.Msg) (*dns.Msg, error)
	asked []string // address, network, question
}

func (r *resolvers) exchange(ctx context.Context, network string, to *upstream, m *dns.Msg) (*dns.Msg, error) {
	at := to.addr.Addr().String()
	r.mu.Lock()
	do := r.do[at]
	r.asked = append(r.asked, fmt.Sprint(at, " ", network, " ", m.Question[0].Name))
	r.mu.Unlock()
	return do(ctx, network, m)
}

func (r *resolvers) calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.asked
	r.asked = nil
	return out
}

func replies(records ...string) func(context.Context, string, *dns.Msg) (*dns.Msg, error) {
	return func(_ context.Context, _ string, m *dns.Msg) (*dns.Msg, error) {
		r := new(dns.Msg).SetReply(m)
		for _, text := range records {
			if rr := rrOf(text); rr.Header().Rrtype == dns.TypeSOA {
				r.Ns = append(r.Ns, rr)
			} else {
				r.Answer = append(r.Answer, rr)
			}
		}
		return r, nil
	}
}

func code(rcode int, records ...string) func(context.Context, string, *dns.Msg) (*dns.Msg, error) {
	return func(ctx context.Context, network string, m *dns.Msg) (*dns.Msg, error) {
		r, err := replies(records...)(ctx, network, m)
		r.Rcode = rcode
		return r, err
	}
}

func silent(ctx context.Context, _ string, _ *dns.Msg) (*dns.Msg, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func refused(context.Context, string, *dns.Msg) (*dns.Msg, error) {
	return nil, errors.New("connection refused")
}

const (
	first  = "192.0.2.1"
	second = "192.0.2.2"
	www    = "www.example.org. 60 IN A 192.0.2.80"
)

// newForward is a server that asks first and second.
func newForward(t *testing.T, one, two func(context.Context, string, *dns.Msg) (*dns.Msg, error)) (*Server, *resolvers) {
	r := &resolvers{do: map[string]func(context.Context, string, *dns.Msg) (*dns.Msg, error){first: one, second: two}}
	return newTestServer(t, r.exchange), r
}

func wants(t *testing.T, r *resolvers, want ...string) {
	t.Helper()
	if got := r.calls(); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("asked %q, want %q", got, want)
	}
}

func TestResolversAreAskedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newForward(t, silent, replies(www))
		begin := time.Now()
		m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
		if len(m.Answer) != 1 || m.Authoritative || time.Since(begin) != patience {
			t.Errorf("after %v: %v", time.Since(begin), m)
		}
		wants(t, r, first+" udp www.example.org.", second+" udp www.example.org.")
		// The one that failed is asked last for a while, then first again.
		s.ask(t, questionFor("b.example.org.", dns.TypeA), false)
		wants(t, r, second+" udp b.example.org.")
		time.Sleep(avoided)
		r.do[first] = replies(www)
		s.ask(t, questionFor("c.example.org.", dns.TypeA), false)
		wants(t, r, first+" udp c.example.org.")
	})
}

func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newForward(t, silent, silent)
		begin := time.Now()
		m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
		if m.Rcode != dns.RcodeServerFailure || time.Since(begin) != budget {
			t.Errorf("after %v: %v", time.Since(begin), m)
		}
		r.calls()
		// The failure is kept for a moment, so a storm of questions ends here.
		s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
		wants(t, r)
		time.Sleep(failureTTL)
		r.do[first] = replies(www)
		r.do[second] = replies(www)
		if m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false); len(m.Answer) != 1 {
			t.Error(m)
		}
	})
}

func TestNoResolver(t *testing.T) {
	s, r := newForward(t, refused, refused)
	s.forward.use(nil)
	if m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false); m.Rcode != dns.RcodeServerFailure {
		t.Error(m)
	}
	wants(t, r)
	if m := s.ask(t, questionFor("web.shop.svc.cluster.local.", dns.TypeA), false); len(m.Answer) != 1 {
		t.Errorf("the cluster's names need no resolver: %v", m)
	}
}

func TestAnotherResolverMayKnow(t *testing.T) {
	s, r := newForward(t, code(dns.RcodeServerFailure), replies(www))
	if m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false); len(m.Answer) != 1 {
		t.Error(m)
	}
	wants(t, r, first+" udp www.example.org.", second+" udp www.example.org.")

	s, r = newForward(t, code(dns.RcodeRefused), code(dns.RcodeRefused))
	if m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false); m.Rcode != dns.RcodeRefused {
		t.Error(m)
	}
	wants(t, r, first+" udp www.example.org.", second+" udp www.example.org.") // one round: they answer

	s, r = newForward(t, code(dns.RcodeNameError), replies(www))
	if m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false); m.Rcode != dns.RcodeNameError {
		t.Error(m)
	}
	wants(t, r, first+" udp www.example.org.") // a no is an answer
}

func TestAnswersThatAreNone(t *testing.T) {
	wrong := func(change func(m *dns.Msg)) func(context.Context, string, *dns.Msg) (*dns.Msg, error) {
		return func(ctx context.Context, network string, m *dns.Msg) (*dns.Msg, error) {
			r, err := replies("www.example.org. 60 IN A 203.0.113.66")(ctx, network, m)
			r.Question = []dns.Question{m.Question[0]}
			change(r)
			return r, err
		}
	}
	for name, change := range map[string]func(m *dns.Msg){
		"another id":       func(m *dns.Msg) { m.Id++ },
		"a question":       func(m *dns.Msg) { m.Response = false },
		"another name":     func(m *dns.Msg) { m.Question[0].Name = "www.example.com." },
		"another type":     func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		"no question":      func(m *dns.Msg) { m.Question = nil },
		"another opcode":   func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify },
		"two questions":    func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		"truncated by TCP": func(m *dns.Msg) { m.Truncated = true },
	} {
		s, _ := newForward(t, wrong(change), replies(www))
		m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
		if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "192.0.2.80" {
			t.Errorf("%s: %v", name, m)
		}
	}
	// A server need not keep the case; the asker gets its own.
	s, _ := newForward(t, wrong(func(m *dns.Msg) {
		m.Question[0].Name = "www.example.org."
	}), refused)
	m := s.ask(t, questionFor("WWW.example.ORG.", dns.TypeA), false)
	if m.Question[0].Name != "WWW.example.ORG." || len(m.Answer) != 1 || m.Answer[0].Header().Name != "WWW.example.ORG." {
		t.Error(m)
	}
}

func TestWhatAResolverIsAsked(t *testing.T) {
	var got *dns.Msg
	s, _ := newForward(t, func(ctx context.Context, network string, m *dns.Msg) (*dns.Msg, error) {
		got = m.Copy()
		return replies("wWw.example.org. 60 IN A 192.0.2.80", "www.example.org. 60 IN RRSIG A 8 3 60 20300101000000 20200101000000 1 example.org. AAAA")(ctx, network, m)
	}, refused)
	m := questionFor("wWw.example.org.", dns.TypeA)
	m.CheckingDisabled, m.AuthenticatedData = true, true
	m.SetEdns0(4096, true)
	m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "24a5ac1200000000"})
	r := s.ask(t, m, false)
	opt := got.IsEdns0()
	if got.Question[0].Name != "wWw.example.org." || !got.RecursionDesired || !got.CheckingDisabled || !got.AuthenticatedData ||
		opt == nil || !opt.Do() || opt.UDPSize() != payload || len(opt.Option) != 0 {
		t.Errorf("asked %v", got)
	}
	if len(r.Answer) != 2 || r.IsEdns0() == nil || !r.IsEdns0().Do() || !r.CheckingDisabled {
		t.Error(r)
	}
	// Answers with and without DNSSEC are not mixed up.
	s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
	if got.IsEdns0().Do() || got.CheckingDisabled {
		t.Errorf("asked %v", got)
	}
}

func TestTruncatedAndOldResolvers(t *testing.T) {
	s, r := newForward(t, func(ctx context.Context, network string, m *dns.Msg) (*dns.Msg, error) {
		if network == "udp" {
			return &dns.Msg{MsgHdr: dns.MsgHdr{Id: m.Id, Response: true, Truncated: true}, Question: m.Question}, nil
		}
		return replies(www)(ctx, network, m)
	}, refused)
	if m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false); len(m.Answer) != 1 || m.Truncated {
		t.Error(m)
	}
	wants(t, r, first+" udp www.example.org.", first+" tcp www.example.org.")

	s, r = newForward(t, func(ctx context.Context, network string, m *dns.Msg) (*dns.Msg, error) {
		if m.IsEdns0() != nil {
			return &dns.Msg{MsgHdr: dns.MsgHdr{Id: m.Id, Response: true, Rcode: dns.RcodeFormatError}}, nil
		}
		return replies(www)(ctx, network, m)
	}, refused)
	if m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false); len(m.Answer) != 1 {
		t.Error(m)
	}
	wants(t, r, first+" udp www.example.org.", first+" udp www.example.org.")
}

// Many who ask the same at once: one question, and an answer for each.
func TestOneFlightForAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newForward(t, func(ctx context.Context, network string, m *dns.Msg) (*dns.Msg, error) {
			time.Sleep(100 * time.Millisecond)
			return replies(www)(ctx, network, m)
		}, refused)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				name := []string{"www.example.org.", "WWW.example.org."}[i%2]
				if m := s.ask(t, questionFor(name, dns.TypeA), false); len(m.Answer) != 1 || m.Question[0].Name != name || m.Answer[0].Header().Name != name {
					t.Error(m)
				}
			})
		}
		wg.Wait()
		if calls := r.calls(); len(calls) != 1 {
			t.Errorf("asked %q", calls)
		}
	})
}

// A resolver that asks us, directly or over others, is found out and left out.
func TestLoopsAreRefused(t *testing.T) {
	var s *Server
	loop := func(ctx context.Context, network string, m *dns.Msg) (*dns.Msg, error) {
		if r := s.ask(t, m, false); r != nil {
			return r, nil
		}
		return nil, errors.New("nothing came")
	}
	s, r := newForward(t, loop, replies(www))
	s.forward.probe(t.Context())
	r.calls()
	s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
	wants(t, r, second+" udp www.example.org.")
	// Not asked again for as long as nothing has changed; used again when it has.
	r.do[first] = replies(www)
	s.forward.probe(t.Context())
	if calls := r.calls(); len(calls) != 1 || !strings.HasPrefix(calls[0], first) {
		t.Errorf("probed %q", calls)
	}
	s.ask(t, questionFor("b.example.org.", dns.TypeA), false)
	wants(t, r, first+" udp b.example.org.")
	s.forward.probe(t.Context())
	wants(t, r)
}

// Even before it is found out, a loop asks once: the question that comes back
// waits for itself and ends with the patience.
func TestALoopEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Server
		loop := func(ctx context.Context, network string, m *dns.Msg) (*dns.Msg, error) {
			answer := make(chan *dns.Msg, 1)
			go func() { answer <- s.ask(t, m, false) }()
			select {
			case r := <-answer:
				return r, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		s, r := newForward(t, loop, refused)
		if m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false); m.Rcode != dns.RcodeServerFailure {
			t.Error(m)
		}
		if calls := r.calls(); len(calls) > 2*rounds {
			t.Errorf("asked %d times", len(calls))
		}
		s.forward.probe(t.Context())
		if !(*s.forward.upstreams.Load())[0].loops.Load() {
			t.Error("the loop is not found out after it failed")
		}
		synctest.Wait()
	})
}

func TestResolversThatStayAreRemembered(t *testing.T) {
	f := &forwarder{now: time.Now}
	at := func(texts ...string) (out []netip.AddrPort) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddrPort(text+":53"))
		}
		return out
	}
	if !f.use(at(first)) || f.use(at(first)) {
		t.Error("a change is not what is reported")
	}
	old := (*f.upstreams.Load())[0]
	old.loops.Store(true)
	if !f.use(at(second, first)) || (*f.upstreams.Load())[1] != old || len(f.order()) != 1 {
		t.Error("what was known of a resolver is forgotten")
	}
}
