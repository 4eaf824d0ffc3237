package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
)

const (
	// patience is for one try at one resolver. With budget, the asker hears of a
	// failure before its own patience ends, which is 5 s in glibc and in musl.
	patience = 1500 * time.Millisecond
	budget   = 4500 * time.Millisecond
	rounds   = 2 // tries at each resolver
	// avoided is for how long a resolver that failed is asked last.
	avoided = 10 * time.Second
	// payload is the size of messages by UDP that needs no fragments anywhere.
	payload = 1232
)

var (
	errNobody = errors.New("the node has no resolver to ask")
	errAll    = errors.New("no resolver of the node answered")
)

// exchange sends a message to a resolver and returns the answer to it.
type exchange func(ctx context.Context, network string, to *upstream, m *dns.Msg) (*dns.Msg, error)

// forwarder asks the node's resolvers.
type forwarder struct {
	exchange  exchange
	upstreams atomic.Pointer[[]*upstream]
	cache     *cache
	flights   singleflight.Group
	now       func() time.Time
	log       *slog.Logger
	metrics   *metrics
	silent    atomic.Bool // nobody answered last time
}

// ask returns an answer that is the caller's own, from the cache or from a
// resolver. ctx is the server's: who asked first does not decide for the others.
func (f *forwarder) ask(ctx context.Context, q question, asked string) (m *dns.Msg, fromCache bool, err error) {
	if k, ok := f.cache.get(q, f.now()); ok {
		m, err := k.message(f.now())
		return m, true, err
	}
	v, err, _ := f.flights.Do(q.String(), func() (any, error) {
		k, err := f.fetch(ctx, q, asked)
		return k, err
	})
	if err != nil {
		return nil, false, err
	}
	m, err = v.(kept).message(f.now())
	return m, false, err
}

// fetch asks, and keeps the answer.
func (f *forwarder) fetch(ctx context.Context, q question, asked string) (kept, error) {
	if k, ok := f.cache.get(q, f.now()); ok { // from the flight just before
		return k, nil
	}
	m, err := f.resolve(ctx, q, asked)
	if ctx.Err() != nil {
		return kept{}, ctx.Err()
	}
	if err != nil {
		f.complain(err)
		m = new(dns.Msg)
		m.SetQuestion(asked, q.qtype)
		m.Response, m.Rcode = true, dns.RcodeServerFailure
	} else if f.silent.CompareAndSwap(true, false) {
		f.log.Info("the node's resolvers answer again")
	}
	m.Compress = true
	wire, err := m.Pack()
	if err != nil {
		return kept{}, fmt.Errorf("pack the answer of a resolver: %w", err)
	}
	now := f.now()
	k := kept{wire: wire, at: now, until: now.Add(lifetime(m))}
	f.cache.put(q, k)
	return k, nil
}

func (f *forwarder) complain(err error) {
	if f.silent.CompareAndSwap(false, true) {
		f.log.Warn("names outside of the cluster cannot be resolved", "error", err)
	}
}

// resolve asks the resolvers in their order until one knows, those last that have
// just failed. The case of the name stays as it was asked.
func (f *forwarder) resolve(ctx context.Context, q question, asked string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	order := f.order()
	if len(order) == 0 {
		return nil, errNobody
	}
	var refusal *dns.Msg
	errs := []error{errAll}
	for range rounds {
		for _, u := range order {
			m, err := f.try(ctx, u, request(q, asked))
			if ctx.Err() != nil && err != nil {
				if refusal != nil {
					return refusal, nil
				}
				return nil, errors.Join(append(errs, err)...)
			}
			switch {
			case err != nil:
				errs = append(errs, err)
				u.failed(f.now())
			case m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError:
				u.answered()
				return m, nil
			default: // it answers, though not this; perhaps another one knows
				u.answered()
				refusal = m
			}
		}
		if refusal != nil {
			return refusal, nil
		}
	}
	return nil, errors.Join(errs...)
}

func request(q question, asked string) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(asked, q.qtype)
	m.CheckingDisabled, m.AuthenticatedData = q.cd, q.ad
	m.SetEdns0(payload, q.do)
	return m
}

// try asks one resolver: by UDP, by TCP when the answer did not fit, and without
// EDNS when it does not know that.
func (f *forwarder) try(ctx context.Context, u *upstream, m *dns.Msg) (*dns.Msg, error) {
	r, err := f.once(ctx, "udp", u, m)
	if err == nil && r.Rcode == dns.RcodeFormatError && r.IsEdns0() == nil {
		m.Extra = nil
		r, err = f.once(ctx, "udp", u, m)
	}
	if err == nil && r.Truncated {
		r, err = f.once(ctx, "tcp", u, m)
	}
	return r, err
}

func (f *forwarder) once(ctx context.Context, network string, u *upstream, m *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := f.exchange(ctx, network, u, m)
	if err == nil {
		err = check(m, r, network)
	}
	if err != nil {
		f.metrics.failures.Inc()
		return nil, fmt.Errorf("ask %s by %s: %w", u.addr, network, err)
	}
	r.Extra = withoutOPT(r)
	return r, nil
}

// check refuses what is no answer to a question.
func check(m, r *dns.Msg, network string) error {
	switch {
	case !r.Response || r.Id != m.Id || r.Opcode != dns.OpcodeQuery:
		return errors.New("what came is no answer")
	case len(r.Question) != 1 && r.Rcode == dns.RcodeFormatError:
		r.Question = m.Question // a server that could not read it
		return nil
	case len(r.Question) != 1 || r.Question[0].Qtype != m.Question[0].Qtype ||
		r.Question[0].Qclass != m.Question[0].Qclass || !strings.EqualFold(r.Question[0].Name, m.Question[0].Name):
		return errors.New("the answer is to another question")
	case r.Truncated && network == "tcp":
		return errors.New("the answer is cut short by TCP, too")
	}
	r.Question = m.Question
	return nil
}

func withoutOPT(m *dns.Msg) []dns.RR {
	var out []dns.RR
	for _, rr := range m.Extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			out = append(out, rr)
		}
	}
	return out
}
