package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	readSize  = 64 << 10  // what a pipe holds
	flushSize = 128 << 10 // formatted records written at once
)

// buffers lends the memory for one read and its records, so that a thousand
// quiet streams hold none.
type buffers struct{ pool sync.Pool }

type buffer struct {
	in  [readSize]byte
	out []byte
}

func newBuffers() *buffers {
	return &buffers{pool: sync.Pool{New: func() any {
		return &buffer{out: make([]byte, 0, flushSize+maxLine+64)}
	}}}
}

func (b *buffers) get() *buffer  { return b.pool.Get().(*buffer) }
func (b *buffers) put(x *buffer) { b.pool.Put(x) }

// stream copies one FIFO into a log.
type stream struct {
	name    string
	file    *os.File
	log     *logFile
	taps    *taps
	buffers *buffers
	now     func() time.Time
	slog    *slog.Logger

	held   []byte // a line that has not ended yet, shorter than maxLine
	failed bool   // the last write failed: say so once, not per line
	done   chan struct{}
}

// openFIFO makes the FIFO if it is not there and opens both its ends, so that
// it never ends while we hold it.
func openFIFO(path string) (*os.File, error) {
	if err := syscall.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make fifo %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open fifo: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open fifo: %w", err), f.Close())
	}
	if info.Mode().Type() != fs.ModeNamedPipe {
		return nil, errors.Join(fmt.Errorf("%s is not a fifo", path), f.Close())
	}
	return f, nil
}

// run copies until stop is called, then takes what is left in the FIFO.
func (s *stream) run() {
	defer close(s.done)
	raw, err := s.file.SyscallConn()
	if err != nil {
		s.slog.Error("container output cannot be read", "stream", s.name, "err", err)
		return
	}
	for {
		if err := raw.Read(func(fd uintptr) bool { return s.readOnce(fd) > 0 }); err != nil {
			return // the deadline that stop set: the keeper's only way to end a stream
		}
	}
}

// drain takes what is in the FIFO now, which is no more than it holds: a process that has
// got out of its container may write to it for ever. It must not run beside run.
func (s *stream) drain() error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		left, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, getPipeSize, 0)
		if errno != 0 {
			failed = fmt.Errorf("size of the fifo of %s: %w", s.name, errno)
			return
		}
		for n := 1; n > 0 && left > 0; {
			n = s.readOnce(fd)
			left -= min(left, uintptr(n))
		}
	})
	return errors.Join(err, failed)
}

// getPipeSize is F_GETPIPE_SZ of fcntl(2).
const getPipeSize = 1032

// readOnce takes one read's worth from the FIFO; 0: it is empty.
func (s *stream) readOnce(fd uintptr) int {
	b := s.buffers.get()
	defer s.buffers.put(b)
	for {
		n, err := syscall.Read(int(fd), b.in[:])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return 0 // EAGAIN: wait for the next byte
		}
		s.take(b, b.in[:n])
		s.taps.put(s.name, b.in[:n])
		return n
	}
}

// take turns bytes into records.
func (s *stream) take(b *buffer, data []byte) {
	var space [64]byte
	prefix := appendPrefix(space[:0], s.now(), s.name)
	out := b.out[:0]
	for len(data) > 0 {
		room := maxLine - len(s.held)
		end := bytes.IndexByte(data[:min(room+1, len(data))], '\n')
		switch {
		case end >= 0:
			out = appendRecord(out, prefix, 'F', s.held, data[:end])
			s.held = s.held[:0]
			data = data[end+1:]
		case len(data) > room:
			out = appendRecord(out, prefix, 'P', s.held, data[:room])
			s.held = s.held[:0]
			data = data[room:]
		default:
			s.held = append(s.held, data...)
			data = nil
		}
		if len(out) >= flushSize {
			s.write(out)
			out = out[:0]
		}
	}
	if len(s.held) == 0 {
		s.held = nil // a quiet stream holds no memory
	}
	s.write(out)
}

// flush writes the line that has not ended, as a piece: another keeper may go on
// reading, and at the end of the container nobody is told of a newline that it did not
// print.
func (s *stream) flush() {
	if len(s.held) == 0 {
		return
	}
	var space [64]byte
	s.write(appendRecord(nil, appendPrefix(space[:0], s.now(), s.name), 'P', s.held))
	s.held = nil
}

func (s *stream) write(records []byte) {
	if len(records) == 0 {
		return
	}
	err := s.log.write(records)
	if err != nil && !s.failed {
		s.slog.Error("container output is being lost", "stream", s.name, "log", s.log.path, "err", err)
	}
	s.failed = err != nil
}

// stop ends run and waits for it.
func (s *stream) stop() error {
	if err := s.file.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return fmt.Errorf("stop reading %s: %w", s.name, err)
	}
	<-s.done
	return nil
}
