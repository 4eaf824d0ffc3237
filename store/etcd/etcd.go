package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"expvar"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"headway.dev/headway/store"
)

// DefaultQuota bounds the database of a member.
const DefaultQuota = 8 << 30

// Config says how a member runs.
type Config struct {
	Dir  string // holds the data; must not be shared
	Name string // of this member, unique in the cluster; default "main"

	// PeerURL is where the other members reach this one, https://host:port; ""
	// for a member that stays alone and listens nowhere. Listen is the local
	// address for it, host:port with host an IP; default: PeerURL's.
	PeerURL string
	Listen  string
	TLS     TLS
	// Cluster is what the members know of each other at their first start, as
	// name=url,name=url; default: this member alone. With Join it is what Add
	// returned, and the member joins a cluster that exists.
	Cluster string
	Join    bool

	Quota int64        // of the database's size in bytes; default DefaultQuota
	Log   *slog.Logger // gets warnings and errors only; default: none
	Now   store.Clock  // for Maintain; default: time.Now
	// OnUsage is called by Maintain when Usage.State has changed; default: Log is
	// told. It must not block.
	OnUsage func(Usage)
}

// TLS is what peers prove themselves with.
type TLS struct {
	CertFile, KeyFile, CAFile string
	CommonName                string // that a peer's certificate must have
}

// Etcd is a running member, or a connection to outside ones.
type Etcd struct {
	config Config
	server *embed.Etcd // nil: outside endpoints
	client *clientv3.Client
	// streams are the watches of every KV of this.
	streams *streams
	log     *slog.Logger
	close   sync.Once
	closed  error

	keeper keeper
}

// Times of the raft protocol. Peers keep etcd's own, which suit a network. Each
// tick wakes the process, so a member that stays alone, and needs no election
// timeout to be the leader (see campaign), has no more than leases need: the
// shortest lease is one and a half election timeouts.
const (
	tick          = 100 * time.Millisecond
	electionPeers = time.Second
	electionAlone = 500 * time.Millisecond
)

// flush is how often what the raft log already holds is also written to the
// database. It costs nothing but a longer replay after a crash, and wakes an idle
// process less than etcd's own tenth of a second.
const flush = 500 * time.Millisecond

// After logEntries transactions the raft log is cut, all but the last few, which
// stay for followers that lag; one that lags more gets the whole database. The
// numbers are low because the log is held in memory.
const (
	logEntries     = 500
	catchUpEntries = 500
	catchUpAlone   = 1
)

// slow is how long a request may take before etcd warns of it.
const slow = time.Second

// Start runs an embedded member and returns when it can serve, which for one of
// several members needs a majority of them.
func Start(ctx context.Context, c Config) (*Etcd, error) {
	e, err := start(c)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", c.Dir, err)
	}
	if err := e.campaign(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", c.Dir, err), e.Close())
	}
	select {
	case <-e.server.Server.ReadyNotify():
	case err := <-e.server.Err():
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", c.Dir, err), e.Close())
	case <-e.server.Server.StopNotify():
		return nil, errors.Join(fmt.Errorf("start etcd in %s: stopped", c.Dir), e.Close())
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("start etcd in %s: not ready: %w", c.Dir, ctx.Err()), e.Close())
	}
	if err := e.settle(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", c.Dir, err), e.Close())
	}
	return e, nil
}

// campaignAgain is how often a member that is alone asks to be the leader until
// it is.
const campaignAgain = 5 * time.Millisecond

// campaign makes a member that is alone the leader at once, by the message with
// which a leader hands over to it, instead of after an election timeout. It waits
// until raft is done with the log: asked before, raft reads entries which the
// server, that has applied them already, may have cut off, and panics.
func (e *Etcd) campaign(ctx context.Context) error {
	server := e.server.Server
	if e.config.PeerURL != "" || len(server.Cluster().Members()) > 1 {
		return nil
	}
	self := uint64(server.MemberID())
	again := time.NewTicker(campaignAgain)
	defer again.Stop()
	for server.Leader() == 0 {
		if replayed(self) {
			if err := server.Process(ctx, &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &self, To: &self}); err != nil {
				return fmt.Errorf("campaign: %w", err)
			}
		}
		select {
		case <-again.C:
		case <-server.StopNotify():
			return nil // Start finds out
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// replayed says whether raft has gone through all of the log that is committed.
// Without a leader nothing is committed, so it stays true. Etcd shows raft's own
// progress only among Go's expvars, and there that of the member of this process
// that was started last: another one has to wait for its election timeout.
func replayed(member uint64) bool {
	shown, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return false
	}
	status, ok := shown.Value().(raft.Status)
	return ok && status.ID == member && status.Applied >= status.GetCommit()
}

func start(c Config) (*Etcd, error) {
	c = c.withDefaults()
	cfg, err := c.embedded()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(c.Dir, 0o700); err != nil {
		return nil, err
	}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	client := v3client.New(server.Server)
	watches := adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(server.Server))
	streams := newStreams(func() clientv3.Watcher { return clientv3.NewWatchFromWatchClient(watches, client) })
	return &Etcd{config: c, server: server, client: client, streams: streams, log: c.Log}, nil
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "main"
	}
	if c.Quota == 0 {
		c.Quota = DefaultQuota
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// embedded translates the configuration.
func (c Config) embedded() (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.Name = c.Dir, c.Name
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = nil, nil
	cfg.EnableGRPCGateway = false
	cfg.QuotaBackendBytes = c.Quota
	cfg.MaxTxnOps = store.MaxOps
	cfg.MaxRequestBytes = 2 * store.MaxBytes // the compares and their keys come on top of the values
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = logEntries, catchUpEntries
	cfg.WarningApplyDuration, cfg.WarningUnaryRequestDuration = slow, slow
	cfg.DowngradeCheckTime = 0
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(c.Log))

	listen, advertise, err := c.urls()
	if err != nil {
		return nil, err
	}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = listen, advertise
	cfg.BackendBatchInterval = flush
	election := electionPeers
	if c.PeerURL == "" {
		election = electionAlone
		cfg.SnapshotCatchUpEntries = catchUpAlone
	} else {
		cfg.PeerTLSInfo = transport.TLSInfo{
			CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, TrustedCAFile: c.TLS.CAFile,
			ClientCertAuth: true, AllowedCNs: []string{c.TLS.CommonName},
		}
	}
	cfg.TickMs, cfg.ElectionMs = uint(tick.Milliseconds()), uint(election.Milliseconds())

	cfg.InitialCluster = c.Cluster
	if c.Cluster == "" {
		cfg.InitialCluster = c.Name + "=" + advertise[0].String()
	}
	cfg.ClusterState = embed.ClusterStateFlagNew
	if c.Join {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	return cfg, nil
}

// alone is the peer URL of a member that has none. Nothing listens there.
const alone = "http://127.0.0.1:0"

func (c Config) urls() (listen, advertise []url.URL, err error) {
	if c.PeerURL == "" {
		u, err := url.Parse(alone)
		if err != nil {
			return nil, nil, err
		}
		return nil, []url.URL{*u}, nil
	}
	u, err := url.Parse(c.PeerURL)
	if err != nil || u.Scheme != "https" || u.Port() == "" {
		return nil, nil, fmt.Errorf("peer URL %q: must be https://host:port", c.PeerURL)
	}
	if c.TLS.CertFile == "" || c.TLS.KeyFile == "" || c.TLS.CAFile == "" || c.TLS.CommonName == "" {
		return nil, nil, errors.New("a member with a peer URL needs a certificate, its key, the authority and the peers' common name")
	}
	l := *u
	if c.Listen != "" {
		l.Host = c.Listen
	}
	return []url.URL{l}, []url.URL{*u}, nil
}

// settle finishes what a start may have left to do: a member whose URL has
// changed tells the others, one that joins becomes a voter.
func (e *Etcd) settle(ctx context.Context) error {
	if e.config.PeerURL == "" {
		return nil
	}
	id := uint64(e.server.Server.MemberID())
	list, err := e.client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", classify(err))
	}
	for _, m := range list.Members {
		if m.ID != id {
			continue
		}
		if !slices.Equal(m.PeerURLs, []string{e.config.PeerURL}) {
			if _, err := e.client.MemberUpdate(ctx, id, []string{e.config.PeerURL}); err != nil {
				return fmt.Errorf("announce the peer URL %s: %w", e.config.PeerURL, classify(err))
			}
		}
		if m.IsLearner {
			return e.promote(ctx, id)
		}
	}
	return nil
}

// Dial connects to outside endpoints. They must allow transactions of
// store.MaxOps operations and requests of twice store.MaxBytes. log may be nil.
func Dial(ctx context.Context, endpoints []string, tlsConfig *tls.Config, log *slog.Logger) (*Etcd, error) {
	c := Config{Log: log}.withDefaults()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		TLS:                  tlsConfig,
		DialTimeout:          10 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		MaxCallSendMsgSize:   2 * store.MaxBytes,
		Logger:               newLogger(c.Log),
	})
	if err != nil {
		return nil, fmt.Errorf("dial etcd at %s: %w", strings.Join(endpoints, ","), err)
	}
	streams := newStreams(func() clientv3.Watcher { return clientv3.NewWatcher(client) })
	e := &Etcd{config: c, client: client, streams: streams, log: c.Log}
	if _, err := e.KV().Range(ctx, store.RangeRequest{Start: store.Prefix, CountOnly: true}); err != nil {
		return nil, errors.Join(fmt.Errorf("dial etcd at %s: %w", strings.Join(endpoints, ","), err), e.Close())
	}
	return e, nil
}

// KV returns the backend.
func (e *Etcd) KV() store.KV { return e.kv() }

func (e *Etcd) kv() *kv { return &kv{client: e.client, streams: e.streams, outside: e.server == nil} }

// Stopped is closed when an embedded member has stopped, by Close or by itself;
// never for outside endpoints.
func (e *Etcd) Stopped() <-chan struct{} {
	if e.server == nil {
		return nil
	}
	return e.server.Server.StopNotify()
}

// IsLeader says whether an embedded member is the raft leader.
func (e *Etcd) IsLeader() bool {
	return e.server != nil && e.server.Server.Leader() == e.server.Server.MemberID()
}

// Close stops the member, or the connection. What is under way fails with
// store.ErrUnavailable.
func (e *Etcd) Close() error {
	e.close.Do(func() {
		e.closed = e.streams.close()
		if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			e.closed = errors.Join(e.closed, fmt.Errorf("close the etcd client: %w", err))
		}
		if e.server != nil {
			e.server.Close()
		}
	})
	return e.closed
}
