package reconciletest

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
)

// T is a *testing.T or a *rapid.T.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Noon is when a world begins.
func Noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// World is a store, a controller over it, and hands that play everybody else.
type World struct {
	T
	Store   *store.Store
	Loop    *reconcile.Loop
	Now     time.Time
	Commits int // by the controller, that happened

	// Judge looks at each of the controller's transactions before it is tried. What it
	// says against one is an error of the test once that has happened. nil: nothing.
	Judge   func(store.Txn) string
	Picture func() string // of what there is, shown with it; nil: none
	// After sees each of the controller's transactions that happened. nil: nobody does.
	After func(store.Txn)

	names uint64
}

// New returns a world without a controller: Run gives it one.
func New(t T, st *store.Store) *World { return &World{T: t, Store: st, Now: Noon()} }

// Run has a controller take the store's events. It is made with the world's Writer, Fence,
// Clock and Random.
func (w *World) Run(loop *reconcile.Loop) {
	w.Loop = loop
	w.Store.OnEvents(loop.Handle)
}

// Fence is that of a leader who is never deposed.
func (w *World) Fence() store.Fence { return store.Fence{} }

// Clock tells the world's time.
func (w *World) Clock() time.Time { return w.Now }

// Random gives numbers that are the same in each run.
func (w *World) Random() uint64 {
	w.names++
	return w.names * 0x9e3779b97f4a7c15
}

// Writer is the store as the controller has it: the world sees what it writes.
func (w *World) Writer() *Writer { return &Writer{w.Store, w} }

// Writer is a store whose transactions a World sees.
type Writer struct {
	*store.Store
	world *World
}

// Commit is the store's.
func (c *Writer) Commit(ctx context.Context, t store.Txn) (int64, error) {
	w, verdict := c.world, ""
	if w.Judge != nil {
		verdict = w.Judge(t)
	}
	if verdict != "" && w.Picture != nil {
		verdict += "; before: " + w.Picture()
	}
	rev, err := c.Store.Commit(ctx, t)
	if err != nil {
		return rev, err
	}
	w.Commits++
	if verdict != "" {
		w.Errorf("%s", verdict)
	}
	if w.After != nil {
		w.After(t)
	}
	return rev, nil
}

// Sync brings the cache up to date.
func (w *World) Sync() {
	w.Helper()
	for {
		more, err := w.Store.Step(context.Background())
		if err != nil {
			w.Fatalf("step the store: %v", err)
		}
		if !more {
			return
		}
	}
}

// Settle steps store and controller until nothing is left to do now.
func (w *World) Settle() {
	w.Helper()
	for range 1000 {
		w.Sync()
		if !w.Loop.Step(context.Background()) {
			return
		}
	}
	w.Fatalf("the controller does not come to rest")
}

// Commit writes as somebody else, and brings the cache up to date.
func (w *World) Commit(ops ...store.Op) {
	w.Helper()
	if _, err := w.Store.Commit(context.Background(), store.Txn{Ops: ops}); err != nil {
		w.Fatalf("commit: %v", err)
	}
	w.Sync()
}

// Create stamps and creates an object.
func (w *World) Create(obj api.Object) {
	w.Helper()
	store.Stamp(obj, w.Now)
	w.Commit(store.Op{Verb: store.Create, Object: obj})
}

// Update replaces an object.
func (w *World) Update(obj api.Object) {
	w.Helper()
	w.Commit(store.Op{Verb: store.Update, Object: obj})
}

// Events are the messages of a namespace's Events for a reason, sorted.
func (w *World) Events(namespace, reason string) []string {
	var out []string
	for _, obj := range w.Store.List(api.Events(), namespace) {
		if e := obj.(*corev1.Event); e.Reason == reason {
			out = append(out, e.Message)
		}
	}
	slices.Sort(out)
	return out
}
