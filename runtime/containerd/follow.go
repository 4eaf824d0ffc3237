package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	eventsapi "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// topicSync is the topic of an event of our own: when it comes back, the
// subscription stands.
const topicSync = "/headway/sync"

// follow keeps the mirror true until ctx ends: it subscribes, reads everything
// once, then follows events; and again whenever the connection is lost. first
// hears how the first time went.
func (r *Runtime) follow(ctx context.Context, first chan<- error) {
	pause := time.Duration(0)
	for {
		err := r.followOnce(ctx, func() {
			if first != nil {
				first <- nil
				first = nil
			}
		})
		r.mu.Lock()
		lost := r.connected
		r.connected = false
		if lost {
			r.notify("")
		}
		r.mu.Unlock()
		switch {
		case first != nil:
			first <- err
			return
		case ctx.Err() != nil:
			return
		case lost:
			pause = 0
			r.cfg.Log.Warn("connection to containerd lost", "err", err)
		case pause == 0: // say it once
			r.cfg.Log.Error("containerd answers, but cannot be followed", "err", err)
			pause = 100 * time.Millisecond
		default:
			pause = min(2*pause, 5*time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		// Returns when containerd answers again: gRPC dials on its own.
		_, err = r.client.VersionService().Version(ctx, &emptypb.Empty{}, grpc.WaitForReady(true))
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Debug("containerd does not say its version", "err", err) // followOnce will say more
		}
	}
}

// followOnce follows one connection.
func (r *Runtime) followOnce(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ns := fmt.Sprintf("namespace==%q", r.cfg.Namespace)
	stream, errs := r.client.Subscribe(ctx,
		ns+`,topic=="/tasks/exit"`, ns+`,topic=="/tasks/oom"`, ns+`,topic=="`+topicSync+`"`,
		ns+`,topic=="/containers/create"`, ns+`,topic=="/containers/delete"`)
	queue, err := r.synchronize(ctx, stream, errs)
	if err != nil {
		return err
	}
	if err := r.load(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	r.connected = true
	r.notify("")
	r.mu.Unlock()
	ready()
	for _, e := range queue {
		r.handle(ctx, e)
	}
	for {
		select {
		case e := <-stream:
			r.handle(ctx, e)
		case err := <-errs:
			if err == nil {
				err = errors.New("stream of events ended")
			}
			return err
		}
	}
}

// syncTime bounds the wait for our own event.
const syncTime = 10 * time.Second

// synchronize waits until the subscription stands, so that what is read after it
// and the events together leave no gap. It returns the events that came meanwhile.
func (r *Runtime) synchronize(ctx context.Context, stream <-chan *events.Envelope, errs <-chan error) ([]*events.Envelope, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	mark := fmt.Sprintf("headway-%d", time.Now().UnixNano())
	var queue []*events.Envelope
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		// The stream is open on our side; containerd may not have it yet, so the
		// event may have to be sent more than once.
		if err := r.client.EventService().Publish(ctx, topicSync, &eventsapi.TaskPaused{ContainerID: mark}); err != nil {
			return nil, fmt.Errorf("publish event: %w", err)
		}
		again := time.After(wait)
	listen:
		for {
			select {
			case e := <-stream:
				if e.Topic != topicSync {
					queue = append(queue, e)
					continue
				}
				var own eventsapi.TaskPaused
				if err := typeurl.UnmarshalTo(e.Event, &own); err == nil && own.ContainerID == mark {
					return queue, nil
				}
			case err := <-errs:
				if err == nil {
					err = errors.New("stream of events ended")
				}
				return nil, err
			case <-again:
				break listen
			case <-ctx.Done():
				return nil, fmt.Errorf("wait for first event: %w", ctx.Err())
			}
		}
	}
}

// handle takes one event.
func (r *Runtime) handle(ctx context.Context, e *events.Envelope) {
	if e == nil || e.Event == nil {
		return
	}
	switch e.Topic {
	case "/tasks/exit":
		var exit eventsapi.TaskExit
		if err := typeurl.UnmarshalTo(e.Event, &exit); err != nil {
			r.cfg.Log.Warn("event not understood", "topic", e.Topic, "err", err)
			return
		}
		if exit.ID == "" || exit.ID == exit.ContainerID { // not of a process beside the main one
			r.exited(context.WithoutCancel(ctx), exit.ContainerID, exit.ExitStatus, exit.ExitedAt.AsTime())
		}
	case "/containers/create":
		var made eventsapi.ContainerCreate
		if err := typeurl.UnmarshalTo(e.Event, &made); err != nil {
			r.cfg.Log.Warn("event not understood", "topic", e.Topic, "err", err)
			return
		}
		r.appeared(ctx, made.ID)
	case "/containers/delete":
		var gone eventsapi.ContainerDelete
		if err := typeurl.UnmarshalTo(e.Event, &gone); err != nil {
			r.cfg.Log.Warn("event not understood", "topic", e.Topic, "err", err)
			return
		}
		r.vanished(gone.ID)
	case "/tasks/oom":
		var oom eventsapi.TaskOOM
		if err := typeurl.UnmarshalTo(e.Event, &oom); err != nil {
			r.cfg.Log.Warn("event not understood", "topic", e.Topic, "err", err)
			return
		}
		r.mu.Lock()
		if _, c := r.find(oom.ContainerID); c != nil {
			c.oom = true
		}
		r.mu.Unlock()
	}
}
