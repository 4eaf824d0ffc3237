package session_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"headway.dev/headway/runtime/session"
)

// wire is one end of a Stream in memory.
type wire struct {
	in, out chan session.Message
}

func wires() (a, b wire) {
	one, two := make(chan session.Message, 10_000), make(chan session.Message, 10_000)
	return wire{one, two}, wire{two, one}
}

func (w wire) Send(m session.Message) error {
	m.Data, m.Stderr = bytes.Clone(m.Data), bytes.Clone(m.Stderr)
	w.out <- m
	return nil
}

func (w wire) Recv() (session.Message, error) {
	m, open := <-w.in
	if !open {
		return m, io.EOF
	}
	return m, nil
}

// Whatever is written, in whatever pieces, comes as it was, and no end is ever more
// than a window ahead of the other's reader.
func TestDuplexKeepsOrderAndWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.IntRange(1, 200_000), 1, 20).Draw(t, "parts")
		stderr := rapid.SliceOfN(rapid.Bool(), len(parts), len(parts)).Draw(t, "stderr")
		here, there := wires()
		a, b := session.NewDuplex(here), session.NewDuplex(there)
		ended := make(chan error, 2)
		for _, d := range []*session.Duplex{a, b} {
			go func() { ended <- d.Run() }()
		}
		var want [2]bytes.Buffer
		kinds := map[bool]int{true: 1}
		for i, n := range parts {
			want[kinds[stderr[i]]].Write(bytes.Repeat([]byte{byte('a' + i)}, n))
		}
		wrote := make(chan error, 1)
		go func() {
			for i, n := range parts {
				var w io.Writer = a
				if stderr[i] {
					w = a.Stderr()
				}
				if _, err := w.Write(bytes.Repeat([]byte{byte('a' + i)}, n)); err != nil {
					wrote <- err
					return
				}
			}
			wrote <- a.Send(session.Message{End: true})
		}()
		var got [2]bytes.Buffer
		for {
			m, err := b.Next(nil)
			if err != nil {
				t.Fatal(err)
			}
			if m.End {
				break
			}
			if n := len(m.Data) + len(m.Stderr); n > session.Window {
				t.Fatalf("%d bytes at once", n)
			}
			got[0].Write(m.Data)
			got[1].Write(m.Stderr)
			b.Took(len(m.Data) + len(m.Stderr))
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if !bytes.Equal(got[i].Bytes(), want[i].Bytes()) {
				t.Fatal("not what was written")
			}
		}
		close(here.in)
		close(there.in)
		for range 2 {
			if err := <-ended; err != io.EOF {
				t.Fatal(err)
			}
		}
	})
}

// The other end is not trusted to keep the window.
func TestDuplexRefusesMoreThanItsWindow(t *testing.T) {
	for says, messages := range map[string][]session.Message{
		"more was sent than is taken":         {{Data: make([]byte, session.Window)}, {Stderr: make([]byte, 1)}},
		"5 bytes were taken that were not":    {{Taken: 5}},
		"-1 bytes were taken that were not":   {{Taken: -1}},
		"more was sent than is taken ":        manyEnds(),
		"more was sent than is taken, errors": {{Error: strings.Repeat("x", session.Window)}, {Error: "x"}},
		"more was sent than is taken, at all": {{Data: make([]byte, session.Window+1)}},
	} {
		here, there := wires()
		d := session.NewDuplex(here)
		for _, m := range messages {
			if err := there.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		close(here.in)
		word, _, _ := strings.Cut(says, ",")
		if err := d.Run(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(word)) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

func manyEnds() (all []session.Message) {
	for range 5000 {
		all = append(all, session.Message{End: true})
	}
	return all
}

func TestDuplexWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, _ := wires()
		d := session.NewDuplex(here)
		stop := make(chan struct{})
		failed := make(chan error, 2)
		go func() {
			_, err := d.Next(stop)
			failed <- err
		}()
		go func() {
			n, err := d.WriteUntil(stop, make([]byte, session.Window+1))
			if n != session.Window {
				t.Errorf("%d bytes were sent", n)
			}
			failed <- err
		}()
		synctest.Wait()
		close(stop)
		for range 2 {
			if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
		}
		d.Close(io.EOF)
		if _, err := d.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
		if _, err := d.Next(nil); err != io.EOF {
			t.Fatal(err)
		}
	})
}
