package keeper

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// heard collects what somebody hears who is attached.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newHeard() *heard { return &heard{more: make(chan struct{}, 1)} }

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(p)
	select {
	case h.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (h *heard) wait(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		h.mu.Lock()
		got := h.text.String()
		h.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-h.more:
		case <-deadline:
			t.Fatalf("heard %q, want %q", got, want)
		}
	}
}

// Who attaches hears both streams from then on, lines that have not ended too, goes on
// with the next keeper, and is told of the end. The log is written as ever.
func TestAttach(t *testing.T) {
	dir := t.TempDir()
	k := start(t, filepath.Join(dir, "k"))
	c := container(dir, "c")
	if err := k.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	stdout, stderr := shim(t, c.Stdout), shim(t, c.Stderr)
	out, errs := newHeard(), newHeard()
	attached, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- k.Attach(t.Context(), "c", func() { close(attached) }, out, errs) }()
	<-attached
	for _, w := range []struct {
		to   io.Writer
		text string
	}{{stdout, "$ "}, {stderr, "oh\n"}} {
		if _, err := io.WriteString(w.to, w.text); err != nil {
			t.Fatal(err)
		}
	}
	out.wait(t, "$ ")
	errs.wait(t, "oh\n")

	next, err := Start(t.Context(), anotherBuild(t), filepath.Join(dir, "k"))
	if err != nil {
		t.Fatal(err)
	}
	// It is attached again some time after the takeover: what is printed before is in the
	// log only.
	text := "$ "
	for !strings.HasSuffix(text, "!") {
		if _, err := io.WriteString(stdout, "!"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-out.more:
		case <-time.After(20 * time.Millisecond):
		}
		out.mu.Lock()
		text = out.text.String()
		out.mu.Unlock()
	}
	if err := next.Close(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if log := readAll(t, c.Log, ReadOptions{Tail: -1}); !strings.Contains(log, "$ !") || !strings.Contains(log, "oh") {
		t.Errorf("log: %q", log)
	}
	if err := next.Attach(t.Context(), "c", nil, out, errs); err == nil || !strings.Contains(err.Error(), errNotOpen.Error()) {
		t.Errorf("attached to what is closed: %v", err)
	}
}

// A container does not wait for one who is attached and does not read.
func TestAttachedButNotReading(t *testing.T) {
	dir := t.TempDir()
	k := start(t, filepath.Join(dir, "k"))
	c := container(dir, "c")
	if err := k.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	stdout := shim(t, c.Stdout)
	gate, attached, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- k.Attach(t.Context(), "c", func() { close(attached) }, writerFunc(func(p []byte) (int, error) { <-gate; return len(p), nil }), nil)
	}()
	<-attached
	const size = 16 << 20
	if _, err := stdout.Write(lines(0, size/10)); err != nil { // it would stall here
		t.Fatal(err)
	}
	close(gate)
	if err := <-ended; !errors.Is(err, ErrBehind) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- k.Attach(ctx, "c", cancel, io.Discard, nil) }()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func FuzzCopyFrames(f *testing.F) {
	f.Add([]byte("o\x00\x00\x00\x02hie\x00\x00\x00\x01!x\x00\x00\x00\x00"))
	f.Add([]byte("o\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		_ = copyFrames(bytes.NewReader(data), &out, &out)
		if out.Len() > len(data) {
			t.Errorf("%d bytes out of %d", out.Len(), len(data))
		}
	})
}
