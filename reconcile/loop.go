package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"headway.dev/headway/store"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Loop works keys. Handle and Wake may be called at any time by anyone; Run and
// Step by one caller, not both.
type Loop struct {
	cfg     Config
	watches map[schema.GroupResource][]Watch
	metrics *metrics

	resync resync // used by the one caller of Run or Step

	mu     sync.Mutex // never held while calling the reconciler, List or Keys
	cond   *sync.Cond // a key is ready, or the loop has ended
	queue  *queue
	active bool          // events count
	ended  bool          // Run is on its way out
	rearm  chan struct{} // capacity 1: the earliest due time has changed
}

// New makes a loop. It panics when Config lacks what is required, which is a
// mistake in the program.
func New(cfg Config) *Loop {
	if cfg.Name == "" || cfg.Reconciler == nil || cfg.List == nil {
		panic("reconcile: Config needs Name, Reconciler and List")
	}
	if cfg.Resync <= 0 {
		cfg.Resync = 5 * time.Minute
	}
	if cfg.Workers <= 0 {
		cfg.Workers = 2
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Loop{
		cfg:     cfg,
		watches: map[schema.GroupResource][]Watch{},
		metrics: newMetrics(cfg.Metrics, cfg.Name),
		queue:   newQueue(cfg.Seed),
		resync:  resync{list: cfg.List, period: cfg.Resync},
		rearm:   make(chan struct{}, 1),
	}
	l.cond = sync.NewCond(&l.mu)
	for _, w := range cfg.Watches {
		gr := w.Resource
		l.watches[gr] = append(l.watches[gr], w)
	}
	return l
}

// Handle wakes the keys that events concern. It is for store.OnEvents.
func (l *Loop) Handle(events []store.Event) {
	l.mu.Lock()
	active := l.active
	l.mu.Unlock()
	if !active {
		return
	}
	var keys []Key
	for _, e := range events {
		for _, w := range l.watches[e.Key.GroupResource] {
			keys = append(keys, w.Keys(e)...)
		}
	}
	l.wake(keys...)
}

// Wake makes a key due now. A key that is being worked is worked once more
// afterwards.
func (l *Loop) Wake(key Key) {
	l.wake(key)
}

func (l *Loop) wake(keys ...Key) {
	if len(keys) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		l.queue.wake(key)
	}
	l.announce()
}

// Next is when the earliest delayed key is due; zero when no key is delayed.
func (l *Loop) Next() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue.delayed) == 0 {
		return time.Time{}
	}
	return l.queue.delayed[0].due
}

// Step works one key that is due, and says whether there was one. The first Step
// lists every key.
func (l *Loop) Step(ctx context.Context) bool {
	l.activate()
	l.advance(l.cfg.Now())
	l.mu.Lock()
	it := l.queue.take()
	l.mu.Unlock()
	if it == nil {
		return false
	}
	l.work(ctx, it)
	return true
}

// Run works keys until ctx ends, and returns when every worker has. It may be run
// again: it then starts with a fresh queue and a fresh list.
func (l *Loop) Run(ctx context.Context) error {
	l.mu.Lock()
	l.ended = false
	l.mu.Unlock()
	l.activate()

	var all sync.WaitGroup
	for range l.cfg.Workers {
		all.Go(func() {
			for it := l.await(); it != nil; it = l.await() {
				l.work(ctx, it)
			}
		})
	}
	l.keepTime(ctx)

	l.mu.Lock()
	l.ended = true
	l.cond.Broadcast()
	l.mu.Unlock()
	all.Wait()

	l.Halt()
	return nil
}

// Halt forgets what is queued, as the end of Run does, so that the next Step or
// Run starts afresh. Whoever steps calls it between two terms of a leader.
func (l *Loop) Halt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = false
	l.queue = newQueue(l.cfg.Seed)
	l.metrics.depth.Set(0)
}

// keepTime moves what is due to the workers until ctx ends. It sleeps until the
// earliest of the delayed keys and the resync.
func (l *Loop) keepTime(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.rearm:
		}
		now := l.cfg.Now()
		l.advance(now)
		next := l.resync.next
		if due := l.Next(); !due.IsZero() && due.Before(next) {
			next = due
		}
		timer.Reset(max(next.Sub(now), 0))
	}
}

// activate lists every key, once per Run or at the first Step. Events count from
// before the list is made, so that none is lost between the two.
func (l *Loop) activate() {
	l.mu.Lock()
	active := l.active
	l.active = true
	l.mu.Unlock()
	if !active {
		l.resync.begin(l.cfg.Now())
		l.wake(l.cfg.List()...)
	}
}

// advance makes ready what is due at now.
func (l *Loop) advance(now time.Time) {
	keys := l.resync.due(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.queue.ready)
	l.queue.promote(now)
	for _, key := range keys {
		l.queue.wake(key)
	}
	if len(l.queue.ready) > before {
		l.announce()
	}
}

// announce wakes as many workers as there are keys. The caller holds mu.
func (l *Loop) announce() {
	n := len(l.queue.ready)
	l.metrics.depth.Set(float64(n))
	if n >= l.cfg.Workers {
		l.cond.Broadcast()
		return
	}
	for range n {
		l.cond.Signal()
	}
}

// await blocks until there is a key to work; nil when the loop has ended.
func (l *Loop) await() *item {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.ended {
			return nil
		}
		if it := l.queue.take(); it != nil {
			l.metrics.depth.Set(float64(len(l.queue.ready)))
			return it
		}
		l.cond.Wait()
	}
}

// work reconciles one key and puts it back as the outcome says.
func (l *Loop) work(ctx context.Context, it *item) {
	start := l.cfg.Now()
	err := l.reconcile(ctx, it.key)
	now := l.cfg.Now()

	l.mu.Lock()
	result, delay, again := l.judge(ctx, it, err)
	report := result == resultTerminal || result == resultError || result == resultPanic
	if report && it.logged == err.Error() {
		report = false
	} else if report {
		it.logged = err.Error()
	}
	it.again = it.again || again
	l.queue.done(it, delay, now)
	l.announce()
	if delay > 0 {
		select {
		case l.rearm <- struct{}{}:
		default:
		}
	}
	l.mu.Unlock()

	l.metrics.observe(result, now.Sub(start))
	if report {
		l.log(ctx, it.key, result, delay, err)
	}
}

// judge decides from a call's outcome what becomes of the key. The caller holds mu.
func (l *Loop) judge(ctx context.Context, it *item, err error) (result string, delay time.Duration, again bool) {
	var wait *Wait
	var caught *panicked
	switch {
	case err == nil:
		it.failures, it.conflicts, it.logged = 0, 0, ""
		return resultDone, 0, false
	case ctx.Err() != nil:
		return resultStopped, 0, false
	case errors.As(err, &wait):
		it.failures, it.conflicts, it.logged = 0, 0, ""
		return resultWait, max(wait.Delay, time.Nanosecond), false
	case stale(err) && it.conflicts < maxConflicts:
		it.conflicts++
		if it.conflicts == 1 {
			return resultConflict, 0, true
		}
		return resultConflict, l.queue.backoff(it.conflicts-1, minContention, maxContention), false
	case errors.Is(err, store.ErrFenced):
		// The loop is about to be stopped; whoever leads now does the work.
		it.failures++
		return resultStopped, l.queue.backoff(it.failures, time.Second, maxBackoff), false
	case IsTerminal(err):
		it.failures, it.conflicts = 0, 0
		return resultTerminal, 0, false
	}
	it.failures++
	it.conflicts = 0
	result = resultError
	if errors.As(err, &caught) {
		result = resultPanic
	}
	return result, l.queue.backoff(it.failures, minBackoff, maxBackoff), false
}

// stale says whether a write failed because its author had read a cache that is
// behind: what it changed has changed, what it created is there, what it deleted
// is gone.
func stale(err error) bool {
	if errors.Is(err, store.ErrConflict) {
		return true
	}
	var about *store.KeyError
	return errors.As(err, &about) && (errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound))
}

// reconcile calls the reconciler and turns a panic into an error.
func (l *Loop) reconcile(ctx context.Context, key Key) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{value: fmt.Sprint(v), stack: string(debug.Stack())}
		}
	}()
	return l.cfg.Reconciler.Reconcile(ctx, key)
}

func (l *Loop) log(ctx context.Context, key Key, result string, delay time.Duration, err error) {
	facts := []slog.Attr{slog.String("loop", l.cfg.Name), slog.String("key", key.String()), slog.String("error", err.Error())}
	level, message := slog.LevelWarn, "reconcile failed, will retry"
	var caught *panicked
	switch {
	case errors.As(err, &caught):
		level, message = slog.LevelError, "reconcile panicked, will retry"
		facts = append(facts, slog.String("stack", caught.stack))
	case result == resultTerminal:
		message = "cannot go on until the repository changes"
	}
	if delay > 0 {
		facts = append(facts, slog.Duration("retry", delay.Round(time.Millisecond)))
	}
	l.cfg.Log.LogAttrs(ctx, level, message, facts...)
}

// panicked is the error of a caught panic.
type panicked struct{ value, stack string }

func (p *panicked) Error() string { return "panic: " + p.value }
