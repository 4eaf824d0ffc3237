package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// Election is the contract of the leader's election and of the fence (R4).
func Election(t *testing.T, open func(testing.TB) store.KV) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, store.KV)
	}{
		{"one leader at a time", oneLeader},
		{"a leader that resigns is followed at once", resigns},
		{"a leader that stops renewing is followed", silentLeader},
		{"a leader whose key is gone learns it by its next write", keyGone},
		{"the leadership ends with its context", leaderContext},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func elect(t testing.TB, s *store.Store, identity string, ttl time.Duration) *store.Leadership {
	t.Helper()
	l, err := s.Elect(t.Context(), identity, ttl)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := s.Leader(t.Context()); err != nil || who != identity {
		t.Fatalf("leader is %q, %v; want %s", who, err, identity)
	}
	return l
}

func lost(t testing.TB, l *store.Leadership) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(Patience):
		t.Fatal("the leadership goes on")
	}
}

// R4DeposedLeader: a leader is deposed while it knows nothing of it, another is
// elected, and then the first one's packets arrive, in every form.
func R4DeposedLeader(t *testing.T, kv store.KV) {
	old, young := loaded(t, kv), loaded(t, kv)
	// The old leader's process is frozen: nothing of it runs but its late writes.
	frozen, err := old.Elect(t.Context(), "old", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	a := config("default", "a", 1)
	x := create(a)
	x.Fence = frozen.Fence
	commit(t, old, x)

	lease := mustRange(t, kv, store.RangeRequest{Start: store.ElectionKey}).Entries[0].Lease
	if err := kv.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	l := elect(t, young, "young", time.Hour)
	if l.Fence.Revision <= frozen.Fence.Revision {
		t.Errorf("fences %d, %d: must rise", frozen.Fence.Revision, l.Fence.Revision)
	}
	before := mustRange(t, kv, store.RangeRequest{Start: store.Prefix, End: "/headway0"})
	for what, ops := range map[string][]store.Op{
		"create": create(config("default", "b", 1)).Ops,
		"update": txn(store.Update, config2(a)).Ops,
		"delete": txn(store.Delete, a).Ops,
		"mixed":  append(create(config("default", "b", 1)).Ops, txn(store.Delete, a).Ops...),
		// Also when the write would fail for another reason: the leader must learn
		// the one that makes it stop.
		"conflict": create(config("default", "a", 1)).Ops,
	} {
		_, err := old.Commit(t.Context(), store.Txn{Fence: frozen.Fence, Ops: ops})
		if !errors.Is(err, store.ErrFenced) {
			t.Errorf("%s by the deposed leader: %v", what, err)
		}
	}
	after := mustRange(t, kv, store.RangeRequest{Start: store.Prefix, End: "/headway0"})
	if after.Revision != before.Revision {
		t.Errorf("the deposed leader moved the store from revision %d to %d", before.Revision, after.Revision)
	}
	lost(t, frozen) // it learned by the refusal
	x = txn(store.Update, config2(a))
	x.Fence = l.Fence
	commit(t, young, x)
	if err := l.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := young.Commit(t.Context(), store.Txn{Fence: l.Fence, Ops: create(config("default", "c", 1)).Ops}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("write after the resignation: %v", err)
	}
}

// oneLeader has contenders take turns; each counts up under its fence.
func oneLeader(t *testing.T, kv store.KV) {
	const contenders, rounds = 3, 4
	s := loaded(t, kv)
	counter := config("default", "counter", 0)
	commit(t, s, create(counter))
	ended := make(chan error, contenders)
	for c := range contenders {
		go func() {
			ended <- func() error {
				for range rounds {
					l, err := s.Elect(t.Context(), fmt.Sprint("server-", c), time.Hour)
					if err != nil {
						return err
					}
					obj, _, err := s.GetAt(t.Context(), store.KeyOf(counter), 0)
					if err != nil {
						return err
					}
					next := obj.(*corev1.ConfigMap).DeepCopy()
					next.Data["n"] += "+"
					// No conflict is possible while there is one leader.
					if _, err := s.Commit(t.Context(), store.Txn{Fence: l.Fence, Ops: txn(store.Update, next).Ops}); err != nil {
						return err
					}
					if err := l.Resign(t.Context()); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range contenders {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	obj, _, err := s.GetAt(t.Context(), store.KeyOf(counter), 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(obj.(*corev1.ConfigMap).Data["n"]) - 1; n != contenders*rounds {
		t.Errorf("counted %d, want %d", n, contenders*rounds)
	}
}

func resigns(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	if who, err := s.Leader(t.Context()); err != nil || who != "" {
		t.Fatalf("leader %q, %v before any election", who, err)
	}
	first := elect(t, s, "first", time.Hour)
	second := make(chan *store.Leadership, 1)
	go func() {
		l, err := s.Elect(t.Context(), "second", time.Hour)
		if err != nil {
			t.Error(err)
		}
		second <- l
	}()
	select {
	case <-second:
		t.Fatal("two leaders")
	default:
	}
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost(t, first)
	select {
	case l := <-second: // the lease would have lasted an hour
		if l != nil {
			if err := l.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	case <-time.After(Patience):
		t.Fatal("nobody followed")
	}
	if err := first.Resign(t.Context()); err != nil {
		t.Errorf("resign again: %v", err)
	}
}

// silent is a backend whose lease renewals fail from the second on.
type silent struct {
	store.KV
	renewed chan struct{}
}

func (s *silent) KeepAlive(ctx context.Context, id store.LeaseID) (time.Duration, error) {
	select {
	case s.renewed <- struct{}{}:
		return s.KV.KeepAlive(ctx, id)
	default:
		return 0, fmt.Errorf("cut off: %w", store.ErrUnavailable)
	}
}

func silentLeader(t *testing.T, kv store.KV) {
	cut := &silent{KV: kv, renewed: make(chan struct{}, 1)}
	first := elect(t, loaded(t, cut), "first", 5*time.Second) // of which a busy machine may need some
	other := loaded(t, kv)
	won := make(chan bool, 1)
	go func() {
		if _, err := other.Elect(t.Context(), "second", time.Hour); err != nil {
			t.Error(err)
		}
		select {
		case <-first.Done():
			won <- true
		default:
			won <- false
		}
	}()
	lost(t, first)
	select {
	case after := <-won:
		if !after {
			t.Error("the second leader was elected before the first gave up")
		}
	case <-time.After(Patience):
		t.Fatal("nobody followed")
	}
	if len(cut.renewed) != 1 {
		t.Error("the first leader never renewed")
	}
}

func keyGone(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	l := elect(t, s, "first", time.Hour)
	mustCommit(t, kv, store.Write{Key: store.ElectionKey, Delete: true})
	_, err := s.Commit(t.Context(), store.Txn{Fence: l.Fence, Ops: create(config("default", "a", 1)).Ops})
	wants(t, err, store.ErrFenced, store.Key{})
	lost(t, l)
	settle(t, s)
	if len(s.List(api.ConfigMaps(), "")) != 0 {
		t.Error("it was written")
	}
}

func leaderContext(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := s.Elect(ctx, "first", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	waiting, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Elect(waiting, "second", time.Hour)
		ended <- err
	}()
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a candidate that leaves: %v", err)
	}
	cancel()
	lost(t, l)
	if err := l.Resign(t.Context()); err != nil {
		t.Errorf("resign after the end: %v", err)
	}
	if who, err := s.Leader(t.Context()); err != nil || who != "" {
		t.Errorf("leader %q, %v", who, err)
	}
}
