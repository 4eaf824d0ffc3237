package nodes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
)

const (
	openTimeout = 10 * time.Second // from the request to the agent's stream
	maxOpened   = 1024             // streams of all nodes
	maxPath     = 1 << 20
)

// opened is a stream that was asked for.
type opened struct {
	node    string
	started chan struct{} // closed when the agent has opened it
	out     *io.PipeWriter
	both    chan *session.Duplex // gets a stream that goes both ways; nil: it only comes
	gone    chan struct{}        // closed when the reader has left
	leave   func()               // closes gone, once
}

// Logs opens the log of one container of a pod, see open.
func (n *Nodes) Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	container, err := logContainer(pod, o)
	if err != nil {
		return nil, err
	}
	req := &session.LogRequest{
		Namespace: pod.Namespace, Pod: pod.Name, Uid: string(pod.UID), Container: container,
		Follow: o.Follow, Previous: o.Previous, Timestamps: o.Timestamps, TailLines: -1,
	}
	if o.TailLines != nil {
		req.TailLines = max(*o.TailLines, 0)
	}
	if o.LimitBytes != nil {
		req.LimitBytes = max(*o.LimitBytes, 0)
	}
	switch {
	case o.SinceTime != nil:
		req.SinceNanos = o.SinceTime.UnixNano()
	case o.SinceSeconds != nil:
		req.SinceNanos = n.now().Add(-api.Seconds(*o.SinceSeconds)).UnixNano()
	}
	return n.open(ctx, pod.Spec.NodeName, &session.Open{Log: req})
}

// Path asks the node of a pod how the pod reaches a Service; the answer is the
// agent's JSON, of at most maxPath bytes.
func (n *Nodes) Path(ctx context.Context, pod *corev1.Pod, namespace, service, port string) ([]byte, error) {
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	r, err := n.open(ctx, pod.Spec.NodeName, &session.Open{Path: &session.PathRequest{
		Namespace: pod.Namespace, Pod: pod.Name, Uid: string(pod.UID), ServiceNamespace: namespace, Service: service, Port: port,
	}})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	answer, err := io.ReadAll(io.LimitReader(r, maxPath+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("node %s: %w", pod.Spec.NodeName, err)
	case len(answer) > maxPath:
		return nil, fmt.Errorf("node %s: the answer has more than %d bytes", pod.Spec.NodeName, maxPath)
	}
	return answer, nil
}

// open has the node's agent open the stream that is asked for. What the reader does
// not take waits on the node; it must be closed. ctx ends the reading too.
func (n *Nodes) open(ctx context.Context, node string, what *session.Open) (io.ReadCloser, error) {
	in, out := io.Pipe()
	s := newOpened(node)
	s.out = out
	if err := n.begin(ctx, s, what); err != nil {
		in.Close() // an agent that comes now is not kept waiting
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		in.CloseWithError(ctx.Err())
		s.leave()
	})
	return &reader{PipeReader: in, stop: stop, leave: s.leave}, nil
}

func newOpened(node string) *opened {
	s := &opened{node: node, started: make(chan struct{}), gone: make(chan struct{})}
	s.leave = sync.OnceFunc(func() { close(s.gone) })
	return s
}

// begin has the node's agent open a stream, and waits until it has.
func (n *Nodes) begin(ctx context.Context, s *opened, what *session.Open) error {
	id, err := n.ask(s, what)
	if err != nil {
		return err
	}
	timer := time.NewTimer(openTimeout)
	defer timer.Stop()
	select {
	case <-s.started:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = apierrors.NewTimeoutError(fmt.Sprintf("node %s did not answer in %s", s.node, openTimeout), 1)
	}
	n.withdraw(id)
	s.leave()
	return err
}

// reader is the reader's end of a stream.
type reader struct {
	*io.PipeReader
	stop  func() bool
	leave func()
}

func (r *reader) Close() error {
	r.stop()
	r.leave()
	return r.PipeReader.Close()
}

// ask has the node's agent open a stream.
func (n *Nodes) ask(s *opened, what *session.Open) (id string, err error) {
	id = rand.Text()
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.sessions[s.node]
	if a == nil {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("node %s is not connected", s.node))
	}
	ofNode := 0
	for _, other := range n.streams {
		if other.node == s.node {
			ofNode++
		}
	}
	if len(n.streams) >= maxOpened || ofNode >= session.MaxStreams {
		return "", apierrors.NewTooManyRequests(fmt.Sprintf("too many streams of node %s are open", s.node), 1)
	}
	n.streams[id] = s
	what.Id = id
	a.reply(&session.Down{Message: &session.Down_Open{Open: what}})
	return id, nil
}

func (n *Nodes) withdraw(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.streams, id)
}

// Stream implements session.NodeServer: an agent sends what was asked for.
func (n *Nodes) Stream(stream grpc.BidiStreamingServer[session.StreamUp, session.StreamDown]) error {
	node, err := n.identify(stream.Context())
	if err != nil {
		return err
	}
	m, err := first(stream.Context(), stream.Recv)
	if err != nil {
		return err
	}
	n.mu.Lock()
	s := n.streams[m.Id]
	known := s != nil && s.node == node && s.begin()
	n.mu.Unlock()
	if !known {
		return status.Error(codes.NotFound, "nobody asked for this stream")
	}
	defer n.withdraw(m.Id)
	if !n.enter() {
		return status.Error(codes.Unavailable, errClosing.Error())
	}
	defer n.running.Done()
	// The end of the stream tells the agent that the reader has left, also when
	// the log is silent; so copying, which ends with the stream, is not waited for.
	done := make(chan error, 1)
	if s.both != nil {
		d := session.NewDuplex(session.ServerWire(stream))
		s.both <- d
		go func() { done <- s.move(d) }()
	} else {
		go func() { done <- s.copy(stream, m) }()
	}
	select {
	case err := <-done:
		return err
	case <-s.gone:
		return nil
	}
}

// copy hands what the agent sends to the reader, as fast as that takes it.
func (s *opened) copy(stream grpc.BidiStreamingServer[session.StreamUp, session.StreamDown], m *session.StreamUp) error {
	for {
		if _, err := s.out.Write(m.Data); err != nil {
			return nil // the reader has left
		}
		if m.Error != "" {
			return s.out.CloseWithError(errors.New(m.Error))
		}
		var err error
		m, err = stream.Recv()
		if errors.Is(err, io.EOF) {
			return s.out.Close()
		}
		if err != nil {
			s.out.CloseWithError(fmt.Errorf("the stream broke off: node %s: %w", s.node, err))
			return err
		}
	}
}

// begin says that the stream is there; false if it was before.
func (s *opened) begin() bool {
	select {
	case <-s.started:
		return false
	default:
		close(s.started)
		return true
	}
}

// logContainer picks the container and refuses one that cannot have a log yet, in
// the words that kubectl's users know.
func logContainer(pod *corev1.Pod, o *corev1.PodLogOptions) (string, error) {
	name := o.Container
	if name == "" && len(pod.Spec.Containers) == 1 {
		name = pod.Spec.Containers[0].Name
	}
	var all []string
	found := false
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			all = append(all, list[i].Name)
			found = found || list[i].Name == name
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, pod.Spec.EphemeralContainers[i].Name)
		found = found || pod.Spec.EphemeralContainers[i].Name == name
	}
	if name == "" {
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, all))
	}
	if !found {
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	}
	if pod.Spec.NodeName == "" {
		return "", apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, c := range list {
			if c.Name != name {
				continue
			}
			if o.Previous && c.LastTerminationState.Terminated == nil {
				return "", apierrors.NewBadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", name, pod.Name))
			}
			if w := c.State.Waiting; !o.Previous && w != nil && c.LastTerminationState.Terminated == nil {
				return "", apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", name, pod.Name, w.Reason))
			}
		}
	}
	return name, nil
}
