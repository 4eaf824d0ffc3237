package dns

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// upstream is one resolver of the node.
type upstream struct {
	addr   netip.AddrPort
	probe  string       // the name that is asked for to see whether it asks us
	seen   atomic.Bool  // we were asked for it
	loops  atomic.Bool  // it asks us: it is not asked
	until  atomic.Int64 // Unix nanoseconds until which it is asked last; 0: it answers
	probed atomic.Bool  // answered the probe since it last failed
}

// probeDomain is nobody's; whoever is asked says so at once.
const probeDomain = ".headway-loop-probe.arpa."

func newUpstream(addr netip.AddrPort) *upstream {
	return &upstream{addr: addr, probe: strings.ToLower(rand.Text()) + probeDomain}
}

func (u *upstream) failed(now time.Time) {
	u.until.Store(now.Add(avoided).UnixNano())
	u.probed.Store(false) // perhaps since it asks us
}

func (u *upstream) answered() { u.until.Store(0) }

// order of the resolvers to ask: as the node has them, those last that have just
// failed, without those that ask us.
func (f *forwarder) order() []*upstream {
	all := f.upstreams.Load()
	if all == nil {
		return nil
	}
	now := f.now().UnixNano()
	var good, bad []*upstream
	for _, u := range *all {
		switch {
		case u.loops.Load():
		case u.until.Load() > now:
			bad = append(bad, u)
		default:
			good = append(good, u)
		}
	}
	return append(good, bad...)
}

// use makes these the resolvers to ask, and reports whether they are others than
// before. One that stays keeps what is known of it.
func (f *forwarder) use(addrs []netip.AddrPort) bool {
	var old []*upstream
	if all := f.upstreams.Load(); all != nil {
		old = *all
	}
	next := make([]*upstream, 0, len(addrs))
	for _, addr := range addrs {
		at := slices.IndexFunc(old, func(u *upstream) bool { return u.addr == addr })
		if at >= 0 {
			next = append(next, old[at])
		} else {
			next = append(next, newUpstream(addr))
		}
	}
	if f.upstreams.Load() != nil && slices.Equal(old, next) {
		return false
	}
	f.upstreams.Store(&next)
	return true
}

// probe finds out which resolvers ask us in their turn: those that are new, those
// that have failed since, and those that did before.
func (f *forwarder) probe(ctx context.Context) {
	all := f.upstreams.Load()
	if all == nil {
		return
	}
	for _, u := range *all {
		if u.probed.Load() && !u.loops.Load() {
			continue
		}
		u.seen.Store(false)
		m := new(dns.Msg)
		m.SetQuestion(u.probe, dns.TypeHINFO)
		_, err := f.once(ctx, "udp", u, m)
		if ctx.Err() != nil {
			return
		}
		u.probed.Store(err == nil) // what the answer says tells nothing
		if u.seen.Load() {
			if !u.loops.Swap(true) {
				f.log.Error("a resolver of the node asks this cluster's DNS, which would ask it: it is left out; take our address out of its configuration", "resolver", u.addr)
			}
			continue
		}
		if err == nil && u.loops.Swap(false) {
			f.log.Info("a resolver of the node no longer asks us", "resolver", u.addr)
		}
	}
}

// returned notes that a question is one of our own that came back. Another
// cluster's is passed on like any question, so that it finds out.
func (f *forwarder) returned(name string) bool {
	if !strings.HasSuffix(name, probeDomain) {
		return false
	}
	if all := f.upstreams.Load(); all != nil {
		for _, u := range *all {
			if u.probe == name {
				u.seen.Store(true)
				return true
			}
		}
	}
	return false
}

// exchangeOverNetwork is the exchange of production: a socket, and so a port that
// cannot be guessed, for each question.
func exchangeOverNetwork(ctx context.Context, network string, to *upstream, m *dns.Msg) (*dns.Msg, error) {
	client := dns.Client{Net: network, UDPSize: payload}
	conn, err := client.DialContext(ctx, to.addr.String())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r, _, err := client.ExchangeWithConnContext(ctx, m, conn)
	if err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	return r, nil
}
