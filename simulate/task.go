package simulate

import (
	"context"
	"slices"
	"time"
)

// task is work that may wait for simulated time in its middle. It has a goroutine of
// its own, but never runs beside another one: whoever started or resumed it waits
// until it has ended or waits itself.
type task struct {
	actor  actor
	ctx    context.Context // that it waits under
	wake   time.Time
	resume chan struct{}
}

type tasks struct {
	running *task
	parked  []*task   // in the order in which they began to wait
	yield   chan bool // the running task has ended; false: it waits
}

// start runs work until it ends or waits.
func (w *World) start(work func()) {
	t := &task{actor: w.actor, resume: make(chan struct{})}
	w.tasks.running = t
	go func() {
		work()
		w.tasks.yield <- true
	}()
	w.rejoin(t)
}

// proceed lets a task that waits go on until it ends or waits again.
func (w *World) proceed(t *task) {
	w.tasks.parked = slices.DeleteFunc(w.tasks.parked, func(p *task) bool { return p == t })
	w.tasks.running = t
	w.actor = t.actor
	t.resume <- struct{}{}
	w.rejoin(t)
}

func (w *World) rejoin(t *task) {
	if !<-w.tasks.yield {
		w.tasks.parked = append(w.tasks.parked, t)
	}
	w.tasks.running = nil
}

// pause lets d pass, or less when ctx ends. It is called by a task.
func (w *World) pause(ctx context.Context, d time.Duration) {
	t := w.tasks.running
	t.ctx, t.wake = ctx, time.Now().Add(d)
	w.tasks.yield <- false
	<-t.resume
}

// due says whether a task can go on now.
func (t *task) due(now time.Time) bool { return !t.wake.After(now) || t.ctx.Err() != nil }
