package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
)

// server is a scripted server: it says what the test tells it to say, and keeps
// what agents say.
type server struct {
	session.UnimplementedNodeServer
	t testing.TB

	mu       sync.Mutex
	lis      *bufconn.Listener // nil: nobody listens
	grpc     *grpc.Server
	full     []*session.Down // what a new session is sent before synced
	live     chan *session.Down
	statuses map[types.UID]corev1.PodStatus
	stopped  map[types.UID]bool
	events   []string
	writes   int
	hellos   int
	renewals int
	deaf     bool // statuses are not acknowledged
	mute     bool // renewals are not answered
	ttl      time.Duration
	ready    corev1.ConditionStatus // of the node
	network  corev1.NodeCondition
	routed   int64
	foreign  corev1.NodeCondition      // likewise
	stocked  [][]corev1.ContainerImage // the images of each Node that was sent
	names    map[string]bool           // of events
	ended    []string                  // volumes that are gone: name and uid

	volumesDir string                 // of the node
	nodes      []corev1.NodeCondition // the node's, as it was sent last
}

func newServer(t testing.TB) *server {
	s := &server{t: t, live: make(chan *session.Down, 100), statuses: map[types.UID]corev1.PodStatus{}, stopped: map[types.UID]bool{}, names: map[string]bool{}, ttl: 40 * time.Second}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *server) start() {
	lis, g := bufconn.Listen(1<<20), grpc.NewServer()
	session.RegisterNodeServer(g, s)
	s.mu.Lock()
	s.lis, s.grpc = lis, g
	s.mu.Unlock()
	go func() {
		if err := g.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.t.Error(err)
		}
	}()
}

func (s *server) stop() {
	s.mu.Lock()
	g := s.grpc
	s.lis, s.grpc = nil, nil
	s.mu.Unlock()
	if g != nil {
		g.Stop()
	}
}

func (s *server) dial(ctx context.Context) (agent.Conn, error) {
	s.mu.Lock()
	lis := s.lis
	s.mu.Unlock()
	if lis == nil {
		return nil, errors.New("no server listens")
	}
	return grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
}

func (s *server) Session(stream grpc.BidiStreamingServer[session.Up, session.Down]) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.hellos++
	s.node(hello.GetHello().GetNode())
	full := slices.Clone(s.full)
	s.mu.Unlock()
	out := []*session.Down{{Message: &session.Down_Welcome{Welcome: &session.Welcome{Version: session.Version, Epoch: 1, TtlNanos: int64(s.ttl)}}}}
	out = append(out, full...)
	out = append(out, &session.Down{Message: &session.Down_Synced{Synced: &session.Synced{}}})
	for _, m := range out {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	answers := make(chan *session.Down, 1000)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if a := s.take(m); a != nil {
				answers <- a
			}
		}
	}()
	for {
		var m *session.Down
		select {
		case m = <-s.live:
		case m = <-answers:
		case <-stream.Context().Done():
			return nil
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
}

func (s *server) take(m *session.Up) *session.Down {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := m.Message.(type) {
	case *session.Up_Renew:
		s.renewals++
		if s.mute {
			return nil
		}
		return &session.Down{Message: &session.Down_Renewed{Renewed: &session.Renewed{Sent: m.Renew.Sent, TtlNanos: int64(s.ttl)}}}
	case *session.Up_PodStatus:
		p := m.PodStatus
		var st corev1.PodStatus
		if err := st.Unmarshal(p.Status); err != nil {
			s.t.Error(err)
		}
		s.writes++
		if s.deaf {
			return nil
		}
		s.statuses[types.UID(p.Uid)] = st
		s.stopped[types.UID(p.Uid)] = p.Stopped
		return &session.Down{Message: &session.Down_Stored{Stored: &session.Stored{Namespace: p.Namespace, Name: p.Name, Uid: p.Uid, Sequence: p.Sequence}}}
	case *session.Up_NodeStatus:
		s.node(m.NodeStatus)
	case *session.Up_VolumeGone:
		s.ended = append(s.ended, m.VolumeGone.Name+" "+m.VolumeGone.Uid)
	case *session.Up_Routed:
		s.routed = m.Routed.Revision
	case *session.Up_Event:
		var e corev1.Event
		if err := e.Unmarshal(m.Event); err != nil {
			s.t.Error(err)
		}
		s.names[e.Name] = true
		s.events = append(s.events, fmt.Sprintf("%s %s x%d", e.Reason, e.Message, e.Count))
	}
	return nil
}

// node takes in how the node is.
func (s *server) node(raw []byte) {
	var n corev1.Node
	if err := n.Unmarshal(raw); err != nil {
		s.t.Error(err)
		return
	}
	s.stocked = append(s.stocked, n.Status.Images)
	s.volumesDir = n.Annotations[api.VolumesDirAnnotation]
	s.nodes = n.Status.Conditions
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			s.ready = c.Status
		case corev1.NodeNetworkUnavailable:
			s.network = c
		case api.ForeignContainers:
			s.foreign = c
		}
	}
}

// status is what the server was last told of a pod.
func (s *server) status(p *corev1.Pod) corev1.PodStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statuses[p.UID]
}

// condition is one of the node's, as it was sent last.
func (s *server) condition(kind corev1.NodeConditionType) corev1.NodeCondition {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.nodes {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func (s *server) state(p *corev1.Pod, container string) corev1.ContainerStatus {
	st := s.status(p)
	for _, c := range append(st.InitContainerStatuses, st.ContainerStatuses...) {
		if c.Name == container {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

func (s *server) said(reason string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if len(e) > len(reason) && e[:len(reason)] == reason {
			out = append(out, e)
		}
	}
	return out
}

func setPod(t testing.TB, p *corev1.Pod) *session.Down {
	t.Helper()
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &session.Down{Message: &session.Down_Set{Set: &session.Assignment{Pod: raw}}}
}

func setSecret(t testing.TB, name, value string) *session.Down {
	t.Helper()
	raw, err := (&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"k": []byte(value)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &session.Down{Message: &session.Down_Set{Set: &session.Assignment{Secret: raw}}}
}

func unsetPod(p *corev1.Pod) *session.Down {
	return &session.Down{Message: &session.Down_Unset{Unset: &session.ObjectName{Resource: session.Pods, Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}}}
}

// assign has the server want pods, now and in every later session.
func (s *server) assign(pods ...*corev1.Pod) {
	for _, p := range pods {
		s.mu.Lock()
		s.full = append(s.full, setPod(s.t, p))
		s.mu.Unlock()
		s.live <- setPod(s.t, p)
	}
}

// forget has the server want nothing in later sessions.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = nil
}

func pod(name string, images ...string) *corev1.Pod {
	grace := int64(30)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec:       corev1.PodSpec{NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace},
	}
	if len(images) == 0 {
		images = []string{"hello:1"}
	}
	for i, image := range images {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: image, ImagePullPolicy: corev1.PullIfNotPresent})
	}
	return p
}

// running is an agent that runs.
type running struct {
	*agent.Agent
	stop func()
}

func run(t testing.TB, s *server, machine agent.Runtime, dir string, more ...func(*agent.Config)) *running {
	t.Helper()
	cfg := agent.Config{
		Runtime: machine, Dir: dir, Dial: s.dial, Log: testLog(t),
		Node: func() (*corev1.Node, error) {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
				Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.9"}},
				Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
			}}, nil
		},
	}
	for _, f := range more {
		f(&cfg)
	}
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	r := &running{Agent: a}
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// ids are the live containers of a machine, by pod and container name.
func ids(t testing.TB, machine *fake.Runtime) map[string]string {
	t.Helper()
	states, err := machine.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range states {
		for _, c := range s.Containers {
			if c.Phase == agent.Running {
				out[s.Name+"/"+c.Name] = c.ID
			}
		}
	}
	return out
}

func crash(t testing.TB, machine *fake.Runtime, p *corev1.Pod, code int32) {
	t.Helper()
	if err := machine.Crash(p.UID, "c0", code); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
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
