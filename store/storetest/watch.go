package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// Watch is the contract of a Store's watches over a backend (D2, D3).
func Watch(t *testing.T, open func(testing.TB) store.KV) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, store.KV)
	}{
		{"cut after each event of a large transaction", cutAnywhere},
		{"resumed at another server", cutAcrossServers},
		{"snapshot and watch without a gap", withoutGap},
		{"resume from every revision", resumes},
		{"older than the window", tooOld},
		{"only its resource and namespace", onlyMine},
		{"a slow watcher is ended", slow},
		{"ends with its context", endsWithContext},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// take returns the next events of a watch.
func take(t testing.TB, w *store.Watch) []store.Event {
	t.Helper()
	select {
	case events, ok := <-w.Events():
		if !ok {
			t.Fatalf("the watch ended: %v", w.Err())
		}
		return events
	case <-time.After(Patience):
		t.Fatal("no event came")
	}
	return nil
}

func watch(t testing.TB, s *store.Store, from int64) *store.Watch {
	t.Helper()
	w, err := s.Watch(t.Context(), api.ConfigMaps(), "", from)
	if err != nil {
		t.Fatalf("watch from %d: %v", from, err)
	}
	return w
}

// bulk commits a transaction of as many objects as one may have, of all verbs,
// and returns its revision.
func bulk(t testing.TB, s *store.Store) int64 {
	var before []api.Object
	for i := range store.BulkObjects / 2 {
		before = append(before, config("default", fmt.Sprintf("old%03d", i), i))
	}
	commit(t, s, create(before...))
	var x store.Txn
	for i, o := range before {
		op := store.Op{Verb: store.Update, Object: config2(o)}
		if i%2 == 0 {
			op = store.Op{Verb: store.Delete, Object: o}
		}
		x.Ops = append(x.Ops, op, store.Op{Verb: store.Create, Object: config("default", fmt.Sprintf("new%03d", i), i)})
	}
	return commit(t, s, x)
}

// cutAnywhere is a client that is sent the events of one revision one by one and
// cut after each: what it resumes with must complete what it has.
func cutAnywhere(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	w := watch(t, s, s.Revision())
	rev := bulk(t, s)
	settle(t, s)
	take(t, w) // the objects from before
	events := take(t, w)
	if len(events) != store.BulkObjects {
		t.Fatalf("%d events in one revision, want %d", len(events), store.BulkObjects)
	}
	for cut := 1; cut <= len(events); cut++ {
		checkResume(t, s, events[:cut], events, rev)
	}
	next := commit(t, s, create(config("default", "after", 1)))
	settle(t, s)
	again := watch(t, s, rev)
	if e := take(t, again); len(e) != store.BulkObjects {
		t.Errorf("resumed at %d: %d events, want all of the revision", rev, len(e))
	}
	if e := take(t, again); len(e) != 1 || e[0].Revision != next {
		t.Errorf("then %+v, want revision %d", e, next)
	}
	// A revision of one object cannot be cut in two: it is not sent again.
	if e := watchNothing(s, t, next); e != nil {
		t.Errorf("resumed at %d: got %+v again", next, e)
	}
}

// checkResume has a client that saw some events of a revision resume at it.
func checkResume(t testing.TB, s *store.Store, saw, all []store.Event, rev int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := s.Watch(ctx, api.ConfigMaps(), "", rev)
	if err != nil {
		t.Fatal(err)
	}
	have := map[store.Key]string{}
	for _, e := range append(append([]store.Event(nil), saw...), take(t, w)...) {
		have[e.Key] = outcome(e)
	}
	want := map[store.Key]string{}
	for _, e := range all {
		want[e.Key] = outcome(e)
	}
	if !maps.Equal(have, want) {
		t.Fatalf("cut after %d events: has %d outcomes, want %d", len(saw), len(have), len(want))
	}
}

func outcome(e store.Event) string {
	if e.Deleted() {
		return "deleted, was " + e.Previous.GetResourceVersion()
	}
	return e.Object.GetResourceVersion()
}

// watchNothing returns what a watch gets at once, nil for nothing.
func watchNothing(s *store.Store, t testing.TB, from int64) []store.Event {
	w := watch(t, s, from)
	select {
	case e := <-w.Events():
		return e
	default:
		return nil
	}
}

// cutAcrossServers is the same client, but the server has died and the one that
// it resumes at has only just loaded, at the very revision.
func cutAcrossServers(t *testing.T, kv store.KV) {
	first := loaded(t, kv)
	w := watch(t, first, first.Revision())
	rev := bulk(t, first)
	settle(t, first)
	take(t, w)
	events := take(t, w)

	second := running(t, kv, store.Options{})
	if second.Revision() != rev {
		t.Fatalf("loaded at %d, want %d", second.Revision(), rev)
	}
	checkResume(t, second, events[:1], events, rev)
	if got := second.List(api.ConfigMaps(), ""); len(got) != len(first.List(api.ConfigMaps(), "")) {
		t.Errorf("%d objects after the replay", len(got))
	}

	// With the history gone, the deletes are still told, by name.
	if err := kv.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	third := running(t, kv, store.Options{})
	deleted := 0
	for _, e := range take(t, watch(t, third, rev)) {
		if e.Deleted() && e.Previous.GetName() == e.Key.Name {
			deleted++
		}
	}
	if deleted != store.BulkObjects/4 {
		t.Errorf("%d deletes, want %d", deleted, store.BulkObjects/4)
	}
}

func withoutGap(t *testing.T, kv store.KV) {
	s := running(t, kv, store.Options{})
	const writers, each = 3, 80
	var wg sync.WaitGroup
	last := s.Revision() + writers*each
	for w := range writers {
		wg.Go(func() {
			mine := config("default", fmt.Sprint("w", w), 0)
			for i := range each {
				x := txn(store.Update, mine)
				if i == 0 {
					x = create(mine)
				}
				// A second object in the transaction, in turn made and removed.
				pair := config("default", fmt.Sprint("pair", w), i)
				if i%2 == 0 {
					x.Ops = append(x.Ops, create(pair).Ops...)
				} else {
					pair.ResourceVersion = mine.ResourceVersion
					x.Ops = append(x.Ops, txn(store.Delete, pair).Ops...)
				}
				if _, err := s.Commit(t.Context(), x); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	// Readers start all along.
	type reader struct {
		state map[store.Key]string
		at    int64
		w     *store.Watch
	}
	var readers []reader
	for range 20 {
		objs, rev := s.Snapshot(api.ConfigMaps(), "")
		r := reader{state: map[store.Key]string{}, at: rev, w: watch(t, s, rev)}
		for _, o := range objs {
			r.state[store.KeyOf(o)] = o.GetResourceVersion()
		}
		readers = append(readers, r)
		reach(t, s, min(rev+5, last))
	}
	wg.Wait()
	reach(t, s, last)
	want := map[store.Key]string{}
	for _, o := range s.List(api.ConfigMaps(), "") {
		want[store.KeyOf(o)] = o.GetResourceVersion()
	}
	for i, r := range readers {
		for r.at < last {
			for _, e := range take(t, r.w) {
				if e.Revision < r.at {
					t.Fatalf("reader %d: revision %d after %d", i, e.Revision, r.at)
				}
				r.at = e.Revision
				if e.Deleted() {
					delete(r.state, e.Key)
				} else {
					r.state[e.Key] = e.Object.GetResourceVersion()
				}
			}
		}
		if !maps.Equal(r.state, want) {
			t.Errorf("reader %d ends with %v, want %v", i, r.state, want)
		}
	}
}

func resumes(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	start := s.Revision()
	var revisions []int64
	for i := range 30 {
		revisions = append(revisions, commit(t, s, create(config("default", fmt.Sprint("c", i), i))))
	}
	settle(t, s)
	for i, from := range append([]int64{start}, revisions...) {
		w := watch(t, s, from)
		for _, want := range revisions[i:] {
			if e := take(t, w); len(e) != 1 || e[0].Revision != want {
				t.Fatalf("from %d: got %+v, want revision %d", from, e, want)
			}
		}
	}
}

func tooOld(t *testing.T, kv store.KV) {
	const window = 10
	s := store.New(kv, store.Options{Window: window, Seal: SealKey()})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := s.Revision()
	if _, err := s.Watch(t.Context(), api.ConfigMaps(), "", start-1); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("before the first load: %v", err)
	}
	var revisions []int64
	for i := range 2 * window {
		revisions = append(revisions, commit(t, s, create(config("default", fmt.Sprint("c", i), i))))
	}
	settle(t, s)
	for i, from := range revisions {
		_, err := s.Watch(t.Context(), api.ConfigMaps(), "", from)
		if gone := i < window; gone != errors.Is(err, store.ErrCompacted) || !gone && err != nil {
			t.Errorf("from revision %d of %d: %v", i, len(revisions), err)
		}
	}
}

func onlyMine(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	w, err := s.Watch(t.Context(), api.ConfigMaps(), "a", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, create(config("b", "x", 1), pod("a", "p", "", "")))
	rev := commit(t, s, create(config("a", "x", 1), config("b", "y", 1), pod("a", "q", "", "")))
	settle(t, s)
	if e := take(t, w); len(e) != 1 || e[0].Revision != rev || e[0].Key.Namespace != "a" || e[0].Key.Resource != "configmaps" {
		t.Errorf("got %+v", e)
	}
}

func slow(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	w := watch(t, s, s.Revision())
	a := config("default", "a", 0)
	commit(t, s, create(a))
	n := 0
	for n = 1; n < 2000; n++ {
		commit(t, s, txn(store.Update, a))
		settle(t, s)
		if w.Err() != nil {
			break
		}
	}
	if !errors.Is(w.Err(), store.ErrSlow) {
		t.Fatalf("after %d revisions: %v", n, w.Err())
	}
	got := 0
	for range w.Events() {
		got++
	}
	if got < 100 || got > n {
		t.Errorf("%d of %d revisions were buffered", got, n)
	}
}

func endsWithContext(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.Watch(ctx, api.ConfigMaps(), "", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case _, ok := <-w.Events():
		if ok || !errors.Is(w.Err(), context.Canceled) {
			t.Errorf("open %t, error %v", ok, w.Err())
		}
	case <-time.After(Patience):
		t.Fatal("the watch stays open")
	}
}
