package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestLittleSpace(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, test := range []struct {
		free, total uint64
		was, low    bool
	}{
		{100 * gib, 1000 * gib, false, false},
		{21 * gib, 1000 * gib, false, false}, // a fiftieth, and enough
		{19 * gib, 1000 * gib, false, true},
		{11 * gib, 100 * gib, false, false},
		{9 * gib, 100 * gib, false, true},
		{1025 * mib, 5 * gib, false, false},
		{1023 * mib, 5 * gib, false, true},
		{1025 * mib, 5 * gib, true, true}, // it was low: not for so little
		{1127 * mib, 5 * gib, true, false},
		{0, 0, false, true},
	} {
		if got := (space{test.free, test.total}).low(test.was); got != test.low {
			t.Errorf("%d of %d MiB free, was %t: %t", test.free/mib, test.total/mib, test.was, got)
		}
	}
	if s, err := spaceOf(t.TempDir()); err != nil || s.free == 0 || s.total < s.free {
		t.Errorf("here: %+v, %v", s, err)
	}
	if _, err := spaceOf("/no/such/folder"); err == nil || !strings.Contains(err.Error(), "/no/such/folder") {
		t.Errorf("nowhere: %v", err)
	}
}

// A file system that fills up fails readiness, is an Event and a line in the log,
// once, and so is its end.
func TestDiskNearlyFullFailsReadinessAndIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Uint64 // 0: no answer
		free.Store(50 << 30)
		ask := func(string) (space, error) {
			if free.Load() == 0 {
				return space{}, errors.New("away")
			}
			return space{free: free.Load(), total: 100 << 30}, nil
		}
		var told, logged []string
		d := &disk{path: "/data", space: ask, log: slog.New(lines{&logged}),
			tell: func(_ context.Context, kind, reason, message string) { told = append(told, kind+" "+reason) }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.watch(ctx) }()
		minute := func(n int) { time.Sleep(time.Duration(n) * diskEvery); synctest.Wait() }
		synctest.Wait()
		if err := d.ready(); err != nil || told != nil {
			t.Errorf("with room: %v, told %v", err, told)
		}
		free.Store(5 << 30)
		minute(3)
		if err := d.ready(); err == nil || !strings.Contains(err.Error(), "/data has 5120 of 102400 MiB left") {
			t.Errorf("nearly full: %v", err)
		}
		free.Store(0)
		minute(2)
		if d.ready() == nil {
			t.Error("it is ready because nobody knows")
		}
		free.Store(50 << 30)
		minute(2)
		if err := d.ready(); err != nil {
			t.Errorf("with room again: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []string{"Warning DiskNearlyFull", "Normal DiskHasRoom"}; !slices.Equal(told, want) {
			t.Errorf("told %v", told)
		}
		if want := 3; len(logged) != want {
			t.Errorf("%d lines: %v", len(logged), logged)
		}
	})
}

// lines collects the messages of a log.
type lines struct{ all *[]string }

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	*l.all = append(*l.all, fmt.Sprint(r.Level, " ", r.Message))
	return nil
}
func (l lines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l lines) WithGroup(string) slog.Handler      { return l }
