package nodes

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

// Namespace holds the Lease objects of the nodes.
const Namespace = "kube-node-lease"

// DefaultTTL is how long after its last renewal a node counts as lost.
const DefaultTTL = 40 * time.Second

// Store is what the sessions need of the store; *store.Store is one.
type Store interface {
	store.Reader
	store.Writer
	GetAt(ctx context.Context, key store.Key, revision int64) (api.Object, int64, error)
	Current(ctx context.Context) (int64, error)
	WaitRevision(ctx context.Context, revision int64) error
	KV() store.KV
}

// Authority is the cluster's certificate authority; *certs.Authority is one.
type Authority interface {
	// PEM is its certificate.
	PEM() []byte
	// Pool is what clients' certificates must chain to.
	Pool() *x509.CertPool
	// NodeRequest issues a node's certificate (PEM) for the key of a signing
	// request (DER), which it checks.
	NodeRequest(request []byte, node string, now time.Time) ([]byte, error)
}

// Tokens signs tokens of ServiceAccounts; *accounts.Tokens does.
type Tokens interface {
	// ForPod signs a token of the pod's account, bound to the pod; audience "" is the
	// API's. Its file is good for life.
	ForPod(ctx context.Context, pod *corev1.Pod, audience string, seconds int64) (token string, life time.Duration, err error)
}

// Config is what Nodes need.
type Config struct {
	Store     Store
	Authority Authority
	Tokens    Tokens        // nil: pods get none
	TTL       time.Duration // of a node's lease; default DefaultTTL
	Measure   time.Duration // how often agents measure what autoscalers ask about; default api.FiguresPeriod
	Now       store.Clock
	// Pause waits between two tries of a write, until ctx ends; nil: a timer.
	Pause func(ctx context.Context, d time.Duration)
	Log   *slog.Logger
}

// Nodes serves the sessions.
type Nodes struct {
	session.UnimplementedNodeServer
	cfg   Config
	log   *slog.Logger
	now   store.Clock
	roots *x509.CertPool

	mu       sync.Mutex
	sessions map[string]*attendance
	streams  map[string]*opened
	leaving  map[types.UID]*leaving
	tops     map[string]*top // by node, as asked for last
	newest   int64           // revision of a Service or EndpointSlice that was heard of while there were sessions
	closed   bool
	running  sync.WaitGroup
}

// New returns Nodes that serve nothing yet.
func New(cfg Config) *Nodes {
	if cfg.TTL <= 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.Measure <= 0 {
		cfg.Measure = api.FiguresPeriod
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Pause == nil {
		cfg.Pause = pause
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Nodes{
		cfg: cfg, log: cfg.Log, now: cfg.Now, roots: cfg.Authority.Pool(),
		sessions: map[string]*attendance{}, streams: map[string]*opened{}, leaving: map[types.UID]*leaving{}, tops: map[string]*top{},
	}
}

// Register adds the service to a gRPC server. Its transport must ask for client
// certificates; it need not verify them, the service does.
func (n *Nodes) Register(r grpc.ServiceRegistrar) { session.RegisterNodeServer(r, n) }

// Handler serves the same over an HTTP/2 server that terminates TLS itself: give
// it the requests whose content type starts with application/grpc.
func (n *Nodes) Handler() http.Handler {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(session.MaxMessage))
	n.Register(s)
	return s
}

// Close ends every session and waits until all are over. Nodes stay known until
// their leases run out.
func (n *Nodes) Close() {
	n.mu.Lock()
	n.closed = true
	for _, a := range n.sessions {
		a.end(errClosing)
	}
	n.mu.Unlock()
	n.running.Wait()
}

var (
	errClosing  = errors.New("the server is closing")
	errReplaced = errors.New("the session was replaced by a newer one of the same node")
	errLapsed   = errors.New("the node's lease has run out")
)

// Handle wakes the sessions that a change concerns. It is for store.OnEvents and
// does not block.
func (n *Nodes) Handle(events []store.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.sessions) == 0 {
		return
	}
	for _, e := range events {
		switch e.Key.GroupResource {
		case api.Pods():
			before, after := nodeOf(e.Previous), nodeOf(e.Object)
			n.wake(after, e.Key)
			if before != after {
				n.wake(before, e.Key)
			}
			n.podChanged(e)
		case api.Nodes():
			if before, after := e.Previous, e.Object; before == nil || after == nil || !maps.Equal(before.GetLabels(), after.GetLabels()) {
				n.wake(e.Key.Name, e.Key)
				n.nodeChanged(e.Key.Name)
			}
		case api.HorizontalPodAutoscalers():
			if retargeted(e) {
				n.rewatch()
			}
		case api.Deployments(), api.ReplicaSets(), api.StatefulSets(), api.ReplicationControllers():
			if (e.Previous == nil || e.Object == nil) && isTarget(n.cfg.Store, e.Key) {
				n.rewatch()
			}
		case api.ConfigMaps(), api.Secrets():
			for _, a := range n.sessions {
				a.wakeIfNeeded(e.Key)
			}
		case api.PersistentVolumes(), api.PersistentVolumeClaims():
			n.volumeChanged(e)
		case api.Services(), api.EndpointSlices():
			n.routeChanged(e.Key, e.Revision)
		case api.Leases():
			n.tellAllDrained()
			a := n.sessions[e.Key.Name]
			if e.Key.Namespace != Namespace || a == nil || e.Revision <= a.epoch {
				continue
			}
			if e.Deleted() {
				a.end(errLapsed)
			} else {
				a.end(errReplaced)
			}
		}
	}
}

// leave ends what is known of a session that has ended.
func (n *Nodes) leave(a *attendance) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sessions[a.node] != a {
		return
	}
	delete(n.sessions, a.node)
	for uid, l := range n.leaving {
		if l.node == a.node {
			delete(n.leaving, uid)
		}
	}
}

func (n *Nodes) wake(node string, key store.Key) {
	if a := n.sessions[node]; a != nil {
		a.wake(key)
	}
}

func nodeOf(obj api.Object) string {
	if pod, ok := obj.(*corev1.Pod); ok && pod != nil {
		return pod.Spec.NodeName
	}
	return ""
}

// identify returns the node that the caller's certificate names. The chain is
// verified here, whatever the TLS listener did.
func (n *Nodes) identify(ctx context.Context) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return "", status.Error(codes.Unauthenticated, "a node's client certificate is needed")
	}
	certs := info.State.PeerCertificates
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{
		Roots: n.roots, Intermediates: between, CurrentTime: n.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return "", status.Errorf(codes.Unauthenticated, "client certificate: %v", err)
	}
	node, err := session.NodeOf(certs[0])
	if err != nil {
		return "", status.Error(codes.PermissionDenied, err.Error())
	}
	return node, nil
}
