package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A registry that trickles holds its own places only, and not even those for ever.
func TestASlowRegistryLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		slow := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		s.during = func(ctx context.Context) error {
			if ctx.Value(fast{}) != nil {
				return nil
			}
			return slow(ctx)
		}
		images := newImages(t, s, 4)
		images.lanes = newLanes(4, 2)
		s.fetching = func(p *Progress) { p.asked(time.Now()) }
		var wg sync.WaitGroup
		failed := make(chan error, 8)
		start := time.Now()
		for i := range 8 {
			wg.Go(func() {
				_, err := images.Ensure(t.Context(), Request{Name: fmt.Sprintf("slow.example/a:%d", i), Policy: Always})
				failed <- err
			})
		}
		synctest.Wait()
		s.registry["quick.example/a:1"] = "a"
		if _, err := images.Ensure(context.WithValue(t.Context(), fast{}, true), Request{Name: "quick.example/a:1", Policy: Always}); err != nil || time.Since(start) > 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		wg.Wait()
		for range 8 {
			if err := <-failed; err == nil || !strings.Contains(err.Error(), "slow.example sent nothing for 1m0s: given up") {
				t.Error(err)
			}
		}
		if took := time.Since(start); took > 5*time.Minute {
			t.Errorf("eight pulls, two at a time, took %s", took)
		}
	})
}

type fast struct{}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		recent     int64
		idle, over time.Duration
		wanted     bool
		gone       string
	}{
		{0, 59 * time.Second, 59 * time.Second, true, ""},
		{0, time.Minute, time.Minute, false, "sent nothing for 1m0s"},
		{100, time.Second, time.Minute, false, ""}, // slow, but it is in nobody's way
		{100, time.Second, time.Minute, true, "sent 100 bytes in 1m0s and other images wait"},
		{100, time.Second, 59 * time.Second, true, ""},
		{60 * slowest, time.Second, time.Minute, true, ""},
	} {
		err := judge("r.example", tc.recent, tc.idle, tc.over, tc.wanted)
		if (err == nil) != (tc.gone == "") || err != nil && !strings.Contains(err.Error(), tc.gone) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// What is unpacked asks a registry for nothing, however long it takes.
func TestUnpackingIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.registry["docker.io/library/a:1"] = "a"
		s.fetching = func(p *Progress) { p.asked(time.Now()); p.fetched(1<<20, time.Now()); p.answered() }
		s.during = func(ctx context.Context) error {
			select {
			case <-time.After(time.Hour):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		var said []string
		_, err := newImages(t, s, 1).Ensure(t.Context(), Request{Name: "a:1", Policy: Always, Progress: func(_, message string) { said = append(said, message) }})
		if err != nil {
			t.Error(err)
		}
		// Told at 30 s, 1.5 min, 3.5 min, 7.5 min, 15.5 min, 30.5 min, 45.5 min.
		if len(said) != 9 || !strings.Contains(said[1], "1.0 MiB came in 30s") || !strings.Contains(said[7], "45m30s") {
			t.Errorf("%d: %q", len(said), said)
		}
	})
}

func TestLanesForgetWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(1, 0)
		if err := l.enter(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- l.enter(ctx, "b") }()
		synctest.Wait()
		if !l.wanted("a") {
			t.Error("nobody waits")
		}
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) || l.wanted("a") {
			t.Errorf("%v", err)
		}
		l.leave("a")
		if err := l.enter(t.Context(), "b"); err != nil || l.all != 1 || len(l.busy) != 1 {
			t.Errorf("%v, %d %v", err, l.all, l.busy)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "30": 30 * time.Second, "-1": 0, "never": 0, "999999": time.Hour, "99999999999999": 0,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got := parseRetryAfter(text, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
