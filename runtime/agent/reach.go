package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
)

// reach connects the server with a pod or a command in it until one of them ends.
// Nothing uses the stream when it has returned.
func (a *Agent) reach(ctx context.Context, o *session.Open, d *session.Duplex) error {
	if o.Dial != nil {
		return a.dial(ctx, o.Dial, d)
	}
	return a.execFor(ctx, o.Exec, d)
}

// assigned returns a pod of this node.
func (a *Agent) assigned(namespace, name, uid string) (*corev1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.entries[types.UID(uid)]; e != nil && e.pod != nil {
		return e.pod, nil
	}
	return nil, fmt.Errorf("pod %s/%s is not on node %s", namespace, name, a.name)
}

// dial connects the server with a port of a pod.
func (a *Agent) dial(ctx context.Context, r *session.DialRequest, d *session.Duplex) error {
	pod, err := a.assigned(r.Namespace, r.Pod, r.Uid)
	if err != nil {
		return err
	}
	if r.Port == 0 || r.Port > 65535 {
		return fmt.Errorf("%d is no port", r.Port)
	}
	conn, err := a.cfg.Runtime.Dial(ctx, DialRequest{UID: pod.UID, Port: uint16(r.Port), Inside: r.Inside})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	down := make(chan struct{})
	go func() {
		defer close(down)
		carry(ctx, d, conn)
	}()
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		hangUp(conn)
	})
	defer func() { cancel(); <-closed; <-down }()
	if err := d.Send(session.Message{Ready: true}); err != nil {
		return err
	}
	_, err = io.Copy(d, conn)
	if err == nil {
		err = d.Send(session.Message{End: true})
	}
	if err != nil {
		return err
	}
	<-down // the pod has nothing to say any more, and may go on to listen
	return nil
}

// hangUp closes a connection whose end both sides know, or are not there to hear.
func hangUp(c net.Conn) { _ = c.Close() }

// carry hands what the server sends to the pod, as fast as that takes it. A pod that
// does not listen any more may still have something to say.
func carry(ctx context.Context, d *session.Duplex, conn net.Conn) {
	deaf := false
	for {
		m, err := d.Next(ctx.Done())
		if err != nil {
			return
		}
		switch {
		case m.End:
			if c, ok := conn.(interface{ CloseWrite() error }); ok && !deaf {
				deaf = c.CloseWrite() != nil
			}
		case !deaf:
			_, err := conn.Write(m.Data)
			deaf = err != nil
		}
		d.Took(len(m.Data))
	}
}

// execFor runs a command in a container for the server.
func (a *Agent) execFor(ctx context.Context, r *session.ExecRequest, d *session.Duplex) error {
	pod, err := a.assigned(r.Namespace, r.Pod, r.Uid)
	if err != nil {
		return err
	}
	id, err := a.running(ctx, pod, r.Container)
	if err != nil {
		return err
	}
	if len(r.Command) == 0 && !r.Attach {
		return errors.New("there is no command to run")
	}
	if err := d.Send(session.Message{Ready: true}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	in, input := io.Pipe()
	req := ExecRequest{ID: id, Command: r.Command, Timeout: time.Duration(r.TimeoutNanos), TTY: r.Tty}
	if r.Stdin {
		req.Stdin = in
	}
	if r.Stdout {
		req.Stdout = d
	}
	if r.Stderr && !r.Tty {
		req.Stderr = d.Stderr()
	}
	var wg sync.WaitGroup
	wg.Go(func() { feed(ctx, d, input) })
	if r.Tty {
		sizes := make(chan TerminalSize)
		req.Sizes = sizes
		wg.Go(func() { resize(ctx, d, sizes) })
	}
	code, err := a.join(ctx, r.Attach, req)
	cancel()
	in.CloseWithError(io.ErrClosedPipe)
	wg.Wait()
	if err != nil {
		return err
	}
	return d.Send(session.Message{Exit: &session.Exit{Code: code}})
}

// join runs a command, or attaches to a container's own process.
func (a *Agent) join(ctx context.Context, attach bool, req ExecRequest) (int32, error) {
	if !attach {
		return a.cfg.Runtime.Exec(ctx, req)
	}
	return 0, a.cfg.Runtime.Attach(ctx, AttachRequest{ID: req.ID, Stdin: req.Stdin, Stdout: req.Stdout, Stderr: req.Stderr, Sizes: req.Sizes})
}

// running finds the container that runs under a name.
func (a *Agent) running(ctx context.Context, pod *corev1.Pod, name string) (id string, err error) {
	states, err := a.cfg.Runtime.List(ctx, pod.UID)
	if err != nil {
		return "", err
	}
	for _, s := range states {
		for _, c := range s.Containers {
			if c.Name == name && c.Phase == Running {
				return c.ID, nil
			}
		}
	}
	return "", fmt.Errorf("container %q of pod %s/%s does not run", name, pod.Namespace, pod.Name)
}

// feed hands what the server sends to a command, as fast as that takes it.
func feed(ctx context.Context, d *session.Duplex, input *io.PipeWriter) {
	for {
		m, err := d.Next(ctx.Done())
		if err != nil {
			input.CloseWithError(err)
			return
		}
		if _, err := input.Write(m.Data); err != nil {
			return // it ended
		}
		if m.End {
			input.CloseWithError(io.EOF)
		}
		d.Took(len(m.Data))
	}
}

// resize hands on the sizes of a command's terminal.
func resize(ctx context.Context, d *session.Duplex, out chan<- TerminalSize) {
	defer close(out)
	for {
		select {
		case s := <-d.Sizes():
			select {
			case out <- TerminalSize{Width: uint16(min(s.Width, 65535)), Height: uint16(min(s.Height, 65535))}:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
