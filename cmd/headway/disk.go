package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// A full file system ends the store in the middle of a write, so people hear of it
// before. What a large one is filled with may not be ours: with so much left in bytes
// it is not low, whatever the share.
const (
	diskEvery  = time.Minute
	diskLeast  = 1 << 30  // less is low
	diskTenth  = 10       // so is less than this part of the whole
	diskEnough = 20 << 30 // unless it is this much
)

// space is what a file system has, for those who are not root.
type space struct{ free, total uint64 }

// spaceOf asks the file system that a path stands on.
func spaceOf(path string) (space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return space{}, fmt.Errorf("ask the file system of %s for its space: %w", path, err)
	}
	block := uint64(s.Bsize)
	return space{free: s.Bavail * block, total: s.Blocks * block}, nil
}

// low says whether little is left. What was low stays so until a tenth more is free
// than that, so that a small file that comes and goes makes no news.
func (s space) low(was bool) bool {
	least := max(diskLeast, min(s.total/diskTenth, diskEnough))
	if was {
		least += least / 10
	}
	return s.free < least
}

// disk knows whether the file system of the data dir has space left.
type disk struct {
	path  string
	space func(path string) (space, error)
	log   *slog.Logger
	tell  func(ctx context.Context, kind, reason, message string) // an Event
	state atomic.Pointer[diskState]
}

// diskState is what was seen last.
type diskState struct {
	low   error // nil: there is room
	blind bool  // the file system gave no answer
}

// watch looks now and then, until ctx ends.
func (d *disk) watch(ctx context.Context) error {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		d.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look tells once of what has changed.
func (d *disk) look(ctx context.Context) {
	before := d.last()
	s, err := d.space(d.path)
	if err != nil {
		if !before.blind {
			d.log.Warn("nobody knows how much space is left", "error", err)
		}
		d.state.Store(&diskState{low: before.low, blind: true})
		return
	}
	now := &diskState{}
	if s.low(before.low != nil) {
		now.low = fmt.Errorf("the file system of %s has %d of %d MiB left: delete what is not needed, or make it larger; the store stops when it is full", d.path, s.free>>20, s.total>>20)
	}
	d.state.Store(now)
	switch {
	case now.low != nil && before.low == nil:
		d.log.Warn("the file system of the data dir is nearly full", "path", d.path, "free", s.free, "total", s.total)
		d.tell(ctx, corev1.EventTypeWarning, "DiskNearlyFull", now.low.Error())
	case now.low == nil && before.low != nil:
		d.log.Info("the file system of the data dir has room again", "path", d.path, "free", s.free, "total", s.total)
		d.tell(ctx, corev1.EventTypeNormal, "DiskHasRoom", "The file system of "+d.path+" has room again")
	}
}

// ready is why this server is not ready although it serves.
func (d *disk) ready() error { return d.last().low }

func (d *disk) last() diskState {
	if s := d.state.Load(); s != nil {
		return *s
	}
	return diskState{}
}
