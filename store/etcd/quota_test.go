package etcd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"headway.dev/headway/store"
)

func member(t testing.TB, c Config) *Etcd {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	e, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// noise is a value that does not compress and is as large as an object may be.
func noise() []byte {
	value := make([]byte, store.ObjectBytes)
	if _, err := rand.Read(value); err != nil {
		panic(err)
	}
	return value
}

// patiently does again what a disk that others keep busy made etcd give up on.
// Every f of these tests may be done twice.
func patiently(f func() error) error {
	var err error
	for range 20 {
		if err = f(); !errors.Is(err, store.ErrUnavailable) {
			return err
		}
	}
	return err
}

// TestHistoryBeyond2GiB writes more history than etcd's default quota allows,
// with maintenance on a clock that makes a minute of every few writes: the
// database stays small, nothing is refused, and the newest values are there.
func TestHistoryBeyond2GiB(t *testing.T) {
	e := member(t, Config{})
	kv := e.KV()
	const keys, perMinute = 8, 16
	total := int64(2200 << 20)
	if testing.Short() {
		total = 600 << 20
	}
	value, now := noise(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var written, largest int64
	for n := 0; written < total; n++ {
		copy(value, fmt.Sprintf("%08d", n))
		write := []store.Write{{Key: fmt.Sprintf("%skey-%d", store.Prefix, n%keys), Value: value}}
		err := patiently(func() error { _, err := kv.Commit(t.Context(), nil, write); return err })
		if err != nil {
			t.Fatalf("after %d MiB: %v", written>>20, err)
		}
		written += int64(len(value))
		if n%perMinute == 0 {
			now = now.Add(time.Minute)
			if err := patiently(func() error { return e.maintain(t.Context(), now) }); err != nil {
				t.Fatal(err)
			}
			largest = max(largest, e.Usage().Bytes)
		}
		if n%keys == 0 {
			r, err := kv.Range(t.Context(), store.RangeRequest{Start: store.Prefix + "key-0"})
			if err != nil || string(r.Entries[0].Value[:8]) != fmt.Sprintf("%08d", n) {
				t.Fatalf("write %d: read back %v", n, err)
			}
		}
	}
	t.Logf("%d MiB of history, database at most %d MiB, now %+v", written>>20, largest>>20, e.Usage())
	// 10 minutes kept and 5 between compactions are at most 16 minutes of writes;
	// the file may be twice that before it is worth giving space back.
	if bound := int64(2 * 16 * perMinute * store.ObjectBytes); largest > bound {
		t.Errorf("the database grew to %d MiB, want at most %d", largest>>20, bound>>20)
	}
	if u := e.Usage(); u.State != Roomy {
		t.Errorf("usage %+v", u)
	}
}

// TestQuota fills a member: it warns near the quota, refuses writes at it with
// ErrFull, goes on reading and deleting, and is mended by maintenance.
func TestQuota(t *testing.T) {
	var states []State
	const quota = 256 << 20
	dir := t.TempDir()
	e := member(t, Config{Dir: dir, Quota: quota, OnUsage: func(u Usage) { states = append(states, u.State) }})
	kv := e.KV()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	value := noise()
	write := func() error {
		return patiently(func() error {
			_, err := kv.Commit(t.Context(), nil, []store.Write{{Key: store.Prefix + "key", Value: value}})
			return err
		})
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if err := e.maintain(t.Context(), now); err != nil || e.Usage().State != Roomy || len(states) != 0 {
		t.Fatalf("at the start: %+v, %v, told %v", e.Usage(), err, states)
	}
	var err error
	for n := 0; n < 2*quota/len(value); n++ {
		if err = write(); err != nil {
			break
		}
		// Etcd counts what its backend has committed. Without this a fast writer is far
		// beyond the quota before a slow disk has finished one commit.
		if n%8 == 7 {
			e.server.Server.Backend().ForceCommit()
		}
		if e.server.Server.Backend().Size() > quota*85/100 && len(states) == 0 {
			// The clock stands: nothing is old enough to be compacted.
			if err := patiently(func() error { return e.maintain(t.Context(), now) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("beyond the quota: %v", err)
	}
	if len(states) != 1 || states[0] != Near {
		t.Errorf("told %v, want near", states)
	}
	if _, err := kv.Grant(t.Context(), time.Minute); !errors.Is(err, store.ErrFull) {
		t.Errorf("grant: %v", err)
	}
	if r, err := kv.Range(t.Context(), store.RangeRequest{Start: store.Prefix + "key"}); err != nil || len(r.Entries) != 1 {
		t.Errorf("read when full: %v", err)
	}
	if _, err := kv.Commit(t.Context(), nil, []store.Write{{Key: store.Prefix + "key", Delete: true}}); err != nil {
		t.Errorf("delete when full: %v", err)
	}
	if err := patiently(func() error { return e.maintain(t.Context(), now) }); err != nil {
		t.Fatal(err)
	}
	u := e.Usage()
	t.Logf("after maintenance: %+v, told %v", u, states)
	if u.State != Roomy || u.Bytes > quota/4 {
		t.Errorf("after maintenance: %+v", u)
	}
	if len(states) != 3 || states[1] != Full || states[2] != Roomy {
		t.Errorf("told %v, want near, full, roomy", states)
	}
	if err := write(); err != nil {
		t.Errorf("write after maintenance: %v", err)
	}
}

func TestDue(t *testing.T) {
	var k keeper
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var got []string
	for minute := range 40 {
		if rev, ok := k.due(start.Add(time.Duration(minute)*time.Minute), int64(100+minute)); ok {
			got = append(got, fmt.Sprintf("%d: %d", minute, rev))
		}
		if len(k.marks) > 20 {
			t.Fatalf("%d marks", len(k.marks))
		}
	}
	// Every five minutes, to what was current ten minutes before.
	if want := "[10: 100 15: 105 20: 110 25: 115 30: 120 35: 125]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestWantsDefrag(t *testing.T) {
	for _, test := range []struct {
		u    Usage
		want bool
	}{
		{Usage{State: Roomy, Bytes: 100 << 20, InUse: 90 << 20}, false},
		{Usage{State: Roomy, Bytes: 60 << 20, InUse: 1 << 20}, false}, // not worth it
		{Usage{State: Roomy, Bytes: 200 << 20, InUse: 90 << 20}, true},
		{Usage{State: Near, Bytes: 7 << 30, InUse: 6 << 30}, false},
		{Usage{State: Near, Bytes: 7 << 30, InUse: 5 << 30}, true},
		{Usage{State: Full, Bytes: 8 << 30, InUse: 8 << 30}, false},
	} {
		if got := wantsDefrag(test.u); got != test.want {
			t.Errorf("%+v: %t", test.u, got)
		}
	}
}
