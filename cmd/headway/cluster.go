package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/admission"
	"headway.dev/headway/server"
	"headway.dev/headway/server/certs"
	"headway.dev/headway/server/nodes"
	"headway.dev/headway/store"
	"headway.dev/headway/store/etcd"
	"headway.dev/headway/syncer"
	"headway.dev/headway/syncer/forge"
	"headway.dev/headway/syncer/git"
)

// clusterConfig is what the server's half of the process needs.
type clusterConfig struct {
	dir    dataDir
	name   string // as asked for; "" is what the data dir says
	listen string
	keeper string // path of the keeper program, which is the git hook
	node   string // of this process, whose readiness is waited for; "" for none
	source sourceConfig
	etcd   etcdConfig
	nets   networkConfig
	// metrics are served by the API.
	metrics *prometheus.Registry
	log     *slog.Logger
}

// cluster is the server's half of a process: the store, the API, the hosted
// repository, and, while this server leads, the controllers.
type cluster struct {
	cfg       clusterConfig
	name      string // in the cluster's own refs, notes and commit statuses
	log       *slog.Logger
	etcd      *etcd.Etcd
	store     *store.Store
	services  admission.Services // where cluster IPs come from
	authority *certs.Authority
	refs      *syncer.Refs
	hosted    *git.Hosted // nil: the main source is on a forge
	clones    *clones
	sources   *sources
	webhook   *forge.Webhook // nil: none are heard
	pokes     *pokes
	identity  string // of this server
	nodes     *nodes.Nodes
	api       *server.Server
	leader    *leader
	listener  net.Listener // of the API
	git       net.Listener // loopback, plain HTTP
	token     string       // for git
	metrics   *prometheus.Registry
	usages    usages
	disk      *disk
	pulse     pulse         // beats when the store changes
	nodeReady chan struct{} // closed once this process's node is Ready
}

// openCluster brings up everything that the server serves from, and serves
// nothing yet. Close must follow.
func openCluster(ctx context.Context, cfg clusterConfig) (_ *cluster, err error) {
	c := &cluster{cfg: cfg, log: cfg.log, nodeReady: make(chan struct{}), metrics: cfg.metrics, usages: newUsages()}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.name, err = cfg.dir.clusterName(cfg.name); err != nil {
		return nil, err
	}
	if c.services, err = admission.NewServices(cfg.nets.services); err != nil {
		return nil, fmt.Errorf("--service-cidr: %w", err)
	}
	if err := cfg.source.check(); err != nil {
		return nil, err
	}
	seal, err := secret(cfg.dir.sealKey(), store.SealKeyBytes)
	if err != nil {
		return nil, fmt.Errorf("read the key that seals Secrets: %w", err)
	}
	if c.etcd, err = cfg.etcd.open(ctx, cfg.dir, c.usages.told, cfg.log); err != nil {
		return nil, err
	}
	c.store = store.New(c.etcd.KV(), store.Options{Seal: seal, Log: cfg.log.With("component", "store"), Allocate: c.services.Allocate, Bounds: store.Bounds{Limit: admission.Limit, Charge: admission.Charge}})
	c.disk = &disk{path: string(cfg.dir), space: spaceOf, log: cfg.log, tell: c.teller()}
	c.refs = &syncer.Refs{Store: c.store, Now: time.Now}
	if c.identity, err = identity(cfg.dir); err != nil {
		return nil, err
	}
	if err := c.openSource(ctx); err != nil {
		return nil, err
	}
	if err := cfg.dir.keepName(c.name); err != nil {
		return nil, fmt.Errorf("keep the name of the cluster: %w", err)
	}
	if err := c.store.Release(ctx, c.identity); err != nil {
		return nil, err
	}
	if c.authority, err = certs.Ensure(ctx, c.store, time.Now()); err != nil {
		return nil, err
	}
	c.leader = newLeader(c.store, c.authority.PEM(), c.services.Kubernetes(), func() netip.AddrPort { return forPods(c.listener.Addr()) }, c.identity, c.metrics, cfg.log)
	c.leader.add("sources", c.sources)
	c.store.OnEvents(c.noticeNode())
	c.store.OnEvents(c.pulse.beat)
	c.nodes = nodes.New(nodes.Config{Store: c.store, Authority: c.authority, Log: cfg.log.With("component", "nodes")})
	c.store.OnEvents(c.nodes.Handle)
	// Every hook is in place: from here on nothing is missed.
	if err := c.store.Load(ctx); err != nil {
		return nil, fmt.Errorf("load the store: %w", err)
	}
	return c, c.listenAndTell()
}

// listenAndTell opens the listeners and writes the files that tell people where
// they are.
func (c *cluster) listenAndTell() error {
	listener, err := net.Listen("tcp", c.cfg.listen)
	if err != nil {
		return fmt.Errorf("%w: give --listen another address", err)
	}
	c.listener = listener
	hosts, err := servingHosts(listener.Addr(), c.services.Kubernetes(), c.cfg.nets.domain)
	if err != nil {
		return err
	}
	serving, err := c.authority.NewServing(hosts, time.Now)
	if err != nil {
		return err
	}
	extra := map[string]http.Handler{
		statusPath: http.HandlerFunc(c.serveStatus),
		tokenPath:  http.HandlerFunc(c.serveToken),
		planPath:   http.HandlerFunc(c.servePlan),
		driftPath:  http.HandlerFunc(c.serveDrift),
		diffPath:   http.HandlerFunc(c.serveDiff),
		blamePath:  http.HandlerFunc(c.serveBlame),
		netPath:    http.HandlerFunc(c.serveNet),
		syncPath:   http.HandlerFunc(c.serveSync),
		pausePath:  http.HandlerFunc(c.servePause),
		logPath:    http.HandlerFunc(c.serveLog),
		atPath:     http.HandlerFunc(c.serveAt),
	}
	if c.webhook != nil {
		extra["/webhook"] = c.webhook // which proves itself with the forge's secret
	}
	c.api, err = server.New(server.Config{
		Store: c.store, Listener: listener, Certificate: serving.Get, CA: c.authority.Pool(),
		Logs: c.nodes, Pods: c.nodes, Figures: c.nodes, GRPC: c.nodes.Handler(), Git: c.gitHandler("/git"),
		Extra:   extra,
		Ready:   func() error { return errors.Join(spaceLeft(c.etcd.Usage()), c.disk.ready()) },
		Metrics: c.metrics, Version: version, Log: c.log.With("component", "api"),
	})
	if err != nil {
		return err
	}
	admin, err := c.authority.Admin("admin", time.Now())
	if err != nil {
		return err
	}
	config, err := c.authority.Kubeconfig("headway", "https://"+reachable(listener.Addr()), admin)
	if err != nil {
		return err
	}
	if err := replaceFile(c.cfg.dir.kubeconfig(), config, 0o600); err != nil {
		return err
	}
	if err := replaceFile(c.cfg.dir.authority(), c.authority.PEM(), 0o644); err != nil {
		return err
	}
	return c.listenForGit(listener.Addr())
}

// reachable turns a listening address into one to dial: an unspecified host
// becomes loopback.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return addr.String()
	}
	host := tcp.IP.String()
	if tcp.IP == nil || tcp.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// forPods is where pods reach an API that listens at addr; the zero value when they do
// not, as it listens on loopback.
func forPods(addr net.Addr) netip.AddrPort {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	ip := at.Addr().Unmap()
	if ip.IsUnspecified() {
		// The address that packets to elsewhere leave from. Nothing is sent.
		out, err := net.Dial("udp4", "192.0.2.1:9")
		if err != nil {
			return netip.AddrPort{}
		}
		defer out.Close()
		ip = out.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	}
	if !ip.Is4() || ip.IsLoopback() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, at.Port())
}

// servingHosts are the names that the server's certificate is good for.
func servingHosts(addr net.Addr, service netip.Addr, domain string) ([]string, error) {
	hosts := []string{"localhost", "127.0.0.1", "::1", service.String(), "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain}
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the host name: %w", err)
	}
	hosts = append(hosts, name)
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return hosts, nil
	}
	if !tcp.IP.IsUnspecified() {
		return append(hosts, tcp.IP.String()), nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			hosts = append(hosts, n.IP.String())
		}
	}
	return hosts, nil
}

// run serves until ctx ends. The order of the end is the reverse of the order in
// which things need each other: what writes goes before the store.
func (c *cluster) run(ctx context.Context) error {
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var base, front errgroup.Group
	base.Go(func() error { return c.store.Run(below) })
	base.Go(func() error { return c.etcd.Maintain(below) })
	base.Go(func() error { return c.recordUsage(below) })
	base.Go(func() error { return c.disk.watch(below) })

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := func(what string, f func(context.Context) error) {
		front.Go(func() error {
			defer cancel()
			if err := f(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	start("API", func(ctx context.Context) error { return c.api.Run(ctx) })
	start("git endpoint", c.serveGit)
	start("leader", c.leader.run)
	start("sources", func(ctx context.Context) error { c.sources.keep(ctx); return nil })
	if c.hosted != nil {
		start("hosted repository", c.hosted.Run)
	}
	if c.webhook != nil {
		start("webhooks", c.poke)
	}
	front.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-c.etcd.Stopped():
			cancel()
			return errors.New("etcd has stopped")
		}
	})
	front.Go(func() error { <-ctx.Done(); c.nodes.Close(); return nil })
	err := front.Wait()
	stop()
	return errors.Join(err, ignoreEnd(base.Wait()))
}

// ignoreEnd takes the end that was asked for out of an error.
func ignoreEnd(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// close releases what openCluster took; it is safe after any part of it.
func (c *cluster) close() error {
	var errs []error
	for _, l := range []net.Listener{c.listener, c.git} {
		if l != nil {
			errs = append(errs, ignoreClosed(l.Close()))
		}
	}
	if c.etcd != nil {
		errs = append(errs, c.etcd.Close())
	}
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// noticeNode is a hook for store events that closes nodeReady.
func (c *cluster) noticeNode() func([]store.Event) {
	var once sync.Once
	return func(events []store.Event) {
		for _, e := range events {
			node, ok := e.Object.(*corev1.Node)
			if !ok || node.Name != c.cfg.node {
				continue
			}
			for _, cond := range node.Status.Conditions {
				if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
					once.Do(func() { close(c.nodeReady) })
				}
			}
		}
	}
}

// nodeCredentials are those of the node in the server's own process; a new
// certificate is issued when the old one is due.
func (c *cluster) nodeCredentials(node string) credentials.TransportCredentials {
	var (
		mu      sync.Mutex
		issued  []byte
		current tls.Certificate
	)
	get := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if issued == nil || c.authority.Due(issued, now) {
			pair, err := c.authority.Node(node, now)
			if err != nil {
				return nil, err
			}
			if current, err = pair.TLS(); err != nil {
				return nil, err
			}
			issued = pair.Certificate
		}
		return &current, nil
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.authority.Pool(), GetClientCertificate: get})
}

// identity names this server among the servers. It is kept in the data dir, whose
// lock only one process can hold: so whatever leads under it from an earlier life
// of this server is gone for certain.
func identity(dir dataDir) (string, error) {
	raw, err := secret(dir.identity(), 8)
	if err != nil {
		return "", fmt.Errorf("read the server's identity: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w", err)
	}
	return host + "/" + hex.EncodeToString(raw), nil
}
