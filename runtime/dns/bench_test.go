package dns

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// BenchmarkAnswers asks over UDP on loopback, with 10,000 Services there, from as
// many clients as questions may be under way, and prints answers per second and the
// time that 99 of 100 stay below.
func BenchmarkAnswers(b *testing.B) {
	s, at := startServer(b, netip.MustParseAddrPort("127.0.0.1:0"))
	many(s.names, 10000)
	for _, c := range []struct {
		name, question string
		clients        int
	}{
		{"cluster", "service-%d.ns-%d.svc.cluster.local.", 1},
		{"cluster", "service-%d.ns-%d.svc.cluster.local.", 16},
		{"absent", "absent-%d.ns-%d.svc.cluster.local.", 16},
		{"cached", "www.example.org.", 16},
	} {
		b.Run(fmt.Sprintf("%s/clients=%d", c.name, c.clients), func(b *testing.B) {
			times := make([][]time.Duration, c.clients)
			var wg sync.WaitGroup
			b.ResetTimer()
			for client := range c.clients {
				wg.Go(func() {
					conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
					if err != nil {
						b.Error(err)
						return
					}
					defer conn.Close()
					buf := make([]byte, payload)
					for i := client; i < b.N; i += c.clients {
						n := i * 7919 % 10000
						name := c.question
						if c.name != "cached" {
							name = fmt.Sprintf(c.question, n, n%100)
						}
						packet, err := questionFor(name, dns.TypeA).Pack()
						if err != nil {
							b.Error(err)
							return
						}
						begin := time.Now()
						if _, err := conn.Write(packet); err != nil {
							b.Error(err)
							return
						}
						if _, err := conn.Read(buf); err != nil {
							b.Error(err)
							return
						}
						times[client] = append(times[client], time.Since(begin))
					}
				})
			}
			wg.Wait()
			all := slices.Concat(times...)
			slices.Sort(all)
			b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "answers/s")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
		})
	}
}

// BenchmarkHandle is what one answer costs without the network.
func BenchmarkHandle(b *testing.B) {
	s := newTestServer(b, nil)
	many(s.names, 10000)
	packet, err := questionFor("service-77.ns-77.svc.cluster.local.", dns.TypeA).Pack()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if s.handle(packet, false).out == nil {
			b.Fatal("no answer")
		}
	}
}
