package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

type reconcilerFunc func(context.Context, Key) error

func (f reconcilerFunc) Reconcile(ctx context.Context, key Key) error { return f(ctx, key) }

func podKey(name string) Key {
	return Key{GroupResource: api.Pods(), Namespace: "default", Name: name}
}

// clock is a hand-moved clock.
type clock struct{ now time.Time }

func newClock() *clock                { return &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }
func (c *clock) Now() time.Time       { return c.now }
func (c *clock) move(d time.Duration) { c.now = c.now.Add(d) }

func noKeys() []Key { return nil }

func drain(l *Loop) (n int) {
	for l.Step(context.Background()) {
		n++
	}
	return n
}

func TestFirstStepListsEveryKey(t *testing.T) {
	var got []string
	l := New(Config{Name: "t", List: func() []Key { return []Key{podKey("a"), podKey("b")} },
		Reconciler: reconcilerFunc(func(_ context.Context, k Key) error { got = append(got, k.Name); return nil })})
	drain(l)
	if strings.Join(got, " ") != "a b" {
		t.Fatalf("worked %v, want a b", got)
	}
	if drain(l) != 0 {
		t.Fatal("keys were worked twice")
	}
}

func TestEventsWakeTheKeysOfTheirWatch(t *testing.T) {
	var got []string
	l := New(Config{Name: "t", List: noKeys,
		Reconciler: reconcilerFunc(func(_ context.Context, k Key) error { got = append(got, k.Name); return nil }),
		Watches:    []Watch{Itself(api.Pods())}})
	l.Handle([]store.Event{{Key: podKey("before the first step: List would have found it")}})
	drain(l)
	other := podKey("other")
	other.GroupResource = api.Nodes()
	l.Handle([]store.Event{{Key: podKey("a")}, {Key: other}, {Key: podKey("b")}, {Key: podKey("a")}})
	drain(l)
	if strings.Join(got, " ") != "a b" {
		t.Fatalf("worked %v, want a b", got)
	}
}

func TestErrorsBackOffExponentially(t *testing.T) {
	c := newClock()
	fail := true
	calls := 0
	l := New(Config{Name: "t", List: noKeys, Now: c.Now, Resync: 24 * time.Hour,
		Reconciler: reconcilerFunc(func(context.Context, Key) error {
			calls++
			if fail {
				return errors.New("boom")
			}
			return nil
		})})
	l.Wake(podKey("a"))
	for n := range 20 {
		if drain(l) != 1 {
			t.Fatalf("try %d: not exactly one call", n)
		}
		most := maxBackoff
		if n < 13 {
			most = minBackoff << n
		}
		delay := l.Next().Sub(c.now)
		if delay < most/2 || delay > most {
			t.Fatalf("after %d failures the delay is %v, want within [%v, %v]", n+1, delay, most/2, most)
		}
		c.move(delay - 1)
		if drain(l) != 0 {
			t.Fatal("worked before it was due")
		}
		c.move(1)
	}
	fail = false
	drain(l)
	if !l.Next().IsZero() || len(l.queue.items) != 0 {
		t.Fatal("a key that succeeded is still remembered")
	}
}

func TestAnEventEndsTheBackoff(t *testing.T) {
	calls := 0
	l := New(Config{Name: "t", List: noKeys, Now: newClock().Now,
		Reconciler: reconcilerFunc(func(context.Context, Key) error { calls++; return errors.New("boom") })})
	l.Wake(podKey("a"))
	drain(l)
	l.Wake(podKey("a"))
	if drain(l) != 1 || calls != 2 {
		t.Fatalf("%d calls, want 2", calls)
	}
}

func TestConflictIsRetriedAtOnceThenBounded(t *testing.T) {
	c := newClock()
	var log bytes.Buffer
	l := New(Config{Name: "t", List: noKeys, Now: c.Now, Resync: 24 * time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Reconciler: reconcilerFunc(func(_ context.Context, k Key) error {
			return fmt.Errorf("commit: %w", &store.KeyError{Key: k, Err: store.ErrConflict})
		})})
	l.Wake(podKey("a"))
	if n := drain(l); n != 2 {
		t.Fatalf("%d calls at once, want 2", n)
	}
	for range maxConflicts - 2 {
		if d := l.Next().Sub(c.now); d <= 0 || d > maxContention {
			t.Fatalf("delay %v after a conflict", d)
		}
		c.now = l.Next()
		if n := drain(l); n != 1 {
			t.Fatalf("%d calls, want 1", n)
		}
	}
	if log.Len() != 0 {
		t.Fatalf("a conflict was logged: %s", &log)
	}
	c.now = l.Next()
	drain(l)
	if !strings.Contains(log.String(), "changed meanwhile") {
		t.Fatal("a key that conflicts on and on is not reported")
	}
}

func TestAfterWaitsThatLong(t *testing.T) {
	c := newClock()
	var log bytes.Buffer
	l := New(Config{Name: "t", List: noKeys, Now: c.Now, Resync: 24 * time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Reconciler: reconcilerFunc(func(context.Context, Key) error { return After(time.Minute, "minReadySeconds") })})
	l.Wake(podKey("a"))
	drain(l)
	if got := l.Next().Sub(c.now); got != time.Minute {
		t.Fatalf("due in %v, want 1m", got)
	}
	if log.Len() != 0 {
		t.Fatalf("a wait was logged: %s", &log)
	}
}

func TestTerminalIsNotRetriedAndLoggedOnce(t *testing.T) {
	c := newClock()
	var log bytes.Buffer
	message := "image is not a name"
	l := New(Config{Name: "t", List: noKeys, Now: c.Now, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Reconciler: reconcilerFunc(func(context.Context, Key) error { return fmt.Errorf("plan: %w", Terminal(errors.New(message))) })})
	for range 3 {
		l.Wake(podKey("a"))
		drain(l)
	}
	if !l.Next().IsZero() {
		t.Fatal("a terminal error is retried")
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Fatalf("%d lines logged, want 1:\n%s", n, &log)
	}
	message = "another"
	l.Wake(podKey("a"))
	drain(l)
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Fatalf("%d lines logged after the error changed, want 2:\n%s", n, &log)
	}
}

func TestPanicBacksOffItsKeyOnly(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	worked := false
	l := New(Config{Name: "t", List: noKeys, Now: newClock().Now, Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: registry,
		Reconciler: reconcilerFunc(func(_ context.Context, k Key) error {
			if k.Name == "bad" {
				panic("out of range")
			}
			worked = true
			return nil
		})})
	l.Wake(podKey("bad"))
	l.Wake(podKey("good"))
	drain(l)
	if !worked || l.Next().IsZero() {
		t.Fatalf("worked=%v next=%v", worked, l.Next())
	}
	if !strings.Contains(log.String(), "out of range") || !strings.Contains(log.String(), "loop_test.go") {
		t.Fatalf("the log lacks the panic or its stack:\n%s", &log)
	}
	if got := metric(t, registry, "headway_reconcile_panics_total"); got != 1 {
		t.Fatalf("panics metric is %v, want 1", got)
	}
}

func TestMadeAgainKeepsItsMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	for range 2 {
		l := New(Config{Name: "t", List: noKeys, Metrics: registry, Reconciler: reconcilerFunc(func(context.Context, Key) error { return nil })})
		l.Wake(podKey("a"))
		drain(l)
	}
	if got := metric(t, registry, "headway_reconcile_total"); got != 2 {
		t.Fatalf("total is %v, want 2", got)
	}
}

func TestResyncIsSpreadOverThePeriod(t *testing.T) {
	c := newClock()
	var keys []Key
	for i := range 1000 {
		keys = append(keys, podKey(fmt.Sprintf("p-%d", i)))
	}
	seen := map[Key]int{}
	l := New(Config{Name: "t", List: func() []Key { return keys }, Now: c.Now, Resync: 32 * time.Second,
		Reconciler: reconcilerFunc(func(_ context.Context, k Key) error { seen[k]++; return nil })})
	if drain(l) != 1000 {
		t.Fatal("the first list was not worked whole")
	}
	c.move(32*time.Second - 1)
	if drain(l) != 0 {
		t.Fatal("resync came before its period")
	}
	c.move(1)
	for second := range 64 {
		if n := drain(l); n == 0 || n > 80 {
			t.Fatalf("second %d: %d keys at once, want about 31", second, n)
		}
		c.move(time.Second)
	}
	for k, n := range seen {
		if n != 3 {
			t.Fatalf("%s worked %d times in three rounds", k, n)
		}
	}
}

func metric(t *testing.T, g prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestAfterHaltTheNextStepListsEveryKey(t *testing.T) {
	var got []string
	l := New(Config{Name: "t", List: func() []Key { return []Key{podKey("a")} },
		Reconciler: reconcilerFunc(func(_ context.Context, k Key) error {
			got = append(got, k.Name)
			return After(time.Hour, "test")
		})})
	drain(l)
	l.Wake(podKey("b"))
	l.Halt()
	if !l.Next().IsZero() {
		t.Error("a key still waits")
	}
	drain(l)
	if want := "a,a"; strings.Join(got, ",") != want {
		t.Errorf("worked %q, want %q", got, want)
	}
}
