package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"headway.dev/headway/runtime/session"
)

// Command is one to run in a container.
type Command struct {
	Container string
	Args      []string
	Attach    bool // to the container's own process, not to a command
	// Stdin is read until it ends, in the end beyond the command; nil: none.
	Stdin          io.Reader
	Stdout, Stderr io.Writer // nil: dropped
	TTY            bool
	Sizes          <-chan *session.Size // of the terminal; nil: none
}

// move takes in what the agent sends.
func (s *opened) move(d *session.Duplex) error {
	err := d.Run()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// connect has the node of a pod open a stream that goes both ways. Whoever gets it
// calls leave in the end. ctx bounds only the opening.
func (n *Nodes) connect(ctx context.Context, pod *corev1.Pod, what *session.Open) (d *session.Duplex, leave func(), err error) {
	if pod.Spec.NodeName == "" {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, apierrors.NewTimeoutError(fmt.Sprintf("node %s did not answer in %s", pod.Spec.NodeName, openTimeout), 1))
	defer cancel()
	s := newOpened(pod.Spec.NodeName)
	s.both = make(chan *session.Duplex, 1)
	if err := n.begin(ctx, s, what); err != nil {
		return nil, nil, cause(ctx, err)
	}
	select {
	case d = <-s.both:
	case <-ctx.Done(): // the server closes
		s.leave()
		return nil, nil, context.Cause(ctx)
	}
	m, err := d.Next(ctx.Done())
	if err == nil && !m.Ready {
		err = errors.New("the agent did not begin with a word")
	}
	if err != nil {
		s.leave()
		return nil, nil, cause(ctx, fmt.Errorf("node %s: %w", s.node, err))
	}
	return d, func() {
		d.Close(net.ErrClosed)
		s.leave()
	}, nil
}

// cause prefers why ctx has ended over what that looked like.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Dial connects to a TCP port of a pod: to its address, or inside its network to the
// loopback address. What is not read waits in the pod.
func (n *Nodes) Dial(ctx context.Context, pod *corev1.Pod, port uint16, inside bool) (net.Conn, error) {
	d, leave, err := n.connect(ctx, pod, &session.Open{Dial: &session.DialRequest{
		Namespace: pod.Namespace, Pod: pod.Name, Uid: string(pod.UID), Port: uint32(port), Inside: inside,
	}})
	if err != nil {
		return nil, err
	}
	return &conn{d: d, leave: leave, to: address(net.JoinHostPort(pod.Name+"."+pod.Namespace, strconv.Itoa(int(port))))}, nil
}

// address is the end of a connection that goes through a node.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// conn is a connection to a pod.
type conn struct {
	d     *session.Duplex
	leave func()
	to    address

	reading sync.Mutex
	rest    []byte // of what came
	ended   bool   // the pod sends no more

	readUntil, writeUntil deadline
}

var _ net.Conn = (*conn)(nil)

func (c *conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	stop := c.readUntil.passed()
	select {
	case <-stop:
		return 0, os.ErrDeadlineExceeded
	default:
	}
	for len(c.rest) == 0 && !c.ended {
		m, err := c.d.Next(stop)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		c.rest, c.ended = m.Data, m.End
	}
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	c.d.Took(n)
	return n, nil
}

func (c *conn) Write(p []byte) (int, error) {
	return c.d.WriteUntil(c.writeUntil.passed(), p)
}

// CloseWrite says that nothing more comes from this side.
func (c *conn) CloseWrite() error { return c.d.Send(session.Message{End: true}) }

func (c *conn) Close() error {
	c.leave()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return address("server") }
func (c *conn) RemoteAddr() net.Addr { return c.to }

func (c *conn) SetDeadline(t time.Time) error {
	c.readUntil.set(t)
	c.writeUntil.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.readUntil.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writeUntil.set(t)
	return nil
}

// deadline is a time after which nobody waits.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{}
}

// passed is closed when the deadline has passed; one that waits sees a later one too.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over == nil {
		d.over = make(chan struct{})
	}
	return d.over
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	passed := false
	if d.over != nil {
		select {
		case <-d.over:
			passed = true
		default:
		}
	}
	if d.over == nil || passed {
		d.over = make(chan struct{})
	}
	over := d.over
	switch wait := time.Until(t); {
	case t.IsZero():
	case wait <= 0:
		close(over)
	default:
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == timer { // else it was set anew
				d.timer = nil
				close(over)
			}
		})
		d.timer = timer
	}
}

// Exec runs a command in a container that runs, and returns how it ended. At the end
// of ctx the command is killed; what it is attached to runs on.
func (n *Nodes) Exec(ctx context.Context, pod *corev1.Pod, c Command) (code int32, err error) {
	d, leave, err := n.connect(ctx, pod, &session.Open{Exec: &session.ExecRequest{
		Namespace: pod.Namespace, Pod: pod.Name, Uid: string(pod.UID), Container: c.Container, Command: c.Args,
		Stdin: c.Stdin != nil, Stdout: c.Stdout != nil, Stderr: c.Stderr != nil, Tty: c.TTY, Attach: c.Attach,
	}})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		leave()
		wg.Wait()
	}()
	if c.Stdin != nil {
		go func() { // not waited for: what it reads from ends later
			if _, err := io.Copy(d, c.Stdin); err != nil {
				n.log.Debug("a command does not get all of its input", "error", err)
				return
			}
			if err := d.Send(session.Message{End: true}); err != nil {
				n.log.Debug("a command does not hear that its input has ended", "error", err)
			}
		}()
	}
	if c.Sizes != nil {
		wg.Go(func() { resize(ctx, d, c.Sizes) })
	}
	return receive(ctx, d, c)
}

// resize hands on the sizes of a terminal.
func resize(ctx context.Context, d *session.Duplex, sizes <-chan *session.Size) {
	for {
		select {
		case s, more := <-sizes:
			if !more || d.Send(session.Message{Size: s}) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// receive hands on what a command prints until it ends.
func receive(ctx context.Context, d *session.Duplex, c Command) (int32, error) {
	for {
		m, err := d.Next(ctx.Done())
		switch {
		case errors.Is(err, io.EOF):
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, cause(ctx, err)
		case m.Exit != nil:
			return m.Exit.Code, nil
		}
		if len(m.Data) > 0 && c.Stdout != nil {
			if _, err := c.Stdout.Write(m.Data); err != nil {
				return 0, fmt.Errorf("hand on what a command prints: %w", err)
			}
		}
		if len(m.Stderr) > 0 && c.Stderr != nil {
			if _, err := c.Stderr.Write(m.Stderr); err != nil {
				return 0, fmt.Errorf("hand on what a command prints: %w", err)
			}
		}
		d.Took(len(m.Data) + len(m.Stderr))
	}
}
