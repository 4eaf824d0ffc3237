package keeper

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ReadOptions say which part of a log to read.
type ReadOptions struct {
	Follow     bool
	Over       <-chan struct{} // with Follow: closed when nothing more will be written
	Timestamps bool
	Tail       int64     // lines from the end; negative: all
	Limit      int64     // bytes of output; 0: no limit
	Since      time.Time // zero: from the beginning
}

// Read writes what a log and its rotated files hold to w, without the CRI
// prefixes, oldest first. A log that does not exist (yet) is empty. With Follow
// it goes on until ctx ends or Over is closed; inotify wakes it.
func Read(ctx context.Context, path string, opts ReadOptions, w io.Writer) error {
	p := &printer{opts: opts, w: w, left: opts.Limit}
	var watch *watch
	if opts.Follow {
		var err error
		if watch, err = newWatch(path); err != nil {
			return err
		}
		defer watch.close()
	}
	cur, err := openCursor(path, opts.Tail)
	if err != nil {
		return err
	}
	defer func() { _ = cur.close() }() // opened for reading: nothing to lose
	for {
		over := isClosed(opts.Over) // before reading: what is written before Over is read
		if err := cur.copy(ctx, p); err != nil {
			if errors.Is(err, errLimit) {
				return nil
			}
			return err
		}
		if !opts.Follow || over {
			return nil
		}
		if err := watch.wait(ctx, opts.Over); err != nil {
			if ctx.Err() != nil || errors.Is(err, errDeleted) {
				return nil // the reader left or the pod is gone: following ends
			}
			return err
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// printer turns records into output.
type printer struct {
	opts ReadOptions
	w    io.Writer
	left int64
	mid  map[string]bool // streams whose line has begun and not ended
	out  []byte
}

var errLimit = errors.New("limit of bytes reached")

func (p *printer) record(line []byte) error {
	r, err := DecodeRecord(line)
	if err != nil {
		return nil // cut short by a power loss; the next line is whole again
	}
	if r.Time.Before(p.opts.Since) {
		return nil
	}
	p.out = p.out[:0]
	if p.opts.Timestamps && !p.mid[r.Stream] {
		p.out = append(r.Time.AppendFormat(p.out, time.RFC3339Nano), ' ')
	}
	p.out = append(p.out, r.Text...)
	if !r.Partial {
		p.out = append(p.out, '\n')
	}
	if p.opts.Timestamps {
		if p.mid == nil {
			p.mid = map[string]bool{}
		}
		p.mid[r.Stream] = r.Partial
	}
	if p.opts.Limit > 0 && int64(len(p.out)) >= p.left {
		p.out = p.out[:p.left]
		if _, err := p.w.Write(p.out); err != nil {
			return err
		}
		return errLimit
	}
	p.left -= int64(len(p.out))
	_, err = p.w.Write(p.out)
	return err
}

// cursor is a place in a log that rotates under it. It keeps the file open and
// finds by inode which of the rotated files comes next.
type cursor struct {
	path string
	file *os.File
	r    *bufio.Reader
	ino  uint64
	half []byte // a record whose end is not written yet
}

// openCursor opens a log at the tail-th line from its end, or at its beginning.
func openCursor(path string, tail int64) (*cursor, error) {
	c := &cursor{path: path}
	if tail < 0 {
		return c, nil // the oldest file is opened by the first step
	}
	var counted uint64
	for n := 0; ; n++ {
		f, err := os.Open(rotated(path, n))
		if errors.Is(err, fs.ErrNotExist) {
			return c, nil // fewer lines than asked: from the beginning
		}
		if err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		ino, err := inode(f)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if ino == counted { // while the log is rotated a file has two names
			if err := f.Close(); err != nil {
				return nil, err
			}
			continue
		}
		counted = ino
		offset, found, err := tailOffset(f, tail, n == 0)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		tail -= found
		if tail > 0 {
			if err := f.Close(); err != nil {
				return nil, err
			}
			continue
		}
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return nil, errors.Join(fmt.Errorf("seek in log: %w", err), f.Close())
		}
		return c, c.use(f)
	}
}

func (c *cursor) use(f *os.File) error {
	ino, err := inode(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if err := c.close(); err != nil {
		return errors.Join(err, f.Close())
	}
	c.file, c.ino = f, ino
	if c.r == nil {
		c.r = bufio.NewReaderSize(f, readSize)
	} else {
		c.r.Reset(f)
	}
	return nil
}

func (c *cursor) close() error {
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file = nil
	return err
}

func inode(f *os.File) (uint64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("inspect log: %w", err)
	}
	return info.Sys().(*syscall.Stat_t).Ino, nil
}

// copy prints everything up to the present end of the log.
func (c *cursor) copy(ctx context.Context, p *printer) error {
	for {
		// The next file is looked for before this one is read to its end: what
		// is written to it after that look is found at the next call.
		next, err := c.next()
		if err != nil {
			return err
		}
		if c.file != nil {
			if err := c.drain(ctx, p); err != nil {
				return errors.Join(err, closeFile(next))
			}
		}
		if next == nil {
			return nil
		}
		c.half = c.half[:0]
		if err := c.use(next); err != nil {
			return err
		}
	}
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// drain prints the current file to its end.
func (c *cursor) drain(ctx context.Context, p *printer) error {
	for {
		if err := ctx.Err(); err != nil {
			return nil // the loop above asks ctx, too
		}
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			if len(c.half)+len(line) <= 2*maxLine { // longer: not one of ours
				c.half = append(c.half, line...)
			}
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				continue
			case errors.Is(err, io.EOF):
				return nil
			}
			return fmt.Errorf("read log: %w", err)
		}
		if len(c.half) > 0 {
			line = append(c.half, line...)
			c.half = c.half[:0]
		}
		if err := p.record(bytes.TrimSuffix(line, []byte{'\n'})); err != nil {
			return err
		}
	}
}

// next opens the file that follows the current one, nil when there is none.
func (c *cursor) next() (*os.File, error) {
	var after *os.File // the file one newer than the one looked at
	for n := 0; ; n++ {
		f, err := os.Open(rotated(c.path, n))
		if errors.Is(err, fs.ErrNotExist) {
			return after, nil // no log yet, or ours was rotated away: go on with the oldest
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open log: %w", err), closeFile(after))
		}
		ino, err := inode(f)
		if err != nil {
			return nil, errors.Join(err, f.Close(), closeFile(after))
		}
		if c.file != nil && ino == c.ino {
			return after, f.Close()
		}
		if err := closeFile(after); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		after = f
	}
}
