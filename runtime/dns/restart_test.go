package dns

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"headway.dev/headway/runtime/keeper"
)

// restartable runs servers one after another at one address, as agents do.
type restartable struct {
	t    testing.TB
	cfg  Config
	stop func()
}

func (r *restartable) start() {
	r.t.Helper()
	s, err := New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	shop(s.names)
	s.Synced()
	in, err := s.obtain(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.serve(ctx, in) // ends with ctx
	}()
	r.stop = func() {
		cancel()
		<-done
	}
}

// startKeeper runs a keeper in this process.
func startKeeper(t testing.TB) *keeper.Client {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- keeper.Run(ctx, keeper.Config{Dir: dir, Ready: func() { close(ready) }, Log: slog.New(slog.DiscardHandler)})
	}()
	<-ready
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	k, err := keeper.Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// R8 for questions: those that come while no agent runs are answered by the next.
func TestQuestionsWaitForTheNextAgent(t *testing.T) {
	need(t, true)
	at := netip.AddrPortFrom(loopback(2), 53)
	r := &restartable{t: t, cfg: Config{Domain: "cluster.local", Address: at, Keeper: startKeeper(t)}}
	for range 3 {
		r.start()
		r.stop()
		packet, err := questionFor("web.shop.svc.cluster.local.", dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		var conns []*dns.Conn
		for _, network := range []string{"udp", "tcp"} {
			conn, err := dns.Dial(network, at.String())
			if err != nil {
				t.Fatalf("%s: %v", network, err)
			}
			defer conn.Close()
			if _, err := conn.Write(packet); err != nil {
				t.Fatalf("%s: %v", network, err)
			}
			conns = append(conns, conn)
		}
		r.start()
		for _, conn := range conns {
			if m, err := conn.ReadMsg(); err != nil || len(m.Answer) != 1 {
				t.Errorf("%s: %v, %v", conn.RemoteAddr().Network(), m, err)
			}
		}
		r.stop()
	}
	// Sockets of another address, or not both, are no use and are let go.
	r.cfg.Address = netip.AddrPortFrom(loopback(2), 5353)
	r.start()
	r.stop()
	if conn, err := net.Dial("tcp", at.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the former address still answers: %v, %v", conn, err)
	}
	files, err := r.cfg.Keeper.Held(t.Context())
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	if err := r.cfg.Keeper.Hold(t.Context(), files[:1]); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(files[0].Close(), files[1].Close()); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.stop()
}

// Without a keeper, with one that fails and with one that has nonsense, questions
// are answered all the same.
func TestAKeeperThatFails(t *testing.T) {
	need(t, true)
	for name, k := range map[string]Keeper{"none": nil, "broken": brokenKeeper{}, "nonsense": brokenKeeper{true}} {
		r := &restartable{t: t, cfg: Config{Domain: "cluster.local", Address: netip.AddrPortFrom(loopback(3), 53), Keeper: k}}
		r.start()
		if m, _, err := new(dns.Client).Exchange(questionFor("web.shop.svc.cluster.local.", dns.TypeA), r.cfg.Address.String()); err != nil || len(m.Answer) != 1 {
			t.Errorf("%s: %v, %v", name, m, err)
		}
		r.stop()
	}
}

type brokenKeeper struct{ nonsense bool }

func (brokenKeeper) Hold(context.Context, []*os.File) error { return errors.New("no keeper") }

func (b brokenKeeper) Held(context.Context) ([]*os.File, error) {
	if !b.nonsense {
		return nil, errors.New("no keeper")
	}
	f, err := os.Open(os.DevNull)
	return []*os.File{f}, err
}

// BenchmarkRestart is how long a question takes that comes just after an agent's
// end, when the next one starts at once: what the agent's own start takes is on top.
func BenchmarkRestart(b *testing.B) {
	r := &restartable{t: b, cfg: Config{Domain: "cluster.local", Address: netip.AddrPortFrom(loopback(1), 53), Keeper: startKeeper(b)}}
	r.start()
	for b.Loop() {
		r.stop()
		conn, err := dns.Dial("udp", r.cfg.Address.String())
		if err != nil {
			b.Fatal(err)
		}
		if err := conn.WriteMsg(questionFor("web.shop.svc.cluster.local.", dns.TypeA)); err != nil {
			b.Fatal(err)
		}
		r.start()
		if m, err := conn.ReadMsg(); err != nil || len(m.Answer) != 1 {
			b.Fatal(m, err)
		}
		if err := conn.Close(); err != nil {
			b.Fatal(err)
		}
	}
	r.stop()
}
