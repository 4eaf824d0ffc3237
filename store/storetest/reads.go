package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

func fromBackend(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	a := config("default", "a", 1)
	key := store.KeyOf(a)
	created := commit(t, s, create(a))
	a.Data["n"] = "2"
	updated := commit(t, s, txn(store.Update, a))
	// Nothing was stepped: the cache knows nothing, the backend all.
	if s.Get(key) != nil {
		t.Fatal("the cache is ahead of its steps")
	}
	get := func(rev int64) (string, int64) {
		t.Helper()
		obj, at, err := s.GetAt(t.Context(), key, rev)
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*corev1.ConfigMap).Data["n"], at
	}
	if n, at := get(0); n != "2" || at != updated {
		t.Errorf("now: %s at %d", n, at)
	}
	if n, at := get(created); n != "1" || at != created {
		t.Errorf("then: %s at %d", n, at)
	}
	deleted := commit(t, s, txn(store.Delete, a))
	_, at, err := s.GetAt(t.Context(), key, 0)
	wants(t, err, store.ErrNotFound, key)
	if at != deleted {
		t.Errorf("not found at %d, want %d", at, deleted)
	}
	_, _, err = s.GetAt(t.Context(), key, created-1)
	wants(t, err, store.ErrNotFound, key)
	_, _, err = s.GetAt(t.Context(), key, deleted+1)
	wants(t, err, store.ErrFuture, key)
	if err := kv.Compact(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.GetAt(t.Context(), key, created)
	wants(t, err, store.ErrCompacted, key)
	_, err = s.ListAt(t.Context(), api.ConfigMaps(), "", created, 0, "")
	wants(t, err, store.ErrCompacted, store.Key{})
	if now, err := s.Current(t.Context()); err != nil || now != deleted {
		t.Errorf("current: %d, %v; want %d", now, err, deleted)
	}
}

func pages(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	const n = 1234 // more than one read of the backend
	var objs []api.Object
	var rev int64
	for i := range n {
		objs = append(objs, config([]string{"a", "b", "b-c"}[i%3], fmt.Sprintf("c%04d", i), i))
		if len(objs) == store.BulkObjects || i == n-1 {
			rev = commit(t, s, create(objs...))
			objs = nil
		}
	}
	whole, err := s.ListAt(t.Context(), api.ConfigMaps(), "", 0, 0, "")
	if err != nil || len(whole.Objects) != n || whole.Revision != rev || whole.Remaining != 0 || whole.Next != "" {
		t.Fatalf("all: %d objects at %d, %d more, next %q, %v", len(whole.Objects), whole.Revision, whole.Remaining, whole.Next, err)
	}
	for _, test := range []struct {
		namespace string
		limit     int
		want      int
	}{{"", 100, n}, {"", 617, n}, {"", n, n}, {"b", 7, 411}, {"b", 1000, 411}, {"none", 5, 0}} {
		after, at, got := "", int64(0), 0
		for {
			p, err := s.ListAt(t.Context(), api.ConfigMaps(), test.namespace, at, test.limit, after)
			if err != nil {
				t.Fatal(err)
			}
			got += len(p.Objects)
			if p.Remaining != test.want-got || len(p.Objects) > test.limit || at != 0 && p.Revision != at {
				t.Fatalf("%+v: %d objects, %d in all, remaining %d at %d", test, len(p.Objects), got, p.Remaining, p.Revision)
			}
			if at = p.Revision; p.Next == "" {
				break
			}
			after = p.Next
			// What happens between two pages is not in them.
			commit(t, s, create(config("b", fmt.Sprintf("zz-%d-%d-%s", test.limit, got, test.namespace), 1)))
		}
		if got != test.want {
			// The namespace has grown by the former rows' writes.
			t.Errorf("%+v: %d objects", test, got)
		}
		now, err := s.ListAt(t.Context(), api.ConfigMaps(), "b", 0, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		var extra []api.Object
		for _, o := range now.Objects {
			if strings.HasPrefix(o.GetName(), "zz-") {
				extra = append(extra, o)
			}
		}
		for chunk := range slices.Chunk(extra, store.BulkObjects) {
			commit(t, s, txn(store.Delete, chunk...))
		}
	}
}

func waits(t *testing.T, kv store.KV) {
	s := running(t, kv, store.Options{})
	for i := range 50 {
		rev := commit(t, s, create(config("default", fmt.Sprint("c", i), i)))
		reach(t, s, rev)
		if s.Get(store.Key{GroupResource: api.ConfigMaps(), Namespace: "default", Name: fmt.Sprint("c", i)}) == nil {
			t.Fatalf("the cache is at %d without what was written there", s.Revision())
		}
	}
	// A revision that wrote nothing of ours.
	rev := mustCommit(t, kv, store.Write{Key: "/elsewhere", Value: []byte("x")})
	reach(t, s, rev)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.WaitRevision(ctx, rev+1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a revision that does not come: %v", err)
	}
}
