package dns

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	cfg := Config{Domain: "cluster.local", Address: netip.MustParseAddrPort("127.0.0.1:53"), Metrics: registry}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shop(s.names)
	s.Synced()
	s.forward.exchange = script(map[string]string{"www.example.org. A": www})
	s.forward.use([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")})
	for _, name := range []string{"web.shop.svc.cluster.local.", "absent.shop.svc.cluster.local.", "www.example.org.", "www.example.org."} {
		s.ask(t, questionFor(name, dns.TypeA), false)
	}
	s.handle([]byte("x"), false)
	const want = `
# HELP headway_dns_answers_total Questions answered, by where the answer came from and its code.
# TYPE headway_dns_answers_total counter
headway_dns_answers_total{rcode="NOERROR",source="cache"} 1
headway_dns_answers_total{rcode="NOERROR",source="cluster"} 1
headway_dns_answers_total{rcode="NOERROR",source="upstream"} 1
headway_dns_answers_total{rcode="NXDOMAIN",source="cluster"} 1
# HELP headway_dns_cache_entries Answers of others that are kept.
# TYPE headway_dns_cache_entries gauge
headway_dns_cache_entries 1
# HELP headway_dns_dropped_total Packets and connections without an answer, by reason.
# TYPE headway_dns_dropped_total counter
headway_dns_dropped_total{reason="malformed"} 1
# HELP headway_dns_services Services with a name.
# TYPE headway_dns_services gauge
headway_dns_services 11
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "headway_dns_answers_total", "headway_dns_cache_entries", "headway_dns_dropped_total", "headway_dns_services"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	if _, err := New(cfg); err == nil {
		t.Error("the same metrics twice: no error")
	}
}

// What one asker has under way leaves room for the others.
func TestOneAskerCannotTakeAll(t *testing.T) {
	l := newLimit(10, 4)
	greedy, other := netip.MustParseAddr("10.42.0.1"), netip.MustParseAddr("10.42.0.2")
	taken := 0
	for range 20 {
		if l.take(greedy) {
			taken++
		}
	}
	if taken != 4 || !l.take(other) {
		t.Errorf("%d taken", taken)
	}
	for n := range byte(20) {
		l.take(netip.AddrFrom4([4]byte{10, 42, 1, n}))
	}
	if l.size() != 10 || l.take(netip.MustParseAddr("10.42.0.3")) {
		t.Errorf("%d of 10 taken", l.size())
	}
	for range 4 {
		l.give(greedy)
	}
	l.give(other)
	if l.size() != 5 || !l.take(greedy) {
		t.Errorf("%d are left", l.size())
	}
}
