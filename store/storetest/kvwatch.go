package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/store"
)

func watchWhole(t *testing.T, kv store.KV) {
	batches, err := kv.Watch(t.Context(), base, 1)
	if err != nil {
		t.Fatal(err)
	}
	var writes []store.Write
	for i := range store.BulkObjects {
		writes = append(writes, put(fmt.Sprintf("%03d", store.BulkObjects-1-i), "v"))
	}
	rev := mustCommit(t, kv, writes...)
	b := next(t, batches)
	if b.Revision != rev || len(b.Changes) != len(writes) {
		t.Fatalf("batch of %d changes at %d, want %d at %d", len(b.Changes), b.Revision, len(writes), rev)
	}
	for i, c := range b.Changes {
		if c.Entry.Key != fmt.Sprintf("%s%03d", base, i) || string(c.Entry.Value) != "v" || c.Deleted || c.Entry.CreateRevision != rev || c.Entry.ModRevision != rev {
			t.Fatalf("change %d: %+v", i, c)
		}
	}
	// Keys outside of the prefix are not seen, also when written together.
	rev = mustCommit(t, kv, store.Write{Key: store.Prefix + "other", Value: []byte("v")}, put("in", "v"), store.Write{Key: base + "000", Delete: true})
	b = next(t, batches)
	if b.Revision != rev || len(b.Changes) != 2 || !b.Changes[0].Deleted || b.Changes[0].Entry.ModRevision != rev || b.Changes[1].Deleted {
		t.Fatalf("batch %+v at %d", b, rev)
	}
}

func watchPast(t *testing.T, kv store.KV) {
	var revisions []int64
	for i := range 5 {
		revisions = append(revisions, mustCommit(t, kv, put("a", fmt.Sprint(i)), put("b", fmt.Sprint(i))))
	}
	for i, from := range revisions {
		ctx, cancel := context.WithCancel(t.Context())
		batches, err := kv.Watch(ctx, base, from)
		if err != nil {
			t.Fatal(err)
		}
		for j := i; j < len(revisions); j++ {
			if b := next(t, batches); b.Revision != revisions[j] || len(b.Changes) != 2 || string(b.Changes[0].Entry.Value) != fmt.Sprint(j) {
				t.Fatalf("from %d: %+v, want revision %d", from, b, revisions[j])
			}
		}
		cancel()
	}
}

func watchConcurrent(t *testing.T, kv store.KV) {
	const writers, each = 4, 100
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := kv.Commit(t.Context(), nil, []store.Write{put(fmt.Sprintf("%d-a", w), fmt.Sprint(i)), put(fmt.Sprintf("%d-b", w), fmt.Sprint(i))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	batches, err := kv.Watch(t.Context(), base, 1)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	for range writers * each {
		b := next(t, batches)
		if last != 0 && b.Revision != last+1 || len(b.Changes) != 2 {
			t.Fatalf("after revision %d came %+v", last, b)
		}
		last = b.Revision
	}
	wg.Wait()
}

func watchEnds(t *testing.T, kv store.KV) {
	ctx, cancel := context.WithCancel(t.Context())
	batches, err := kv.Watch(ctx, base, 1)
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, kv, put("a", "1"))
	next(t, batches)
	cancel()
	timeout := time.After(Patience)
	for {
		select {
		case b, ok := <-batches:
			if !ok {
				return
			}
			if b.Err != nil {
				t.Fatalf("a cancelled watch ends without an error: %v", b.Err)
			}
		case <-timeout:
			t.Fatal("the watch did not end")
		}
	}
}

func watchCompacted(t *testing.T, kv store.KV) {
	mustCommit(t, kv, put("a", "1"))
	mustCommit(t, kv, put("a", "2"))
	rev := mustCommit(t, kv, put("a", "3"))
	if err := kv.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	batches, err := kv.Watch(t.Context(), base, rev-1)
	if err != nil {
		t.Fatal(err)
	}
	if b := next(t, batches); !errors.Is(b.Err, store.ErrCompacted) {
		t.Fatalf("got %+v", b)
	}
	if _, ok := <-batches; ok {
		t.Fatal("the watch goes on after its error")
	}
}

func compactKeeps(t *testing.T, kv store.KV) {
	mustCommit(t, kv, put("gone", "1"), put("kept", "1"))
	rev := mustCommit(t, kv, store.Write{Key: base + "gone", Delete: true}, put("kept", "2"), put("new", "1"))
	if err := kv.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	batches, err := kv.Watch(t.Context(), base, rev)
	if err != nil {
		t.Fatal(err)
	}
	b := next(t, batches)
	if b.Err != nil || b.Revision != rev || len(b.Changes) != 3 || !b.Changes[0].Deleted {
		t.Fatalf("got %+v", b)
	}
}

func progress(t *testing.T, kv store.KV) {
	batches, err := kv.Watch(t.Context(), base, 1)
	if err != nil {
		t.Fatal(err)
	}
	rev := mustCommit(t, kv, store.Write{Key: store.Prefix + "elsewhere", Value: []byte("v")})
	timeout := time.After(Patience)
	for {
		if err := kv.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case b := <-batches:
			if b.Err != nil || len(b.Changes) != 0 {
				t.Fatalf("got %+v", b)
			}
			if b.Revision >= rev {
				return
			}
		case <-time.After(100 * time.Millisecond): // asked before the watch was there: ask again
		case <-timeout:
			t.Fatal("no progress came")
		}
	}
}

// progressInOrder: what progress says of a watch that was there before is not said
// to one that has its past still to come, whose reader would take it as seen.
func progressInOrder(t *testing.T, kv store.KV) {
	before, err := kv.Watch(t.Context(), base, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		rev := mustCommit(t, kv, put("a", fmt.Sprint(i)))
		next(t, before)
		for range 3 {
			if err := kv.Progress(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		batches, err := kv.Watch(ctx, base, rev)
		if err != nil {
			t.Fatal(err)
		}
		for told := false; !told; {
			select {
			case b := <-batches:
				told = len(b.Changes) > 0
				if !told && (b.Err != nil || b.Revision >= rev) {
					t.Fatalf("watch %d, from %d: got %+v before that revision", i, rev, b)
				}
			case <-time.After(Patience):
				t.Fatalf("watch %d, from %d: no batch came", i, rev)
			}
		}
		cancel()
	}
}

func mustGrant(t testing.TB, kv store.KV, ttl time.Duration) store.LeaseID {
	t.Helper()
	id, err := kv.Grant(t.Context(), ttl)
	if err != nil || id == 0 {
		t.Fatalf("grant: %d, %v", id, err)
	}
	return id
}

// leased writes under a lease that soon ends by itself, and gets a longer one when
// the machine is too busy to write in time.
func leased(t testing.TB, kv store.KV, write func(store.LeaseID) (revision int64, err error)) (store.LeaseID, int64) {
	t.Helper()
	for ttl := time.Second; ; ttl *= 2 {
		id := mustGrant(t, kv, ttl)
		rev, err := write(id)
		if err == nil {
			return id, rev
		}
		if !errors.Is(err, store.ErrLeaseGone) || ttl > Patience {
			t.Fatal(err)
		}
	}
}

func leaseExpires(t *testing.T, kv store.KV) {
	id, rev := leased(t, kv, func(id store.LeaseID) (int64, error) {
		a, b := put("a", "1"), put("b", "1")
		a.Lease, b.Lease = id, id
		out, err := kv.Commit(t.Context(), nil, []store.Write{a, b, put("c", "1")})
		return out.Revision, err
	})
	written := everything()
	written.Revision = rev
	if r := mustRange(t, kv, written); r.Entries[0].Lease != id || r.Entries[2].Lease != 0 {
		t.Fatalf("leases of %+v", r.Entries)
	}
	batches, err := kv.Watch(t.Context(), base, rev+1)
	if err != nil {
		t.Fatal(err)
	}
	got := next(t, batches)
	if len(got.Changes) != 2 || !got.Changes[0].Deleted || !got.Changes[1].Deleted || got.Changes[1].Entry.Key != base+"b" {
		t.Fatalf("got %+v", got)
	}
	if r := mustRange(t, kv, everything()); show(r.Entries) != "c=1" {
		t.Fatalf("left: %s", show(r.Entries))
	}
	if _, err := kv.KeepAlive(t.Context(), id); !errors.Is(err, store.ErrLeaseGone) {
		t.Errorf("keep an ended lease alive: %v", err)
	}
}

func leaseLife(t *testing.T, kv store.KV) {
	id := mustGrant(t, kv, time.Minute)
	if left, err := kv.KeepAlive(t.Context(), id); err != nil || left != time.Minute {
		t.Fatalf("keep alive: %v left, %v", left, err)
	}
	w := put("a", "1")
	w.Lease = id
	mustCommit(t, kv, w)
	if err := kv.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if r := mustRange(t, kv, everything()); r.Count != 0 {
		t.Fatalf("left: %s", show(r.Entries))
	}
	if err := kv.Revoke(t.Context(), id); !errors.Is(err, store.ErrLeaseGone) {
		t.Errorf("revoke again: %v", err)
	}
	if _, err := kv.Commit(t.Context(), nil, []store.Write{w}); !errors.Is(err, store.ErrLeaseGone) {
		t.Errorf("write with a lease that is gone: %v", err)
	}
}

func leaseDetached(t *testing.T, kv store.KV) {
	id := mustGrant(t, kv, time.Minute)
	w := put("a", "1")
	w.Lease = id
	mustCommit(t, kv, w)
	mustCommit(t, kv, put("a", "2"))
	if err := kv.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if r := mustRange(t, kv, everything()); show(r.Entries) != "a=2" {
		t.Fatalf("left: %s", show(r.Entries))
	}
}

func cancelled(t *testing.T, kv store.KV) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kv.Range(ctx, everything()); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("range: %v", err)
	}
	if _, err := kv.Commit(ctx, nil, []store.Write{put("a", "1")}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("commit: %v", err)
	}
	if _, err := kv.Grant(ctx, time.Minute); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("grant: %v", err)
	}
}
