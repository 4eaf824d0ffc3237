package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
)

func open(testing.TB) store.KV { return memory.New() }

func TestKV(t *testing.T)        { storetest.KV(t, open) }
func TestStore(t *testing.T)     { storetest.Store(t, open) }
func TestWatch(t *testing.T)     { storetest.Watch(t, open) }
func TestAddresses(t *testing.T) { storetest.Addresses(t, 20, open) }
func TestElection(t *testing.T)  { storetest.Election(t, open) }

func TestR4_DeposedLeaderCannotWrite(t *testing.T) { storetest.R4DeposedLeader(t, open(t)) }

func put(t testing.TB, kv *memory.KV, key string, lease store.LeaseID) int64 {
	t.Helper()
	out, err := kv.Commit(t.Context(), nil, []store.Write{{Key: key, Value: []byte("v"), Lease: lease}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Revision
}

// TestSynchronous: what a commit wrote is in the watch when it returns, so one
// goroutine can step everything.
func TestSynchronous(t *testing.T) {
	kv := memory.New()
	batches, err := kv.Watch(t.Context(), "/", 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		rev := put(t, kv, "/a", 0)
		select {
		case b := <-batches:
			if b.Revision != rev {
				t.Fatalf("revision %d, want %d", b.Revision, rev)
			}
		default:
			t.Fatal("nothing was delivered")
		}
	}
}

// TestLateReader: a watcher that reads late still gets every revision, in order,
// and no commit waited for it.
func TestLateReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := memory.New()
		ctx, cancel := context.WithCancel(t.Context())
		batches, err := kv.Watch(ctx, "/", 1)
		if err != nil {
			t.Fatal(err)
		}
		const n = 10_000
		for range n {
			put(t, kv, "/a", 0)
		}
		for want := int64(2); want < 2+n; want++ {
			if b := <-batches; b.Revision != want {
				t.Fatalf("revision %d, want %d", b.Revision, want)
			}
		}
		rev := put(t, kv, "/a", 0) // caught up: delivered as usual
		if b := <-batches; b.Revision != rev {
			t.Fatalf("revision %d, want %d", b.Revision, rev)
		}
		for range n {
			put(t, kv, "/a", 0)
		}
		synctest.Wait()
		cancel() // in the middle of the backlog
		for range batches {
		}
	})
}

// TestLateReaderCompacted: history that a late watcher still needed is gone.
func TestLateReaderCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := memory.New()
		batches, err := kv.Watch(t.Context(), "/", 1)
		if err != nil {
			t.Fatal(err)
		}
		var rev int64
		for range 10_000 {
			rev = put(t, kv, "/a", 0)
		}
		if err := kv.Compact(t.Context(), rev); err != nil {
			t.Fatal(err)
		}
		var last store.Batch
		n := 0
		for b := range batches {
			last = b
			n++
		}
		if n < 4000 || !errors.Is(last.Err, store.ErrCompacted) {
			t.Errorf("after %d batches: %+v", n, last)
		}
	})
}

// TestClock: leases follow the caller's clock, and end at Tick in the order in
// which they were due.
func TestClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	kv := memory.NewAt(func() time.Time { return now })
	batches, err := kv.Watch(t.Context(), "/", 1)
	if err != nil {
		t.Fatal(err)
	}
	grant := func(ttl time.Duration) store.LeaseID {
		id, err := kv.Grant(t.Context(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	late, soon, kept := grant(20*time.Second), grant(10*time.Second), grant(15*time.Second)
	put(t, kv, "/late", late)
	put(t, kv, "/soon", soon)
	put(t, kv, "/kept", kept)
	for range 3 {
		<-batches
	}
	now = now.Add(9 * time.Second)
	kv.Tick()
	if left, err := kv.KeepAlive(t.Context(), kept); err != nil || left != 15*time.Second {
		t.Errorf("kept alive: %v, %v", left, err)
	}
	select {
	case b := <-batches:
		t.Fatalf("too early: %+v", b)
	default:
	}
	now = now.Add(14 * time.Second)
	kv.Tick()
	for _, want := range []string{"/soon", "/late"} {
		if b := <-batches; len(b.Changes) != 1 || b.Changes[0].Entry.Key != want || !b.Changes[0].Deleted {
			t.Fatalf("got %+v, want the end of %s", b, want)
		}
	}
	kv.Expire(kept)
	if b := <-batches; b.Changes[0].Entry.Key != "/kept" {
		t.Errorf("got %+v", b)
	}
	// A due lease cannot be kept alive, also when nobody ticked.
	last := grant(time.Second)
	now = now.Add(time.Second)
	if _, err := kv.KeepAlive(t.Context(), last); !errors.Is(err, store.ErrLeaseGone) {
		t.Errorf("keep a due lease: %v", err)
	}
}

func TestFaults(t *testing.T) {
	kv := memory.New()
	want := errors.New("fault")
	var asked []string
	kv.Fail(func(op string) error {
		asked = append(asked, op)
		return want
	})
	ctx := t.Context()
	for op, call := range map[string]func() error{
		"range":     func() error { _, err := kv.Range(ctx, store.RangeRequest{}); return err },
		"commit":    func() error { _, err := kv.Commit(ctx, nil, nil); return err },
		"watch":     func() error { _, err := kv.Watch(ctx, "/", 1); return err },
		"progress":  func() error { return kv.Progress(ctx) },
		"compact":   func() error { return kv.Compact(ctx, 1) },
		"grant":     func() error { _, err := kv.Grant(ctx, time.Second); return err },
		"keepalive": func() error { _, err := kv.KeepAlive(ctx, 1); return err },
		"revoke":    func() error { return kv.Revoke(ctx, 1) },
	} {
		asked = nil
		if err := call(); !errors.Is(err, want) || fmt.Sprint(asked) != "["+op+"]" {
			t.Errorf("%s: %v, asked %v", op, err, asked)
		}
	}
	kv.Fail(nil)
	if _, err := kv.Range(ctx, store.RangeRequest{}); err != nil {
		t.Error(err)
	}
}

func TestAddressesCostNothing(t *testing.T) {
	kv := memory.New()
	storetest.AddressesCostNothing(t, kv, kv.Fail)
}
