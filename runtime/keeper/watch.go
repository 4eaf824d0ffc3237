package keeper

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// watch waits for a log's directory to change.
type watch struct {
	file *os.File
	name string // of the log in its directory
	buf  [4096]byte
}

func newWatch(path string) (*watch, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch log: %w", err)
	}
	w := &watch{file: os.NewFile(uintptr(fd), "inotify"), name: filepath.Base(path)}
	const mask = syscall.IN_MODIFY | syscall.IN_CREATE | syscall.IN_MOVED_TO | syscall.IN_DELETE | syscall.IN_ONLYDIR
	if _, err := syscall.InotifyAddWatch(fd, filepath.Dir(path), mask); err != nil {
		return nil, errors.Join(fmt.Errorf("watch log directory: %w", err), w.file.Close())
	}
	return w, nil
}

func (w *watch) close() error { return w.file.Close() }

// errDeleted: the log was deleted. (Rotation renames and never deletes it.)
var errDeleted = errors.New("log deleted")

// wait returns nil when something happened since the last call, or over is closed.
func (w *watch) wait(ctx context.Context, over <-chan struct{}) error {
	// A deadline is the way to wake a read. It is set by a goroutine that ends
	// with this call, and taken back by the next one.
	if err := w.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("watch log: %w", err)
	}
	var woken atomic.Bool
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
		case <-over:
		case <-done:
			return
		}
		woken.Store(true)
		_ = w.file.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed file, whose read has ended
	}()
	n, err := w.file.Read(w.buf[:])
	close(done)
	<-ended
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case woken.Load() && errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err != nil:
		return fmt.Errorf("watch log: %w", err)
	}
	if deleted(w.buf[:n], w.name) {
		return errDeleted
	}
	return nil
}

// deleted reports whether the kernel tells that name is gone, or the directory.
// Events are {wd int32; mask, cookie, len uint32} and a name of len bytes, padded
// with zeros.
func deleted(events []byte, name string) bool {
	for len(events) >= syscall.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		size := uint64(binary.NativeEndian.Uint32(events[12:]))
		end := min(uint64(len(events)), syscall.SizeofInotifyEvent+size)
		what := bytes.TrimRight(events[syscall.SizeofInotifyEvent:end], "\x00")
		if mask&syscall.IN_IGNORED != 0 || mask&syscall.IN_DELETE != 0 && string(what) == name {
			return true
		}
		events = events[end:]
	}
	return false
}
