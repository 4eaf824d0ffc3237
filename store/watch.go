package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// window is the last events, whole revisions, for watches that resume.
type window struct {
	limit     int
	floor     int64     // events after this revision are all here
	revisions [][]Event // ascending, none empty
	events    int       // in revisions
}

func (w *window) add(events []Event) {
	w.revisions = append(w.revisions, events)
	w.events += len(events)
	for w.events > w.limit && len(w.revisions) > 1 {
		w.events -= len(w.revisions[0])
		w.floor = w.revisions[0][0].Revision
		w.revisions[0] = nil
		w.revisions = w.revisions[1:]
	}
}

// watchBuffer is how many revisions a watcher may be behind.
const watchBuffer = 256

// Watch is a stream of one resource's events out of the cache.
type Watch struct {
	resource  schema.GroupResource
	namespace string
	from      int64
	out       chan []Event
	err       error
}

// Events gives one slice per revision. It is closed when the watch ends: see Err.
func (w *Watch) Events() <-chan []Event { return w.out }

// Err says why Events was closed: ErrSlow, or the context's error.
func (w *Watch) Err() error { return w.err }

// Watch streams the events of a resource after revision from: first those that
// the window still has, then live ones; namespace "" means all. It ends with ctx.
// When the window does not reach back to from, it returns ErrCompacted.
//
// A revision that wrote more than one object of the resource is sent again to a
// watch that starts right at it: the client may have seen only its first events.
func (s *Store) Watch(ctx context.Context, gr schema.GroupResource, namespace string, from int64) (*Watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.window.reaches(from) {
		return nil, fmt.Errorf("watch %s from revision %d, events are kept after %d: %w", gr, from, s.window.floor, ErrCompacted)
	}
	w := &Watch{resource: gr, namespace: namespace, from: from}
	var missed [][]Event
	for _, events := range s.window.since(from) {
		if mine := w.pick(events); mine != nil {
			missed = append(missed, mine)
		}
	}
	w.out = make(chan []Event, len(missed)+watchBuffer)
	for _, events := range missed {
		w.out <- events
	}
	s.watches = append(s.watches, w)
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(w, context.Cause(ctx))
	})
	return w, nil
}

func (w *window) reaches(from int64) bool { return from > w.floor }

func (w *window) since(from int64) [][]Event {
	i, _ := slices.BinarySearchFunc(w.revisions, from, func(e []Event, rev int64) int { return int(e[0].Revision - rev) })
	return w.revisions[i:]
}

// pick returns the events of one revision that are for w.
func (w *Watch) pick(events []Event) []Event {
	var mine []Event
	for _, e := range events {
		if e.Key.GroupResource == w.resource && (w.namespace == "" || e.Key.Namespace == w.namespace) {
			mine = append(mine, e)
		}
	}
	if len(mine) == 0 || mine[0].Revision < w.from || mine[0].Revision == w.from && len(mine) == 1 {
		return nil
	}
	return mine
}

// publish gives one revision's events to the window and the watches. The caller
// holds the lock; nothing here waits.
func (c *cache) publish(events []Event) {
	if len(events) == 0 {
		return
	}
	c.window.add(events)
	for _, w := range slices.Clone(c.watches) {
		mine := w.pick(events)
		if mine == nil {
			continue
		}
		select {
		case w.out <- mine:
		default:
			c.end(w, ErrSlow)
		}
	}
}

func (c *cache) end(w *Watch, err error) {
	if i := slices.Index(c.watches, w); i >= 0 {
		c.watches = slices.Delete(c.watches, i, i+1)
		w.err = err
		close(w.out)
	}
}

// waiter waits for the cache to reach a revision.
type waiter struct {
	revision int64
	reached  chan struct{}
}

func (c *cache) wake() {
	left := c.waiters[:0]
	for _, w := range c.waiters {
		if w.revision <= c.revision {
			close(w.reached)
		} else {
			left = append(left, w)
		}
	}
	clear(c.waiters[len(left):])
	c.waiters = left
}

// How long WaitRevision lets the watch bring the revision by itself, and how
// often it asks for progress after that. Revisions that touch keys outside of
// Prefix come only as progress.
const (
	progressFirst = 5 * time.Millisecond
	progressAgain = 100 * time.Millisecond
)

// WaitRevision returns when the cache has reached a revision. Run must be running.
func (s *Store) WaitRevision(ctx context.Context, revision int64) error {
	s.mu.Lock()
	if s.cache.revision >= revision {
		s.mu.Unlock()
		return nil
	}
	w := &waiter{revision: revision, reached: make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	defer s.leave(w)

	timer := time.NewTimer(progressFirst)
	defer timer.Stop()
	for {
		select {
		case <-w.reached:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for revision %d, the cache is at %d: %w", revision, s.Revision(), ctx.Err())
		case <-timer.C:
			if err := s.kv.Progress(ctx); err != nil {
				return fmt.Errorf("wait for revision %d: %w", revision, err)
			}
			timer.Reset(progressAgain)
		}
	}
}

func (s *Store) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = slices.DeleteFunc(s.waiters, func(o *waiter) bool { return o == w })
}
