package nodes_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/server/certs"
	"headway.dev/headway/server/nodes"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
)

// counter counts what is asked of the backend.
type counter struct {
	store.KV
	keepAlives, commits atomic.Int64
	hold                chan struct{} // commits wait while it is open
}

func (c *counter) KeepAlive(ctx context.Context, id store.LeaseID) (time.Duration, error) {
	c.keepAlives.Add(1)
	return c.KV.KeepAlive(ctx, id)
}

func (c *counter) Commit(ctx context.Context, compares []store.Compare, then []store.Write) (store.Committed, error) {
	c.commits.Add(1)
	if c.hold != nil {
		select {
		case <-c.hold:
		case <-ctx.Done():
			return store.Committed{}, ctx.Err()
		}
	}
	return c.KV.Commit(ctx, compares, then)
}

// cluster is a server with its store, and TLS on a listener in memory.
type cluster struct {
	t     testing.TB
	ctx   context.Context
	kv    *counter
	store *store.Store
	nodes *nodes.Nodes
	ca    *certs.Authority
	lis   *bufconn.Listener
	addr  string // of the HTTP server, if there is one
}

func open(t testing.TB) *cluster {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &cluster{t: t, ctx: ctx, kv: &counter{KV: memory.New()}, lis: bufconn.Listen(1 << 20)}
	c.store = store.New(c.kv, store.Options{Seal: storetest.SealKey()})
	// The store's own goroutines start before the authority writes through it.
	ready := make(chan error, 1)
	var handle func([]store.Event)
	c.store.OnEvents(func(e []store.Event) {
		if handle != nil {
			handle(e)
		}
	})
	if err := c.store.Load(ctx); err != nil {
		t.Fatal(err)
	}
	ca, err := certs.Ensure(ctx, c.store, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.ca = ca
	c.nodes = nodes.New(nodes.Config{Store: c.store, Authority: ca})
	handle = c.nodes.Handle
	go func() { ready <- c.store.Run(ctx) }()
	pair, err := ca.Server(nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert})))
	c.nodes.Register(srv)
	go func() {
		if err := srv.Serve(c.lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		srv.Stop()
		c.nodes.Close()
		cancel()
		if err := <-ready; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("store: %v", err)
		}
	})
	return c
}

// serveHTTP has further connections go to an HTTP/2 server, as in production.
func (c *cluster) serveHTTP() {
	c.t.Helper()
	pair, err := c.ca.Server(nil, time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		c.t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	srv := &http.Server{Handler: c.nodes.Handler(), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: c.ca.Pool()}}
	c.addr = lis.Addr().String()
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(lis, "", "") }()
	c.t.Cleanup(func() {
		srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			c.t.Error(err)
		}
	})
}

// dial connects as a node; "" without a certificate.
func (c *cluster) dial(node string) *grpc.ClientConn { return c.dialAs(node, c.ca, time.Now()) }

// dialAs is dial with a certificate that an authority issued at a time.
func (c *cluster) dialAs(node string, ca *certs.Authority, issued time.Time) *grpc.ClientConn {
	c.t.Helper()
	conf := &tls.Config{RootCAs: c.ca.Pool(), ServerName: "localhost"}
	if node != "" {
		pair, err := ca.Node(node, issued)
		if err != nil {
			c.t.Fatal(err)
		}
		cert, err := pair.TLS()
		if err != nil {
			c.t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(credentials.NewTLS(conf)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if c.addr != "" {
				return (&net.Dialer{}).DialContext(ctx, "tcp", c.addr)
			}
			return c.lis.DialContext(ctx)
		}))
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// client is one raw session.
type client struct {
	c      *cluster
	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[session.Up, session.Down]
	got    []*session.Down
	ended  chan error
	inbox  chan *session.Down
	labels []map[string]string // of the node, as often as they were sent
	cancel func()
}

func facts(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{
			Capacity:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("250")},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("250")},
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.9"}},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady"}},
		},
	}
}

// session opens one and says hello.
func (c *cluster) session(node string) *client {
	c.t.Helper()
	return c.sessionWith(node, facts(node))
}

func (c *cluster) sessionWith(node string, n *corev1.Node) *client {
	c.t.Helper()
	return c.sessionOver(c.dial(node), n)
}

func (c *cluster) sessionOver(conn *grpc.ClientConn, n *corev1.Node) *client {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.ctx)
	s := &client{c: c, conn: conn, ended: make(chan error, 1), inbox: make(chan *session.Down, 1000), cancel: cancel}
	c.t.Cleanup(s.close)
	stream, err := session.NewNodeClient(s.conn).Session(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	s.stream = stream
	raw, err := n.Marshal()
	if err != nil {
		c.t.Fatal(err)
	}
	s.up(&session.Up{Message: &session.Up_Hello{Hello: &session.Hello{Version: session.Version, Node: raw, Instance: "test"}}})
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				s.ended <- err
				return
			}
			s.inbox <- m
		}
	}()
	return s
}

func (s *client) close() {
	s.cancel()
	s.conn.Close()
}

func (s *client) up(m *session.Up) {
	s.c.t.Helper()
	if err := s.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		s.c.t.Fatal(err)
	}
}

// settle waits until nothing moves and returns what arrived, in words.
func (s *client) settle() []string {
	s.c.t.Helper()
	synctest.Wait()
	var out []string
	for {
		select {
		case m := <-s.inbox:
			if raw := m.GetSet().GetNode(); len(raw) > 0 { // every session begins with it
				var n corev1.Node
				if err := n.Unmarshal(raw); err != nil {
					s.c.t.Fatal(err)
				}
				s.labels = append(s.labels, n.Labels)
				continue
			}
			s.got = append(s.got, m)
			out = append(out, words(s.c.t, m))
		default:
			return out
		}
	}
}

func words(t testing.TB, m *session.Down) string {
	t.Helper()
	switch m := m.Message.(type) {
	case *session.Down_Welcome:
		return "welcome"
	case *session.Down_Synced:
		return "synced"
	case *session.Down_Mark:
		return "mark"
	case *session.Down_Drained:
		return "drained " + m.Drained.Uid
	case *session.Down_Renewed:
		return fmt.Sprintf("renewed %d %s", m.Renewed.Sent, time.Duration(m.Renewed.TtlNanos))
	case *session.Down_Unset:
		return fmt.Sprintf("unset %s %s", m.Unset.Resource, m.Unset.Name)
	case *session.Down_Stored:
		return fmt.Sprintf("stored %s %d", m.Stored.Name, m.Stored.Sequence)
	case *session.Down_Refused:
		return "refused " + m.Refused.What + ": " + m.Refused.Why
	case *session.Down_Open:
		return "open " + m.Open.Log.Container
	case *session.Down_Set:
		var pod corev1.Pod
		var cm corev1.ConfigMap
		var secret corev1.Secret
		var svc corev1.Service
		var es discoveryv1.EndpointSlice
		var claim corev1.PersistentVolumeClaim
		var volume corev1.PersistentVolume
		switch {
		case len(m.Set.Pod) > 0:
			if err := pod.Unmarshal(m.Set.Pod); err != nil {
				t.Fatal(err)
			}
			return "set pod " + pod.Name
		case len(m.Set.ConfigMap) > 0:
			if err := cm.Unmarshal(m.Set.ConfigMap); err != nil {
				t.Fatal(err)
			}
			return "set configmap " + cm.Name
		case len(m.Set.Service) > 0:
			if err := svc.Unmarshal(m.Set.Service); err != nil {
				t.Fatal(err)
			}
			return "set service " + svc.Name
		case len(m.Set.EndpointSlice) > 0:
			if err := es.Unmarshal(m.Set.EndpointSlice); err != nil {
				t.Fatal(err)
			}
			return "set slice " + es.Name
		case len(m.Set.PersistentVolumeClaim) > 0:
			if err := claim.Unmarshal(m.Set.PersistentVolumeClaim); err != nil {
				t.Fatal(err)
			}
			return "set claim " + claim.Name
		case len(m.Set.PersistentVolume) > 0:
			if err := volume.Unmarshal(m.Set.PersistentVolume); err != nil {
				t.Fatal(err)
			}
			if m.Set.Discard {
				return "discard volume " + volume.Name
			}
			return "set volume " + volume.Name
		default:
			if err := secret.Unmarshal(m.Set.Secret); err != nil {
				t.Fatal(err)
			}
			return "set secret " + secret.Name
		}
	}
	return fmt.Sprintf("%T", m.Message)
}

func (s *client) status(pod *corev1.Pod, phase corev1.PodPhase, sequence int64, stopped bool) {
	s.c.t.Helper()
	st := corev1.PodStatus{Phase: phase, PodIP: "10.1.0.2", Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "AgentsMayNotSayThis"},
	}}
	raw, err := st.Marshal()
	if err != nil {
		s.c.t.Fatal(err)
	}
	s.up(&session.Up{Message: &session.Up_PodStatus{PodStatus: &session.PodStatus{
		Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID), Status: raw, Sequence: sequence, Stopped: stopped,
	}}})
}

// create puts objects into the store.
func (c *cluster) create(objects ...api.Object) {
	c.t.Helper()
	for _, o := range objects {
		if o.GetUID() == "" {
			store.Stamp(o, time.Now())
		}
		if _, err := c.store.Commit(c.ctx, store.Txn{Ops: []store.Op{{Verb: store.Create, Object: o}}}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// change reads an object, changes it and writes it.
func change[T api.Object](c *cluster, obj T, f func(T)) {
	c.t.Helper()
	live, _, err := c.store.GetAt(c.ctx, store.KeyOf(obj), 0)
	if err != nil {
		c.t.Fatal(err)
	}
	next := live.DeepCopyObject().(T)
	f(next)
	if _, err := c.store.Commit(c.ctx, store.Txn{Ops: []store.Op{{Verb: store.Update, Object: next}}}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) remove(obj api.Object) {
	c.t.Helper()
	live, _, err := c.store.GetAt(c.ctx, store.KeyOf(obj), 0)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.store.Commit(c.ctx, store.Txn{Ops: []store.Op{{Verb: store.Delete, Object: live}}}); err != nil {
		c.t.Fatal(err)
	}
}

// live reads an object from the backend; nil when it is gone.
func live[T api.Object](c *cluster, obj T) (none T) {
	c.t.Helper()
	found, _, err := c.store.GetAt(c.ctx, store.KeyOf(obj), 0)
	if errors.Is(err, store.ErrNotFound) {
		return none
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return found.(T)
}

func pod(name, node string, refs ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "main", Image: "hello:1"}}},
	}
	for _, r := range refs {
		p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: r}}})
	}
	return p
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": "v"}}
}

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"k": []byte("v")}}
}

func testLog(t testing.TB) *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(lines{t}, nil))
}

type lines struct{ t testing.TB }

func (l lines) Write(p []byte) (int, error) {
	l.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

func kindEvents() schema.GroupResource { return api.Events() }

func objects[T api.Object](list []T) []api.Object {
	out := make([]api.Object, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}
