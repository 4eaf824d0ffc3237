package keeper

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Who is attached to a container hears what it prints from now on, as it comes, beside
// the log. A container never waits for him: who falls too far behind is dropped, and
// the log has everything.
const (
	maxTaps     = 32      // at one time, of all containers
	maxTapQueue = 1 << 20 // bytes that one may be behind
	tapWrite    = time.Minute
)

// A frame on the socket: which of these, the length of what follows, and that.
const (
	frameOut  = 'o'
	frameErr  = 'e'
	frameOver = 'x' // the container's output has ended
	frameLate = 'l' // he was dropped
	frameMove = 'm' // another keeper goes on
	maxFrame  = readSize
)

// taps are those of one container.
type taps struct {
	mu   sync.Mutex
	list map[*tap]bool
	over bool
}

type tap struct {
	mu   sync.Mutex
	wait *bytes.Buffer // frames
	end  byte          // what ended it; 0: nothing
	wake chan struct{}
}

func (t *taps) add() *tap {
	n := &tap{wait: &bytes.Buffer{}, wake: make(chan struct{}, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		n.end = frameOver
		return n
	}
	if t.list == nil {
		t.list = map[*tap]bool{}
	}
	t.list[n] = true
	return n
}

func (t *taps) remove(n *tap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.list, n)
}

// put hands on what a stream has read.
func (t *taps) put(name string, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range t.list {
		if !n.put(name, data) {
			delete(t.list, n)
		}
	}
}

// close ends them all: the container is over, or another keeper goes on.
func (t *taps) close(over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for n := range t.list {
		end := byte(frameMove)
		if over {
			end = frameOver
		}
		n.finish(end)
	}
	t.list = nil
}

func (n *tap) put(name string, data []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wait.Len()+len(data) > maxTapQueue {
		n.end = frameLate
		n.notify()
		return false
	}
	kind := byte(frameOut)
	if name == Stderr {
		kind = frameErr
	}
	n.wait.Write(frame(kind, len(data)))
	n.wait.Write(data)
	n.notify()
	return true
}

func (n *tap) finish(end byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end = end
	n.notify()
}

func (n *tap) notify() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *tap) take() (data []byte, end byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	data = n.wait.Bytes()
	n.wait = &bytes.Buffer{}
	return data, n.end
}

func frame(kind byte, size int) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind}, uint32(size))
}

// serveTap answers a client that attaches, and sends what comes until one of them ends.
func (s *server) serveTap(ctx context.Context, conn *net.UnixConn, req request) error {
	a := reply{Version: Protocol}
	s.mu.Lock()
	o := s.open[req.ID]
	switch {
	case s.retired:
		a.Error = errRetired.Error()
	case o == nil:
		a.Error = errNotOpen.Error()
	case s.tapped >= maxTaps:
		a.Error = fmt.Sprintf("%d clients are attached to containers of this node: no more are let in", maxTaps)
	}
	if a.Error != "" {
		s.mu.Unlock()
		return writeMessage(conn, a)
	}
	s.tapped++
	t := o.taps.add()
	s.mu.Unlock()
	defer func() {
		o.taps.remove(t)
		s.mu.Lock()
		s.tapped--
		s.mu.Unlock()
	}()
	if err := writeMessage(conn, a); err != nil {
		return err
	}
	left := make(chan error, 1)
	go func() { left <- outlast(ctx, conn) }()
	for {
		data, end := t.take()
		if end != 0 {
			data = append(data, frame(end, 0)...)
		}
		if err := conn.SetWriteDeadline(time.Now().Add(tapWrite)); err != nil {
			return err
		}
		if _, err := conn.Write(data); err != nil || end != 0 {
			return errors.Join(silent(err), conn.Close(), silent(<-left))
		}
		select {
		case err := <-left:
			return err
		case <-t.wake:
		case <-ctx.Done():
			t.finish(frameMove)
		}
	}
}

// silent leaves out that a client has left.
func silent(err error) error {
	if gone(err) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

var (
	errNotOpen = errors.New("this container has no output that is open")
	// ErrBehind is the end of one who reads more slowly than a container prints.
	ErrBehind = errors.New("the container prints faster than this is read: its log has everything")
)

// Attach hands on what a container prints from now on, until its output is closed or
// ctx ends. attached, if set, is called when nothing can be missed any more. When the
// keeper is replaced it goes on with the next one; what came in between is in the log
// only.
func (c *Client) Attach(ctx context.Context, id string, attached func(), stdout, stderr io.Writer) error {
	for began := false; ; {
		var end error
		_, err := c.converse(ctx, request{Op: opTap, ID: id}, func(_ *net.UnixConn, r *bufio.Reader) error {
			if !began && attached != nil {
				attached()
			}
			began = true
			end = copyFrames(r, stdout, stderr)
			return nil
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && began && strings.HasSuffix(err.Error(), errNotOpen.Error()):
			return nil // it ended while nobody listened
		case err != nil:
			return err
		case !errors.Is(end, errRetired):
			return end
		}
	}
}

// copyFrames returns nil when the container's output has ended.
func copyFrames(r io.Reader, stdout, stderr io.Writer) error {
	var head [5]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return errRetired // the keeper went away without a word
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size > maxFrame {
			return fmt.Errorf("keeper: a frame of %d bytes: at most %d are read", size, maxFrame)
		}
		to := stdout
		switch head[0] {
		case frameOut:
		case frameErr:
			to = stderr
		case frameOver:
			return nil
		case frameLate:
			return ErrBehind
		case frameMove:
			return errRetired
		default:
			return fmt.Errorf("keeper: a frame of the unknown kind %q", head[0])
		}
		if to == nil {
			to = io.Discard
		}
		if n, err := io.CopyN(to, r, int64(size)); err != nil {
			if n < int64(size) && errors.Is(err, io.EOF) {
				return errRetired
			}
			return err
		}
	}
}
