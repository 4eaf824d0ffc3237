package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func config(name string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	store.Stamp(cm, time.Unix(1_700_000_000, 0))
	return cm
}

func create(objs ...api.Object) store.Txn {
	var t store.Txn
	for _, o := range objs {
		t.Ops = append(t.Ops, store.Op{Verb: store.Create, Object: o})
	}
	return t
}

func TestOpenAndSettle(t *testing.T) {
	s := storetest.Open(t)
	a := config("a")
	rev, err := s.Commit(t.Context(), create(a))
	if err != nil {
		t.Fatal(err)
	}
	if s.Get(store.KeyOf(a)) != nil {
		t.Error("seen before a step")
	}
	storetest.Settle(t, s)
	if s.Get(store.KeyOf(a)) == nil || s.Revision() != rev {
		t.Errorf("not seen at %d, want %d", s.Revision(), rev)
	}
}

func TestStamp(t *testing.T) {
	a, b := config("a"), config("b")
	if a.UID == "" || a.UID == b.UID || a.Generation != 1 || a.CreationTimestamp.Unix() != 1_700_000_000 {
		t.Errorf("stamped %+v", a.ObjectMeta)
	}
}

// faulty makes the named operations of a memory backend fail while on.
func faulty(kv *memory.KV, ops ...string) (on *atomic.Bool) {
	on = &atomic.Bool{}
	kv.Fail(func(op string) error {
		for _, o := range ops {
			if o == op && on.Load() {
				return fmt.Errorf("test: %w", store.ErrUnavailable)
			}
		}
		return nil
	})
	return on
}

// TestLostAnswer: a commit whose answer is lost has happened; the caller is told
// that nobody knows, and finds it by reading.
func TestLostAnswer(t *testing.T) {
	kv := memory.New()
	lost := faulty(kv, "committed")
	s := store.New(kv, store.Options{})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost.Store(true)
	a := config("a")
	if _, err := s.Commit(t.Context(), create(a)); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("commit: %v", err)
	}
	if a.ResourceVersion != "" {
		t.Error("the object claims to be written")
	}
	lost.Store(false)
	if _, err := s.Commit(t.Context(), create(a)); !errors.Is(err, store.ErrExists) {
		t.Errorf("again: %v", err)
	}
}

// TestOutage: while the backend is away, the cache answers as before and Run goes
// on; afterwards it catches up, also over a compaction.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := memory.New()
		away := faulty(kv, "range", "watch", "commit", "progress")
		s := store.New(kv, store.Options{})
		away.Store(true)
		if err := s.Load(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("load: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Minute) // of the bubble's clock: the first load is tried all along
		away.Store(false)
		<-s.Synced()

		if _, err := s.Commit(t.Context(), create(config("before"))); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		away.Store(true)
		kv.Break(fmt.Errorf("test: %w", store.ErrUnavailable))
		synctest.Wait()
		if s.Get(store.KeyOf(config("before"))) == nil {
			t.Error("the cache forgot what it knew")
		}
		if _, err := s.Commit(t.Context(), create(config("never"))); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("commit: %v", err)
		}
		if _, _, err := s.GetAt(t.Context(), store.KeyOf(config("before")), 0); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("get: %v", err)
		}
		if err := s.WaitRevision(t.Context(), 1000); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("wait: %v", err)
		}
		// Another server goes on meanwhile, and history is forgotten.
		away.Store(false)
		other := store.New(kv, store.Options{})
		var rev int64
		for i := range 5 {
			var err error
			if rev, err = other.Commit(t.Context(), create(config(fmt.Sprint("during-", i)))); err != nil {
				t.Fatal(err)
			}
		}
		if err := kv.Compact(t.Context(), rev); err != nil {
			t.Fatal(err)
		}
		if err := s.WaitRevision(t.Context(), rev); err != nil {
			t.Fatal(err)
		}
		if n := len(s.List(api.ConfigMaps(), "")); n != 6 {
			t.Errorf("%d objects, want 6", n)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// TestStepFaults: a step reports what broke, and the next one mends it.
func TestStepFaults(t *testing.T) {
	kv := memory.New()
	s := store.New(kv, store.Options{})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.Settle(t, s)
	kv.Break(fmt.Errorf("test: %w", store.ErrUnavailable))
	if _, err := s.Commit(t.Context(), create(config("a"))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Step(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("step over a broken watch: %v", err)
	}
	storetest.Settle(t, s)
	if s.Get(store.KeyOf(config("a"))) == nil {
		t.Error("the step after did not catch up")
	}
}

// TestRunAlone: two goroutines cannot apply.
func TestRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storetest.Open(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		if _, err := s.Step(t.Context()); err == nil {
			t.Error("a step beside Run")
		}
		if err := s.Load(t.Context()); err == nil {
			t.Error("a load beside Run")
		}
		if err := s.Run(t.Context()); err == nil {
			t.Error("two runs")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestRunStopsAtGarbage: a value that does not decode is not skipped, which would
// look like a deletion, but ends Run.
func TestRunStopsAtGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := memory.New()
		s := store.New(kv, store.Options{})
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context()) }()
		<-s.Synced()
		key := store.KeyOf(config("a"))
		if _, err := kv.Commit(t.Context(), nil, []store.Write{{Key: key.Path(), Value: []byte("garbage")}}); err != nil {
			t.Fatal(err)
		}
		var ke *store.KeyError
		if err := <-ended; !errors.As(err, &ke) || ke.Key != key {
			t.Errorf("run: %v", err)
		}
	})
}

// held is a backend whose reads wait, and are counted.
type held struct {
	store.KV
	gate  chan struct{}
	reads atomic.Int64
}

func (h *held) Range(ctx context.Context, r store.RangeRequest) (store.RangeResponse, error) {
	h.reads.Add(1)
	select {
	case <-h.gate:
	case <-ctx.Done():
		return store.RangeResponse{}, ctx.Err()
	}
	return h.KV.Range(ctx, r)
}

// TestCurrentIsShared: callers that come while a read is under way share exactly
// one more, also when the one who was to do it leaves.
func TestCurrentIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &held{KV: memory.New(), gate: make(chan struct{})}
		s := store.New(kv, store.Options{})
		const callers = 50
		answers := make(chan error, callers+2)
		ask := func(ctx context.Context) {
			_, err := s.Current(ctx)
			answers <- err
		}
		go ask(t.Context())
		synctest.Wait()
		leaving, leave := context.WithCancel(t.Context())
		go ask(leaving)
		synctest.Wait()
		for range callers {
			go ask(t.Context())
		}
		synctest.Wait()
		leave()
		if err := <-answers; !errors.Is(err, context.Canceled) {
			t.Errorf("who left: %v", err)
		}
		synctest.Wait()
		close(kv.gate)
		for range callers + 1 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if n := kv.reads.Load(); n != 2 {
			t.Errorf("%d reads, want 2", n)
		}
	})
}
