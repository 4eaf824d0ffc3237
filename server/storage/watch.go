package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubestorage "k8s.io/apiserver/pkg/storage"
)

// Watches.
const (
	watchBuffer    = 64               // events between the store and the wire
	bookmarkPeriod = 50 * time.Second // with its jitter at most a minute (D2)
	bookmarkBefore = 2 * time.Second  // before a watch's own end: one more bookmark
)

// Watch implements kubestorage.Interface.
func (s *Storage) Watch(ctx context.Context, key string, opts kubestorage.ListOptions) (watch.Interface, error) {
	sc, err := s.parse(key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	from, err := s.versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	w := &watcher{s: s, scope: sc, filter: s.filter(opts.Predicate), out: make(chan watch.Event, watchBuffer)}
	w.bookmarks = opts.Predicate.AllowWatchBookmarks
	start, err := w.begin(ctx, int64(from), opts)
	if err != nil {
		return nil, err
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.events, err = s.store.Watch(ctx, s.kind.GroupResource(), sc.namespace, start)
	if err != nil {
		w.cancel()
		if errors.Is(err, store.ErrCompacted) {
			return nil, apierrors.NewResourceExpired(fmt.Sprintf(tooOld, start))
		}
		return nil, failed(err)
	}
	w.seen = start
	go w.run(ctx)
	return w, nil
}

// watcher is one watch: the store's events of one resource, as one client's
// selector sees them.
type watcher struct {
	s      *Storage
	scope  scope
	filter filter
	events *store.Watch
	out    chan watch.Event
	cancel context.CancelFunc

	initial   []api.Object // sent as ADDED first
	end       bool         // the initial events end with an annotated bookmark
	bookmarks bool
	seen      int64 // every event up to this revision has been sent
	after     int64 // events up to this revision are in the initial state
}

// begin decides from which revision events are sent, and collects what must be
// sent before them.
func (w *watcher) begin(ctx context.Context, from int64, opts kubestorage.ListOptions) (int64, error) {
	send := opts.SendInitialEvents
	if from > 0 && (send == nil || !*send) {
		return from, w.s.reach(ctx, from)
	}
	if err := w.s.notOlderThan(ctx, opts.ResourceVersion); err != nil {
		return 0, err
	}
	if send != nil && !*send {
		return w.s.store.Revision(), nil
	}
	objects, rev := w.s.snapshot(w.scope)
	w.initial, w.after = objects, rev
	w.end = send != nil
	return rev, nil
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.cancel() }

func (w *watcher) run(ctx context.Context) {
	defer close(w.out)
	defer w.cancel()
	if !w.sendInitial(ctx) {
		return
	}
	timer := time.NewTimer(w.untilBookmark(ctx))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case batch, ok := <-w.events.Events():
			if !ok {
				w.sendError(ctx, w.events.Err())
				return
			}
			if !w.sendBatch(ctx, batch) {
				return
			}
		case <-timer.C:
			if !w.sendBookmark(ctx) {
				return
			}
			timer.Reset(w.untilBookmark(ctx))
		}
	}
}

func (w *watcher) sendInitial(ctx context.Context) bool {
	for _, obj := range w.initial {
		ok, err := w.filter.matches(obj)
		if err != nil {
			w.sendError(ctx, err)
			return false
		}
		if ok && !w.sendObject(ctx, watch.Added, obj, 0) {
			return false
		}
	}
	w.initial = nil
	if w.end && w.bookmarks {
		mark, err := w.bookmark()
		if err == nil {
			err = kubestorage.AnnotateInitialEventsEndBookmark(mark)
		}
		if err != nil {
			w.sendError(ctx, err)
			return false
		}
		return w.send(ctx, watch.Event{Type: watch.Bookmark, Object: mark})
	}
	return true
}

// sendBatch sends all events of one revision.
func (w *watcher) sendBatch(ctx context.Context, batch []store.Event) bool {
	for _, e := range batch {
		if e.Revision <= w.after {
			continue
		}
		kind, obj, err := w.judge(e)
		if err != nil {
			w.sendError(ctx, err)
			return false
		}
		if obj != nil && !w.sendObject(ctx, kind, obj, e.Revision) {
			return false
		}
	}
	if n := len(batch); n > 0 {
		w.seen = max(w.seen, batch[n-1].Revision)
	}
	return true
}

// judge says what a change is to this watch: an object that stops matching the
// selector is deleted for it, one that starts to match is added. A nil object:
// nothing.
func (w *watcher) judge(e store.Event) (watch.EventType, api.Object, error) {
	if w.scope.nothing || w.scope.name != "" && e.Key.Name != w.scope.name {
		return "", nil, nil
	}
	now, err := w.wants(e.Object)
	if err != nil {
		return "", nil, err
	}
	before, err := w.wants(e.Previous)
	if err != nil {
		return "", nil, err
	}
	switch {
	case now && before:
		return watch.Modified, e.Object, nil
	case now:
		return watch.Added, e.Object, nil
	case before:
		return watch.Deleted, e.Previous, nil
	}
	return "", nil, nil
}

func (w *watcher) wants(obj api.Object) (bool, error) {
	if obj == nil {
		return false, nil
	}
	return w.filter.matches(obj)
}

// sendObject sends an object; a deleted one carries the revision of its delete,
// which is set on this watch's own top-level value, not in the cache.
func (w *watcher) sendObject(ctx context.Context, kind watch.EventType, obj api.Object, rev int64) bool {
	into, err := w.s.decoded(obj)
	if err == nil && kind == watch.Deleted {
		err = w.s.versioner.UpdateObject(into, uint64(rev))
	}
	if err != nil {
		w.sendError(ctx, err)
		return false
	}
	return w.send(ctx, watch.Event{Type: kind, Object: into})
}

// untilBookmark is when the next bookmark is due: within a minute, and just
// before the watch's own end, so that the client resumes from there.
func (w *watcher) untilBookmark(ctx context.Context) time.Duration {
	wait := bookmarkPeriod + rand.N(10*time.Second)
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline) - bookmarkBefore; left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// sendBookmark tells the client how far it is. What the cache has applied up to
// now was handed to this watch before, so it is sent first.
func (w *watcher) sendBookmark(ctx context.Context) bool {
	if !w.bookmarks {
		return true
	}
	reached := w.s.store.Revision()
	for more := true; more; {
		select {
		case batch, ok := <-w.events.Events():
			if !ok {
				w.sendError(ctx, w.events.Err())
				return false
			}
			if !w.sendBatch(ctx, batch) {
				return false
			}
		default:
			more = false
		}
	}
	w.seen = max(w.seen, reached)
	mark, err := w.bookmark()
	if err != nil {
		w.sendError(ctx, err)
		return false
	}
	return w.send(ctx, watch.Event{Type: watch.Bookmark, Object: mark})
}

func (w *watcher) bookmark() (runtime.Object, error) {
	mark := w.s.newObject()
	return mark, w.s.versioner.UpdateObject(mark, uint64(w.seen))
}

// sendError ends the watch with the reason, if there is one: a client that was too
// slow, or whose place in history is gone, lists again.
func (w *watcher) sendError(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	if errors.Is(err, store.ErrCompacted) || errors.Is(err, store.ErrSlow) {
		err = apierrors.NewResourceExpired(fmt.Sprintf(tooOld, w.seen))
	}
	var status apierrors.APIStatus
	if !errors.As(failed(err), &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	w.send(ctx, watch.Event{Type: watch.Error, Object: &s})
}

func (w *watcher) send(ctx context.Context, e watch.Event) bool {
	select {
	case w.out <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
