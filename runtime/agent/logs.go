package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
)

// open starts sending what the server asked for.
func (s *link) open(ctx context.Context, o *session.Open) {
	select {
	case s.logs <- struct{}{}:
	default:
		s.agent.log.Warn("too many streams are open; one more is not", "most", cap(s.logs))
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.logs }()
		if err := s.send(ctx, o); err != nil && ctx.Err() == nil {
			s.agent.log.Debug("stream was not sent whole", "error", err)
		}
	})
}

// send copies what was asked for into a stream of its own, as fast as the reader
// takes it.
func (s *link) send(ctx context.Context, o *session.Open) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.client.Stream(ctx)
	if err != nil {
		return fmt.Errorf("open a stream: %w", err)
	}
	if err := stream.Send(&session.StreamUp{Id: o.Id}); err != nil {
		return fmt.Errorf("begin a stream: %w", err)
	}
	listen := func() error { _, err := stream.Recv(); return err }
	answer := func() error { return s.agent.read(ctx, o, chunks{stream}) }
	if o.Dial != nil || o.Exec != nil {
		d := session.NewDuplex(session.AgentWire(stream))
		listen = d.Run
		answer = func() error { return s.agent.reach(ctx, o, d) }
	}
	gone := make(chan struct{})
	go func() { // the server ends the stream when its reader leaves
		defer close(gone)
		for listen() == nil {
		}
		cancel()
	}()
	defer func() { cancel(); <-gone }()
	if err := answer(); err != nil && ctx.Err() == nil {
		if err := stream.Send(&session.StreamUp{Error: err.Error()}); err != nil {
			return fmt.Errorf("tell why a stream ends: %w", err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return fmt.Errorf("end a stream: %w", err)
	}
	select {
	case <-gone:
	case <-ctx.Done():
	}
	return nil
}

// read writes what a request asks for.
func (a *Agent) read(ctx context.Context, o *session.Open, w io.Writer) error {
	switch {
	case o.Log != nil:
		return a.readLog(ctx, o.Log, w)
	case o.Path != nil && a.cfg.Explain != nil:
		return a.readPath(ctx, o.Path, w)
	case o.Figures != nil:
		return a.readFigures(ctx, w)
	}
	return errors.New("this agent does not know what is asked for")
}

// readPath writes, as JSON, how a pod of this node reaches a Service.
func (a *Agent) readPath(ctx context.Context, r *session.PathRequest, w io.Writer) error {
	a.mu.Lock()
	e := a.entries[types.UID(r.Uid)]
	known := e != nil && e.pod != nil
	a.mu.Unlock()
	if !known {
		return fmt.Errorf("pod %s/%s is not on node %s", r.Namespace, r.Pod, a.name)
	}
	path, err := a.cfg.Explain(ctx, r.ServiceNamespace, r.Service, r.Port)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(path)
}

func (a *Agent) readLog(ctx context.Context, r *session.LogRequest, w io.Writer) error {
	uid := types.UID(r.Uid)
	a.mu.Lock()
	e := a.entries[uid]
	known := e != nil && e.pod != nil && containerNamed(e.pod, r.Container) != nil
	a.mu.Unlock()
	if !known {
		return fmt.Errorf("container %q of pod %s/%s is not on node %s", r.Container, r.Namespace, r.Pod, a.name)
	}
	req := LogRequest{
		UID: uid, Container: r.Container, Attempt: -1, Previous: r.Previous, Follow: r.Follow, Timestamps: r.Timestamps,
		TailLines: r.TailLines, LimitBytes: r.LimitBytes,
	}
	if r.SinceNanos != 0 {
		req.Since = time.Unix(0, r.SinceNanos)
	}
	return a.cfg.Runtime.Logs(ctx, req, w)
}

// chunks writes into a stream; Send waits while the server's reader does.
type chunks struct {
	stream grpc.BidiStreamingClient[session.StreamUp, session.StreamDown]
}

func (c chunks) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n := min(len(p)-done, session.MaxChunk)
		if err := c.stream.Send(&session.StreamUp{Data: p[done : done+n]}); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}
