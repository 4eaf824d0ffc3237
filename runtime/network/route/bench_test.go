package route

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"
)

// fill tells of n Services with three endpoints each.
func fill(b *testing.B, r *Router, n int) {
	b.Helper()
	for i := range n {
		name := fmt.Sprint("s", i)
		r.SetService(testService(name, fmt.Sprintf("10.43.%d.%d", i>>8, i&255)))
		at := func(k int) string { return fmt.Sprintf("10.42.%d.%d", (3*i+k)>>8, (3*i+k)&255) }
		r.SetSlice(testSlice(name, 8080, ready(at(0)), ready(at(1)), ready(at(2))))
	}
	if err := r.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// One endpoint of one Service goes or comes, until the kernel routes by it.
func BenchmarkEndpointChange(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			l := newLab(b)
			fill(b, l.r, n)
			without := testSlice("s7", 8080, ready("10.42.200.1"), ready("10.42.200.2"))
			with := testSlice("s7", 8080, ready("10.42.200.1"), ready("10.42.200.2"), ready("10.42.200.3"))
			i := 0
			for b.Loop() {
				if i++; i%2 == 0 {
					l.r.SetSlice(with)
				} else {
					l.r.SetSlice(without)
				}
				if err := l.r.Sync(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// All Services at once, as after a boot; the same again as after a restart; and
// the look at an unchanged kernel.
func BenchmarkAll(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("boot/services=%d", n), func(b *testing.B) {
			l := newLab(b)
			for b.Loop() {
				if err := l.r.Destroy(b.Context()); err != nil {
					b.Fatal(err)
				}
				l.r = l.router("hwroute")
				fill(b, l.r, n)
			}
		})
		b.Run(fmt.Sprintf("restart/services=%d", n), func(b *testing.B) {
			l := newLab(b)
			fill(b, l.r, n)
			for b.Loop() {
				fill(b, l.router("hwroute"), n)
			}
		})
		b.Run(fmt.Sprintf("check/services=%d", n), func(b *testing.B) {
			l := newLab(b)
			fill(b, l.r, n)
			for b.Loop() {
				if err := l.r.check(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("compare/services=%d", n), func(b *testing.B) {
			l := newLab(b)
			fill(b, l.r, n)
			for b.Loop() {
				l.r.seen, l.r.nextAll = 0, time.Time{}
				if err := l.r.check(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The memory that 10,000 Services with 30,000 endpoints take, their objects not
// counted.
func BenchmarkMemory(b *testing.B) {
	l := newLab(b)
	for b.Loop() {
		r := l.router("hwroute")
		fill(b, r, 10_000)
		objects := len(r.state)
		with := heap()
		state, where := r.state, r.where
		*r = Router{writing: r.writing, nft: r.nft, health: r.health, cfg: r.cfg}
		for _, s := range state {
			s.entries = nil
		}
		b.ReportMetric(float64(with-heap())/float64(objects), "B/service")
		runtime.KeepAlive(where)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A Service against its pod asked directly, in turns in one run: new connections
// (median, p99) and one connection's throughput.
func BenchmarkServiceAgainstDirect(b *testing.B) {
	l := newLab(b)
	fill(b, l.r, 10_000)
	pod, client := l.pod(), l.pod()
	pod.serve("tcp", 8080)
	pod.sink(9090)
	s, slice := testService("web", "10.43.200.10"), testSlice("web", 8080, ready(pod.ip))
	l.r.SetService(s)
	l.r.SetSlice(slice)
	bulk := testService("bulk", "10.43.200.11")
	l.r.SetService(bulk)
	l.r.SetSlice(testSlice("bulk", 9090, ready(pod.ip)))
	l.sync()
	var took [2][]time.Duration
	var rate [2]float64
	for b.Loop() {
		for i, at := range []string{pod.ip + ":8080", "10.43.200.10:80"} {
			for range 200 {
				start := time.Now()
				client.who(at)
				took[i] = append(took[i], time.Since(start))
			}
		}
		for i, at := range []string{pod.ip + ":9090", "10.43.200.11:80"} {
			rate[i] += client.push(at, 64<<20)
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	at := func(i, percent int) float64 { return float64(took[i][len(took[i])*percent/100].Microseconds()) }
	b.ReportMetric(at(0, 50), "direct-µs")
	b.ReportMetric(at(1, 50), "service-µs")
	b.ReportMetric(at(1, 50)/at(0, 50), "median-ratio")
	b.ReportMetric(at(1, 99)/at(0, 99), "p99-ratio")
	b.ReportMetric(rate[1]/rate[0], "throughput-ratio")
}

// sink takes all that is sent.
func (m *machine) sink(port int) {
	m.lab.t.Helper()
	var l net.Listener
	var err error
	m.do(func() { l, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", m.ip, port)) })
	if err != nil {
		m.lab.t.Fatal(err)
	}
	m.lab.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
}

// push sends bytes and returns how many a second.
func (m *machine) push(at string, bytes int) float64 {
	m.lab.t.Helper()
	var c net.Conn
	var err error
	m.do(func() { c, err = (&net.Dialer{}).DialContext(context.Background(), "tcp4", at) })
	if err != nil {
		m.lab.t.Fatal(err)
	}
	defer c.Close()
	start, chunk := time.Now(), make([]byte, 256<<10)
	for sent := 0; sent < bytes; sent += len(chunk) {
		if _, err := c.Write(chunk); err != nil {
			m.lab.t.Fatal(err)
		}
	}
	return float64(bytes) / time.Since(start).Seconds()
}
