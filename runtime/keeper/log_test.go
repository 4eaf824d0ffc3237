package keeper

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// writer makes a stream that tests feed by hand.
func writer(t testing.TB, path string, rotation Rotation, now func() time.Time) *stream {
	t.Helper()
	l, err := openLog(path, rotation)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.close() })
	return &stream{name: Stdout, log: l, buffers: newBuffers(), now: now, slog: testLog(t)}
}

func (s *stream) feed(data []byte) {
	for len(data) > 0 {
		b := s.buffers.get()
		n := copy(b.in[:], data)
		s.take(b, b.in[:n])
		s.buffers.put(b)
		data = data[n:]
	}
}

func readAll(t testing.TB, path string, opts ReadOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := Read(t.Context(), path, opts, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Whatever comes, in whatever pieces, comes out again.
func TestBytesInAreBytesOut(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n), "log")
		s := writer(t, path, Rotation{Size: 64 << 10, Files: 1000}, time.Now)
		var in bytes.Buffer
		for range rapid.IntRange(1, 8).Draw(rt, "reads") {
			length := rapid.SampledFrom([]int{0, 1, 2, 100, maxLine - 1, maxLine, maxLine + 1, 3 * maxLine}).Draw(rt, "length")
			chunk := append(bytes.Repeat([]byte{'x'}, length), rapid.SliceOfN(rapid.SampledFrom([]byte("a\n b")), 0, 9).Draw(rt, "end")...)
			in.Write(chunk)
			s.feed(chunk)
		}
		s.flush()
		want := in.String()
		if got := readAll(t, path, ReadOptions{Tail: -1}); got != want {
			rt.Fatalf("%d bytes in, %d out", len(want), len(got))
		}
		files, err := filepath.Glob(path + "*")
		if err != nil {
			rt.Fatal(err)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				rt.Fatal(err)
			}
			for line := range bytes.Lines(data) {
				if r, err := DecodeRecord(bytes.TrimSuffix(line, []byte{'\n'})); err != nil || len(r.Text) > maxLine {
					rt.Fatalf("record of %d bytes: %v", len(line), err)
				}
			}
		}
	})
}

// A line that never ended is printed as it is, and counts as the last one.
func TestLineWithoutEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := writer(t, path, Rotation{Size: 1 << 20, Files: 2}, time.Now)
	s.feed([]byte("one\ntwo\nthr"))
	s.flush()
	for tail, want := range map[int64]string{-1: "one\ntwo\nthr", 0: "", 1: "thr", 2: "two\nthr", 3: "one\ntwo\nthr"} {
		if got := readAll(t, path, ReadOptions{Tail: tail}); got != want {
			t.Errorf("tail %d: %q, not %q", tail, got, want)
		}
	}
	s.feed([]byte("ee\nfour\n")) // as another keeper goes on
	for tail, want := range map[int64]string{1: "four\n", 2: "three\nfour\n"} {
		if got := readAll(t, path, ReadOptions{Tail: tail}); got != want {
			t.Errorf("tail %d: %q, not %q", tail, got, want)
		}
	}
}

func lines(from, to int) []byte {
	var b bytes.Buffer
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.Bytes()
}

func TestRotationBoundsTheDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := writer(t, path, Rotation{Size: 10_000, Files: 3}, time.Now)
	for i := range 100 {
		s.feed(lines(i*10, i*10+10))
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 10_000 {
			t.Errorf("%s: %v, %v", f, info.Size(), err)
		}
	}
	got := readAll(t, path, ReadOptions{Tail: -1})
	if !strings.HasSuffix(string(lines(0, 1000)), got) || len(got) < 3000 {
		t.Errorf("the kept part is not the end of it: %d bytes", len(got))
	}
}

func TestReadOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := writer(t, path, Rotation{Size: 3_000, Files: 100}, func() time.Time { return clock })
	for i := range 100 {
		clock = clock.Add(time.Second)
		s.feed(fmt.Appendf(nil, "line %d\n", i))
	}
	for _, tail := range []int64{0, 1, 2, 50, 99, 100, 101} {
		want := string(lines(max(0, 100-int(tail)), 100))
		if got := readAll(t, path, ReadOptions{Tail: tail}); got != want {
			t.Errorf("tail %d: %q", tail, got)
		}
	}
	if got := readAll(t, path, ReadOptions{Tail: -1, Since: clock.Add(-2 * time.Second)}); got != string(lines(97, 100)) {
		t.Errorf("since: %q", got)
	}
	if got := readAll(t, path, ReadOptions{Tail: -1, Limit: 17}); got != "line 0\nline 1\nlin" {
		t.Errorf("limit: %q", got)
	}
	if got := readAll(t, path, ReadOptions{Tail: 1, Timestamps: true}); got != "2026-01-01T00:01:40Z line 99\n" {
		t.Errorf("timestamps: %q", got)
	}
	long := strings.Repeat("y", 2*maxLine)
	s.feed([]byte(long + "\n"))
	if got := readAll(t, path, ReadOptions{Tail: 1, Timestamps: true}); got != "2026-01-01T00:01:40Z "+long+"\n" {
		t.Errorf("one stamp for a line in pieces: %d bytes", len(got))
	}
	if got := readAll(t, filepath.Join(t.TempDir(), "none"), ReadOptions{Tail: -1}); got != "" {
		t.Errorf("no log: %q", got)
	}
}

func TestFollowAcrossRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := writer(t, path, Rotation{Size: 5_000, Files: 1000}, time.Now)
	s.feed(lines(0, 10))
	over := make(chan struct{})
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- Read(t.Context(), path, ReadOptions{Follow: true, Tail: -1, Over: over}, &out) }()
	const total = 20_000
	for i := 10; i < total; i += 10 {
		s.feed(lines(i, i+10))
	}
	close(over)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out.String() != string(lines(0, total)) {
		t.Errorf("%d bytes of %d", out.Len(), len(lines(0, total)))
	}
}

// Between any two steps of a rotation, and when it ends there and is begun anew,
// readers find every line once, whichever file they have come to.
func TestReadInTheMiddleOfARotation(t *testing.T) {
	const files, each = 5, 100
	for crash := range files + 1 {
		path := filepath.Join(t.TempDir(), "log")
		s := writer(t, path, Rotation{Size: 1, Files: files + 3}, time.Now)
		for i := range files {
			s.feed(lines(i*each, (i+1)*each))
		}
		check := func(step int, all string) {
			t.Helper()
			if got := readAll(t, path, ReadOptions{Tail: -1}); got != all {
				t.Fatalf("crash %d, step %d: %d bytes of %d", crash, step, len(got), len(all))
			}
			for tail := 1; tail <= files*each; tail += each / 2 {
				if got := strings.Count(readAll(t, path, ReadOptions{Tail: int64(tail)}), "\n"); got != tail {
					t.Fatalf("crash %d, step %d: %d lines of the last %d", crash, step, got, tail)
				}
			}
			// A reader that is at the end of one of the files.
			for n := range 2 * files {
				f, err := os.Open(rotated(path, n))
				if err != nil {
					break
				}
				c := &cursor{path: path}
				if err := c.use(f); err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				if err := c.copy(t.Context(), &printer{w: &out}); err != nil {
					t.Fatal(err)
				}
				if err := c.close(); err != nil {
					t.Fatal(err)
				}
				if !strings.HasSuffix(all, out.String()) || strings.Count(out.String(), "\n") < min(n, 1)*each {
					t.Fatalf("crash %d, step %d: from file %d: %d bytes", crash, step, n, out.Len())
				}
			}
		}
		all := string(lines(0, files*each))
		for i := range crash {
			check(i, all)
			if err := s.log.shift(files - i); err != nil {
				t.Fatal(err)
			}
		}
		check(crash, all)
		s.feed(lines(files*each, files*each+each)) // rotates from the beginning
		check(files, string(lines(0, files*each+each)))
		if names, err := filepath.Glob(path + "*"); err != nil || len(names) > files+3 {
			t.Errorf("crash %d: %v, %v", crash, names, err)
		}
	}
}

func TestFollowEndsWithItsReaderAndWithTheLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pod")
	path := filepath.Join(dir, "log")
	s := writer(t, path, DefaultRotation(), time.Now)
	s.feed([]byte("x\n"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	seen := make(chan struct{})
	go func() { done <- Read(ctx, path, ReadOptions{Follow: true, Tail: -1}, signalWriter(seen)) }()
	<-seen
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	seen = make(chan struct{})
	go func() { done <- Read(t.Context(), path, ReadOptions{Follow: true, Tail: -1}, signalWriter(seen)) }()
	<-seen
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// signalWriter closes its channel at the first write.
type signalWriter chan struct{}

func (w signalWriter) Write(p []byte) (int, error) {
	close(w)
	return len(p), nil
}

func TestCutRecordIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z std"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := writer(t, path, DefaultRotation(), time.Now)
	s.feed([]byte("two\n"))
	if got := readAll(t, path, ReadOptions{Tail: -1}); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
}

func TestFullDiskIsToldAndDoesNotStall(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	s := writer(t, path, DefaultRotation(), time.Now)
	s.feed([]byte("before\n"))
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err) // every Linux has it
	}
	real := s.log.file
	s.log.file = full
	s.feed([]byte("lost\n"))
	if err := full.Close(); err != nil {
		t.Fatal(err)
	}
	s.log.file = real
	s.feed([]byte("after\n"))
	got := readAll(t, path, ReadOptions{Tail: -1})
	if !strings.HasPrefix(got, "before\n[headway: ") || !strings.HasSuffix(got, "could not be written]\nafter\n") {
		t.Errorf("%q", got)
	}
}

func BenchmarkTake(b *testing.B) {
	s := writer(b, filepath.Join(b.TempDir(), "log"), DefaultRotation(), time.Now)
	data := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 600)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		s.feed(data)
	}
}

// What has got out of its container, and writes for ever to what was its output, keeps
// nobody from closing that.
func TestWriterThatOutlivesItsContainer(t *testing.T) {
	dir := t.TempDir()
	c := Container{ID: "c", Stdout: filepath.Join(dir, "out"), Log: filepath.Join(dir, "log")}
	o, err := openOutput(c, Rotation{Size: 1 << 20, Files: 2}, newBuffers(), time.Now, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(c.Stdout, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	over, first := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for n := 0; ; n++ {
			if _, err := pipe.Write(bytes.Repeat([]byte("x\n"), 16<<10)); err != nil {
				return // closed
			}
			if n == 10 {
				close(first)
			}
		}
	}()
	if err := o.log.ready(); err != nil {
		t.Fatal(err)
	}
	o.start()
	<-first
	closed := make(chan error, 1)
	go func() { closed <- o.finish(true) }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("its output is not closed")
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	<-over
}

// A keeper that takes over goes on with the log as the other left it, which may have
// rotated it since the new one opened what the container prints.
func TestTakeoverAcrossARotation(t *testing.T) {
	dir := t.TempDir()
	c := Container{ID: "c", Stdout: filepath.Join(dir, "out"), Log: filepath.Join(dir, "log")}
	rotation := Rotation{Size: 2000, Files: 100}
	old := writer(t, c.Log, rotation, time.Now)
	old.feed(lines(0, 10))
	next, err := openOutput(c, rotation, newBuffers(), time.Now, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = next.release() })
	old.feed(lines(10, 100))
	if err := old.log.close(); err != nil {
		t.Fatal(err)
	}
	if err := next.log.ready(); err != nil {
		t.Fatal(err)
	}
	for i := 100; i < 200; i += 10 {
		next.streams[0].feed(lines(i, i+10))
	}
	if got, want := readAll(t, c.Log, ReadOptions{Tail: -1}), string(lines(0, 200)); got != want {
		t.Errorf("%d bytes in another order than they came, want %d", len(got), len(want))
	}
}
