package forge

import (
	"sync"
	"time"
)

// wakePause is the least time between two wakes of a source.
const wakePause = time.Second

// waker passes wakes on, at most one per source and wakePause. One that comes too
// soon is passed on at the end of the pause, and only the last of several.
type waker struct {
	wake func(source string, e Event)

	mu      sync.Mutex // never held while waking
	sources map[string]*pausing
	closed  bool
}

// pausing is a source that was woken less than wakePause ago.
type pausing struct {
	next  *Event // to pass on when the pause ends
	timer *time.Timer
}

func newWaker(wake func(string, Event)) *waker {
	return &waker{wake: wake, sources: map[string]*pausing{}}
}

func (w *waker) pass(source string, e Event) {
	w.mu.Lock()
	p := w.sources[source]
	switch {
	case w.closed:
		w.mu.Unlock()
		return
	case p != nil:
		p.next = &e
		w.mu.Unlock()
		return
	}
	w.sources[source] = &pausing{timer: time.AfterFunc(wakePause, func() { w.end(source) })}
	w.mu.Unlock()
	w.wake(source, e)
}

// end is the end of a pause: the source is forgotten, or woken and pauses again.
func (w *waker) end(source string) {
	w.mu.Lock()
	p := w.sources[source]
	if p == nil || w.closed {
		w.mu.Unlock()
		return
	}
	next := p.next
	if next == nil {
		delete(w.sources, source)
		w.mu.Unlock()
		return
	}
	p.next = nil
	p.timer.Reset(wakePause)
	w.mu.Unlock()
	w.wake(source, *next)
}

// close passes nothing on any more.
func (w *waker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, p := range w.sources {
		p.timer.Stop()
	}
	clear(w.sources)
}
