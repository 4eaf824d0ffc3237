package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/store"
)

// Patience bounds every wait of the suite. It is long because the machine may be
// busy, and no test waits for it to pass.
const Patience = 2 * time.Minute

// KV is the contract of a backend. open returns an empty one.
func KV(t *testing.T, open func(testing.TB) store.KV) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, store.KV)
	}{
		{"range is in order, counts, limits", rangeOrder},
		{"range at a past revision", rangePast},
		{"commit is all or nothing", commitCompares},
		{"deleting nothing is no revision", deleteNothing},
		{"bounds of a commit", commitBounds},
		{"watch gives each revision whole", watchWhole},
		{"watch from the past", watchPast},
		{"watch misses nothing while many write", watchConcurrent},
		{"watch ends with its context", watchEnds},
		{"watch of a compacted revision", watchCompacted},
		{"compaction keeps its own revision", compactKeeps},
		{"progress tells the revision", progress},
		{"progress does not overtake a watch from the past", progressInOrder},
		{"lease expiry deletes its keys at once", leaseExpires},
		{"lease kept alive, revoked, gone", leaseLife},
		{"a key leaves its lease when written without", leaseDetached},
		{"a cancelled request is unavailable", cancelled},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

const base = store.Prefix + "kv/"

func put(key, value string) store.Write { return store.Write{Key: base + key, Value: []byte(value)} }

func mustCommit(t testing.TB, kv store.KV, writes ...store.Write) int64 {
	t.Helper()
	out, err := kv.Commit(t.Context(), nil, writes)
	if err != nil || !out.OK {
		t.Fatalf("commit: %+v, %v", out, err)
	}
	return out.Revision
}

func mustRange(t testing.TB, kv store.KV, r store.RangeRequest) store.RangeResponse {
	t.Helper()
	got, err := kv.Range(t.Context(), r)
	if err != nil {
		t.Fatalf("range %+v: %v", r, err)
	}
	return got
}

// everything is the range of all keys of these tests.
func everything() store.RangeRequest {
	return store.RangeRequest{Start: base, End: strings.TrimSuffix(base, "/") + "0"}
}

func show(entries []store.Entry) string {
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimPrefix(e.Key, base)+"="+string(e.Value))
	}
	return strings.Join(out, " ")
}

// next returns the next batch with changes.
func next(t testing.TB, batches <-chan store.Batch) store.Batch {
	t.Helper()
	timeout := time.After(Patience)
	for {
		select {
		case b, ok := <-batches:
			if !ok {
				t.Fatal("watch ended")
			}
			if b.Err != nil || len(b.Changes) > 0 {
				return b
			}
		case <-timeout:
			t.Fatal("no batch came")
		}
	}
}

func rangeOrder(t *testing.T, kv store.KV) {
	if r := mustRange(t, kv, everything()); len(r.Entries) != 0 || r.Count != 0 || r.Revision < 1 {
		t.Fatalf("empty backend: %+v", r)
	}
	first := mustCommit(t, kv, put("b", "2"), put("a", "1"), put("c", "3"))
	second := mustCommit(t, kv, put("b", "22"))
	if second != first+1 {
		t.Fatalf("revisions %d, %d: want the next", first, second)
	}
	r := mustRange(t, kv, everything())
	if got, want := show(r.Entries), "a=1 b=22 c=3"; got != want || r.Count != 3 || r.Revision != second {
		t.Errorf("got %s (%d at %d), want %s (3 at %d)", got, r.Count, r.Revision, want, second)
	}
	if e := r.Entries[1]; e.CreateRevision != first || e.ModRevision != second {
		t.Errorf("entry %+v: want created %d, modified %d", e, first, second)
	}
	limited := everything()
	limited.Limit = 2
	if r := mustRange(t, kv, limited); show(r.Entries) != "a=1 b=22" || r.Count != 3 {
		t.Errorf("limit 2: %s, count %d", show(r.Entries), r.Count)
	}
	keys := everything()
	keys.KeysOnly = true
	if r := mustRange(t, kv, keys); show(r.Entries) != "a= b= c=" {
		t.Errorf("keys only: %s", show(r.Entries))
	}
	count := everything()
	count.CountOnly = true
	if r := mustRange(t, kv, count); len(r.Entries) != 0 || r.Count != 3 {
		t.Errorf("count only: %+v", r)
	}
	if r := mustRange(t, kv, store.RangeRequest{Start: base + "b"}); show(r.Entries) != "b=22" || r.Count != 1 {
		t.Errorf("one key: %s, count %d", show(r.Entries), r.Count)
	}
	if r := mustRange(t, kv, store.RangeRequest{Start: base + "b", End: base + "c"}); show(r.Entries) != "b=22" {
		t.Errorf("the end is not part of a range: %s", show(r.Entries))
	}
}

func rangePast(t *testing.T, kv store.KV) {
	one := mustCommit(t, kv, put("a", "1"))
	two := mustCommit(t, kv, put("a", "2"), put("b", "1"))
	three := mustCommit(t, kv, store.Write{Key: base + "a", Delete: true})
	at := func(rev int64) (string, error) {
		r := everything()
		r.Revision = rev
		got, err := kv.Range(t.Context(), r)
		return show(got.Entries), err
	}
	for rev, want := range map[int64]string{one: "a=1", two: "a=2 b=1", three: "b=1"} {
		if got, err := at(rev); got != want || err != nil {
			t.Errorf("at %d: %q, %v; want %q", rev, got, err, want)
		}
	}
	if _, err := at(three + 1); !errors.Is(err, store.ErrFuture) {
		t.Errorf("a future revision: %v", err)
	}
	if err := kv.Compact(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	if _, err := at(one); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("a compacted revision: %v", err)
	}
	if got, err := at(two); got != "a=2 b=1" || err != nil {
		t.Errorf("the revision compacted to: %q, %v", got, err)
	}
	if err := kv.Compact(t.Context(), two); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("compact again: %v", err)
	}
	if err := kv.Compact(t.Context(), three+10); !errors.Is(err, store.ErrFuture) {
		t.Errorf("compact the future: %v", err)
	}
}

func commitCompares(t *testing.T, kv store.KV) {
	created := mustCommit(t, kv, put("a", "1"))
	changed := mustCommit(t, kv, put("a", "2"))
	a, none := base+"a", base+"none"
	for _, test := range []struct {
		name     string
		compares []store.Compare
		failed   []store.Failed // nil: it holds
	}{
		{"absent", []store.Compare{{Key: none}}, nil},
		{"mod revision", []store.Compare{{Key: a, Revision: changed}}, nil},
		{"create revision", []store.Compare{{Key: a, Create: true, Revision: created}}, nil},
		{"absent by create revision", []store.Compare{{Key: none, Create: true}}, nil},
		{"not absent", []store.Compare{{Key: a}}, []store.Failed{{Index: 0, Revision: changed}}},
		{"old mod revision", []store.Compare{{Key: a, Revision: created}}, []store.Failed{{Index: 0, Revision: changed}}},
		{"other create revision", []store.Compare{{Key: a, Create: true, Revision: changed}}, []store.Failed{{Index: 0, Revision: created}}},
		{"missing", []store.Compare{{Key: a, Revision: changed}, {Key: none, Revision: 7}, {Key: a}}, []store.Failed{{Index: 1}, {Index: 2, Revision: changed}}},
	} {
		before := mustRange(t, kv, everything())
		out, err := kv.Commit(t.Context(), test.compares, []store.Write{put("x", test.name), put("y", test.name)})
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		after := mustRange(t, kv, everything())
		if test.failed == nil {
			if !out.OK || out.Revision != before.Revision+1 || after.Revision != out.Revision {
				t.Errorf("%s: %+v after %d", test.name, out, before.Revision)
			}
			continue
		}
		if out.OK || !slices.Equal(out.Failed, test.failed) {
			t.Errorf("%s: %+v, want failed %+v", test.name, out, test.failed)
		}
		if show(after.Entries) != show(before.Entries) || after.Revision != before.Revision {
			t.Errorf("%s: a refused commit changed %s to %s", test.name, show(before.Entries), show(after.Entries))
		}
	}
}

func deleteNothing(t *testing.T, kv store.KV) {
	rev := mustCommit(t, kv, put("a", "1"))
	if got := mustCommit(t, kv, store.Write{Key: base + "none", Delete: true}); got != rev {
		t.Errorf("revision %d, want still %d", got, rev)
	}
}

func commitBounds(t *testing.T, kv store.KV) {
	many := func(n int) (compares []store.Compare, writes []store.Write) {
		for i := range n {
			compares = append(compares, store.Compare{Key: fmt.Sprintf("%skey-%04d", base, i)})
			writes = append(writes, put(fmt.Sprintf("key-%04d", i), "v"))
		}
		return compares, writes
	}
	compares, writes := many(store.MaxOps + 1)
	if _, err := kv.Commit(t.Context(), compares, nil); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("too many compares: %v", err)
	}
	if _, err := kv.Commit(t.Context(), nil, writes); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("too many writes: %v", err)
	}
	if _, err := kv.Commit(t.Context(), nil, []store.Write{put("big", strings.Repeat("x", store.MaxBytes))}); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("too many bytes: %v", err)
	}
	if r := mustRange(t, kv, everything()); r.Count != 0 {
		t.Fatalf("%d keys were written", r.Count)
	}
	compares, writes = many(store.MaxOps)
	for i := range writes {
		writes[i].Value = make([]byte, store.MaxBytes/store.MaxOps-len(writes[i].Key))
	}
	if out, err := kv.Commit(t.Context(), compares, writes); err != nil || !out.OK {
		t.Fatalf("the largest commit: %+v, %v", out, err)
	}
	if out, err := kv.Commit(t.Context(), compares, writes); err != nil || out.OK || len(out.Failed) != store.MaxOps {
		t.Fatalf("the largest refusal: ok %t, %d failed, %v", out.OK, len(out.Failed), err)
	}
}
