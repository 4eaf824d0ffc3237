package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"

	"headway.dev/headway/runtime/resolv"
)

// Config says whose names are answered for, and where.
type Config struct {
	Domain  string         // of the cluster: cluster.local
	Address netip.AddrPort // where to answer, by UDP and TCP; port 0 is 53
	// Interface that carries the address, made and kept by Run; "": it is there.
	Interface string
	// Pods is the pods' network: who may ask beside this machine itself, and which
	// addresses have names by themselves.
	Pods []netip.Prefix
	// Services is the network of the cluster IPs. Who an address of it or of Pods is,
	// nobody else is asked.
	Services   []netip.Prefix
	Keeper     Keeper // nil: questions are refused while the agent restarts
	ResolvConf string // names the node's resolvers; "": the machine's
	Metrics    prometheus.Registerer
	Now        func() time.Time // nil: time.Now
	Log        *slog.Logger
}

const (
	// mostWaiting questions may wait for a resolver, waitingEach of one asker. Each
	// takes some 10 KiB.
	mostWaiting, waitingEach = 2048, 512
	// A connection that says nothing for idle is closed.
	mostConnections, connectionsEach = 256, 32

	idle = 10 * time.Second
	// mostUpstreams of a resolv.conf are used; libc uses three.
	mostUpstreams = 8
)

// tending is how often the node's resolvers and our interface are looked at, and how
// long to wait before listening is tried again.
const tending = 5 * time.Second

// Server answers. Its Set and Unset methods take the cluster's names; they may be
// called before Run, and beside it.
type Server struct {
	*names
	cfg     Config
	zone    *zone
	forward *forwarder
	metrics *metrics

	period      time.Duration // tending, but in tests
	synced      atomic.Bool
	up          atomic.Bool
	waiting     *limit
	connections *limit
}

// New returns a server that knows no names yet and does nothing.
func New(cfg Config) (*Server, error) {
	domain := strings.TrimSuffix(cfg.Domain, ".")
	if problems := validation.IsDNS1123Subdomain(domain); len(problems) > 0 {
		return nil, fmt.Errorf("cluster domain %q: %s", cfg.Domain, strings.Join(problems, "; "))
	}
	if !cfg.Address.Addr().IsValid() {
		return nil, errors.New("dns: no address to answer at")
	}
	if cfg.Address.Port() == 0 {
		cfg.Address = netip.AddrPortFrom(cfg.Address.Addr(), 53)
	}
	if cfg.ResolvConf == "" {
		cfg.ResolvConf = resolv.Path
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, period: tending,
		zone: &zone{
			domain: dns.CanonicalName(domain), self: cfg.Address.Addr(),
			pods: cfg.Pods, own: append(append([]netip.Prefix{}, cfg.Pods...), cfg.Services...),
		},
		waiting:     newLimit(mostWaiting, waitingEach),
		connections: newLimit(mostConnections, connectionsEach),
	}
	s.names = &s.zone.names
	s.forward = &forwarder{exchange: exchangeOverNetwork, cache: newCache(), now: cfg.Now, log: cfg.Log}
	var err error
	if s.metrics, err = newMetrics(cfg.Metrics, s); err != nil {
		return nil, fmt.Errorf("register metrics of dns: %w", err)
	}
	s.forward.metrics = s.metrics
	return s, nil
}

// Synced says that every Service of the cluster has been set at least once, from
// the session or the checkpoint: from now on a name that is not known does not
// exist.
func (s *Server) Synced() { s.synced.Store(true) }

// Run answers until ctx ends. It does not end for an address that cannot be had:
// the pods that need no names go on without it, and it tries again.
func (s *Server) Run(ctx context.Context) error {
	s.reload()
	var wg sync.WaitGroup
	wg.Go(func() { s.tend(ctx) })
	said := ""
	for ctx.Err() == nil {
		served, err := s.listen(ctx)
		if ctx.Err() != nil {
			break
		}
		if text := s.explain(err).Error(); served || text != said {
			s.cfg.Log.Error("cluster names cannot be resolved on this node", "error", text)
			said = text
		}
		pause(ctx, s.period)
	}
	wg.Wait()
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// explain says what to do about an address that is taken.
func (s *Server) explain(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: a DNS server on this machine listens on every address; let it listen on its own ones only (dnsmasq: bind-interfaces, unbound: interface, bind: listen-on)", err)
	}
	return err
}

// listen makes the interface and serves until something ends it.
func (s *Server) listen(ctx context.Context) (served bool, err error) {
	if err := s.ensure(); err != nil {
		return false, err
	}
	sockets, err := s.obtain(ctx)
	if err != nil {
		return false, err
	}
	return true, s.serve(ctx, sockets)
}

func (s *Server) ensure() error {
	if s.cfg.Interface == "" {
		return nil
	}
	return EnsureInterface(s.cfg.Interface, s.cfg.Address.Addr())
}

// tend keeps to the node's resolvers as they change, and puts back an interface
// that someone took away.
func (s *Server) tend(ctx context.Context) {
	complained := false
	for ctx.Err() == nil {
		s.reload()
		s.forward.probe(ctx)
		pause(ctx, s.period)
		err := s.ensure()
		if err != nil && !complained {
			s.cfg.Log.Error("interface of the cluster's DNS cannot be put back", "error", err)
		}
		complained = err != nil
	}
}

// reload reads which resolvers the node has.
func (s *Server) reload() {
	file, err := resolv.Read(s.cfg.ResolvConf)
	if err != nil {
		s.forward.complain(err)
		return
	}
	var addrs []netip.AddrPort
	for _, text := range file.Nameservers {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Unmap() == s.cfg.Address.Addr() || len(addrs) == mostUpstreams {
			continue // ourselves, or nothing that could be asked
		}
		addrs = append(addrs, netip.AddrPortFrom(addr.Unmap(), 53))
	}
	if s.forward.use(addrs) {
		s.cfg.Log.Info("names outside of the cluster are asked of the node's resolvers", "resolvers", addrs)
	}
}

// stranger reports whether an address is neither this machine's nor a pod's. The
// pods' route to us leads over no other machine, but a neighbour on the network
// could send to our address what it likes.
func (s *Server) stranger(addr netip.Addr) bool {
	return !addr.IsLoopback() && addr != s.cfg.Address.Addr() && !within(s.cfg.Pods, addr)
}

func (s *Server) panicked(p any) {
	s.metrics.drop(dropPanic)
	s.cfg.Log.Error("a question could not be handled", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}
