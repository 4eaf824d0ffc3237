package syncer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/git"
	corev1 "k8s.io/api/core/v1"
)

// PublisherConfig is what a Publisher needs beside the Syncer of its source.
type PublisherConfig struct {
	// Push brings our own refs to the forge. It calls ready just before it sends.
	Push func(ctx context.Context, ready func(context.Context) error) error
	// Adopt takes over our own refs that the forge has.
	Adopt   func(ctx context.Context) error
	Metrics prometheus.Registerer
}

// Publisher brings the notes and the live ref to the forge that the source is on,
// when its credentials allow that, and alone writes the Source's status.writeBack.
// It belongs to the leader.
type Publisher struct {
	s    *Syncer
	cfg  PublisherConfig
	loop *reconcile.Loop

	// Used by the one caller of Run or Step.
	failed int       // pushes in a row
	retry  time.Time // nothing is pushed before, whoever wakes us
}

// Pauses between calls to a forge that fail.
const (
	firstRetry = 10 * time.Second
	longRetry  = 10 * time.Minute
)

// pauseAfter is how long a forge is left alone after so many failures before this one.
func pauseAfter(failed int) time.Duration { return min(longRetry, firstRetry<<min(failed, 20)) }

// silentForge is what people are told of a forge that does not answer: what the
// network says names a port of ours, and is another text each time.
const silentForge = "the forge does not answer; it is tried again, ever more seldom"

// NewPublisher makes the Publisher of a Syncer's source.
func NewPublisher(s *Syncer, cfg PublisherConfig) *Publisher {
	p := &Publisher{s: s, cfg: cfg}
	p.loop = reconcile.New(reconcile.Config{
		Name: s.named("publisher"), Reconciler: p, List: func() []reconcile.Key { return []reconcile.Key{s.key} },
		Resync: time.Hour, Workers: 1, Log: s.cfg.Log, Now: s.cfg.Now, Seed: s.cfg.Seed, Metrics: cfg.Metrics,
	})
	return p
}

// Wake says that our refs have moved.
func (p *Publisher) Wake() { p.loop.Wake(p.s.key) }

// Run works until ctx ends. Only the leader runs it.
func (p *Publisher) Run(ctx context.Context) error {
	p.failed, p.retry = 0, time.Time{}
	return p.loop.Run(ctx)
}

// Step does one piece of work, and says whether there was any.
func (p *Publisher) Step(ctx context.Context) bool { return p.loop.Step(ctx) }

// Next is when Step has something to do although nobody woke it.
func (p *Publisher) Next() time.Time { return p.loop.Next() }

// Reconcile pushes what the forge lacks. A failure is said once, and tried again
// ever more seldom: most often somebody must change the forge or the credentials.
func (p *Publisher) Reconcile(ctx context.Context, _ reconcile.Key) error {
	if left := p.retry.Sub(p.s.cfg.Now()); left > 0 {
		return p.later(left)
	}
	err := p.cfg.Push(ctx, p.s.stillLeader)
	if errors.Is(err, git.ErrMoved) {
		if err = p.cfg.Adopt(ctx); err == nil {
			err = p.cfg.Push(ctx, p.s.stillLeader)
		}
	}
	switch {
	case ctx.Err() != nil || errors.Is(err, store.ErrFenced):
		return err
	case err == nil:
		p.failed, p.retry = 0, time.Time{}
		return p.tell(ctx, "")
	}
	pause := pauseAfter(p.failed)
	p.failed++
	p.retry = p.s.cfg.Now().Add(pause)
	problem := err.Error()
	if errors.Is(err, git.ErrUnreachable) {
		p.s.cfg.Log.Debug("the forge does not answer a push", "error", err)
		if problem = silentForge; p.failed == 1 { // it is most often over at once
			return p.later(pause)
		}
	}
	if err := p.tell(ctx, problem); err != nil {
		return err
	}
	return p.later(pause)
}

func (p *Publisher) later(d time.Duration) error {
	return reconcile.After(d, "until our refs are pushed to the forge again")
}

// tell notes on the Source why our refs do not reach the forge, or that they do, and
// says it where it is new.
func (p *Publisher) tell(ctx context.Context, problem string) error {
	src := p.s.source()
	if src == nil || src.Status.WriteBack == problem {
		return nil
	}
	out := src.DeepCopyObject().(*api.Source)
	out.Status.WriteBack = problem
	if err := p.s.commitApart(ctx, []store.Op{{Verb: store.Update, Object: out}}); err != nil {
		return fmt.Errorf("note whether our refs reach the forge: %w", err)
	}
	if problem == "" {
		p.s.cfg.Log.Info("the notes and the live ref reach the forge again")
		return nil
	}
	p.s.cfg.Log.Warn("the notes and the live ref do not reach the forge; they stay readable here", "reason", problem)
	p.s.events.Event(ctx, src, corev1.EventTypeWarning, "WriteBackFailed", "The notes and the live ref do not reach the forge: "+problem)
	return nil
}
