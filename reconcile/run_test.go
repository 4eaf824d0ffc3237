package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestRunNeverGivesOneKeyToTwoWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		busy, most := map[Key]bool{}, 0
		calls := map[Key]int{}
		l := New(Config{Name: "t", List: noKeys, Workers: 8, Resync: time.Hour,
			Reconciler: reconcilerFunc(func(_ context.Context, k Key) error {
				mu.Lock()
				if busy[k] {
					t.Errorf("%s is worked twice at once", k)
				}
				busy[k] = true
				most = max(most, len(busy))
				calls[k]++
				mu.Unlock()
				time.Sleep(10 * time.Millisecond) // the bubble's clock: how long a call takes
				mu.Lock()
				delete(busy, k)
				mu.Unlock()
				return nil
			})})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		for range 50 {
			for i := range 20 {
				l.Wake(podKey(fmt.Sprint(i)))
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if most != 8 {
			t.Errorf("at most %d keys at once, want all 8 workers busy", most)
		}
		if len(calls) != 20 {
			t.Errorf("%d keys worked, want 20", len(calls))
		}
	})
}

func TestRunWorksAKeyAgainThatWasWokenWhileWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		var l *Loop
		l = New(Config{Name: "t", List: noKeys, Resync: time.Hour,
			Reconciler: reconcilerFunc(func(_ context.Context, k Key) error {
				if calls.Add(1) == 1 {
					l.Wake(k)
					l.Wake(k)
				}
				return nil
			})})
		go l.Run(t.Context())
		l.Wake(podKey("a"))
		synctest.Wait()
		if calls.Load() != 2 {
			t.Fatalf("%d calls, want 2", calls.Load())
		}
	})
}

func TestIdleRunWakesOnlyForResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads, lists atomic.Int32
		l := New(Config{Name: "t", Resync: time.Minute,
			List:       func() []Key { lists.Add(1); return nil },
			Now:        func() time.Time { reads.Add(1); return time.Now() },
			Reconciler: reconcilerFunc(func(context.Context, Key) error { return nil })})
		go l.Run(t.Context())
		synctest.Wait()
		before := reads.Load()
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if got := lists.Load(); got != 11 {
			t.Errorf("%d lists in ten periods after the first, want 11", got)
		}
		if got := reads.Load() - before; got != 10 {
			t.Errorf("%d wake-ups in ten periods of idling, want 10", got)
		}
	})
}

func TestRunHonoursDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		l := New(Config{Name: "t", List: func() []Key { return []Key{podKey("a")} }, Resync: time.Hour,
			Reconciler: reconcilerFunc(func(context.Context, Key) error {
				at = append(at, time.Since(start))
				switch len(at) {
				case 1:
					return After(time.Minute, "minReadySeconds")
				case 2:
					return errors.New("boom")
				}
				return nil
			})})
		go l.Run(t.Context())
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if len(at) != 3 || at[1] != time.Minute || at[2] <= at[1] || at[2] > at[1]+minBackoff {
			t.Fatalf("called at %v, want 0, 1m and within %v after", at, minBackoff)
		}
	})
}

func TestRunAgainStartsAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		l := New(Config{Name: "t", List: func() []Key { return []Key{podKey("a")} }, Resync: time.Hour,
			Reconciler: reconcilerFunc(func(ctx context.Context, _ Key) error {
				calls.Add(1)
				<-ctx.Done()
				return ctx.Err()
			})})
		for want := int32(1); want <= 3; want++ {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- l.Run(ctx) }()
			synctest.Wait()
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if calls.Load() != want {
				t.Fatalf("%d calls after run %d", calls.Load(), want)
			}
		}
	})
}

// TestNoKeyIsLost drives a Loop with any interleaving of wakes, outcomes and
// time, and checks that a key is worked after each wake, and never when nothing
// asked for it.
func TestNoKeyIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		wanted := map[Key]bool{}     // woken since it was last begun
		until := map[Key]time.Time{} // waits until
		var during []Key             // woken inside the call
		outcome := "done"
		l := New(Config{Name: "t", List: noKeys, Now: c.Now, Resync: 24 * 365 * time.Hour, Seed: rapid.Uint64().Draw(t, "seed"), Reconciler: reconcilerFunc(nil)})
		l.cfg.Reconciler = reconcilerFunc(func(_ context.Context, k Key) error {
			due, waits := until[k]
			if !wanted[k] && !(waits && !due.After(c.now)) {
				t.Fatalf("%s worked without a reason", k.Name)
			}
			delete(wanted, k)
			delete(until, k)
			for _, w := range during {
				wanted[w] = true
				l.Wake(w)
			}
			switch outcome {
			case "after":
				until[k] = c.now.Add(time.Second)
				return After(time.Second, "test")
			case "terminal":
				return Terminal(errors.New("bad"))
			case "panic":
				until[k] = c.now // any time from now on
				panic("boom")
			case "error":
				until[k] = c.now
				return errors.New("boom")
			}
			return nil
		})
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		t.Repeat(map[string]func(*rapid.T){
			"wake": func(t *rapid.T) {
				k := podKey(name.Draw(t, "key"))
				wanted[k] = true
				l.Wake(k)
			},
			"step": func(t *rapid.T) {
				outcome = rapid.SampledFrom([]string{"done", "after", "error", "terminal", "panic"}).Draw(t, "outcome")
				during = nil
				for _, n := range rapid.SliceOfN(name, 0, 2).Draw(t, "woken inside") {
					during = append(during, podKey(n))
				}
				expected := len(wanted) > 0
				if worked := l.Step(context.Background()); expected && !worked {
					t.Fatalf("nothing worked although %v are woken", wanted)
				}
			},
			"time": func(t *rapid.T) { c.move(time.Duration(rapid.Int64Range(0, int64(2*time.Minute)).Draw(t, "d"))) },
		})
		outcome, during = "done", nil
		for _, n := range []string{"a", "b", "c"} { // a terminal error is remembered until its key is worked again
			wanted[podKey(n)] = true
			l.Wake(podKey(n))
		}
		c.move(time.Hour)
		drain(l)
		if len(wanted)+len(until) > 0 || len(l.queue.items) > 0 {
			t.Fatalf("left over: wanted %v, waiting %v, remembered %d", wanted, until, len(l.queue.items))
		}
	})
}
