package keeper

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// program builds the real keeper once; version makes another build of it.
var program = sync.OnceValues(func() (string, error) {
	built.Store(true)
	dir, err := os.MkdirTemp("", "headway-keeper-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "headway-keeper")
	cmd := exec.Command("go", "build", "-o", path, "headway.dev/headway/cmd/headway-keeper")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// built says that a test asked for the program, so its folder is to be removed.
var built atomic.Bool

func TestMain(m *testing.M) {
	code := m.Run()
	if built.Load() {
		if path, err := program(); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

// anotherBuild is the same program with another identity.
func anotherBuild(t testing.TB) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "headway-keeper")
	if err := os.WriteFile(other, append(data, "another build"...), 0o755); err != nil {
		t.Fatal(err)
	}
	return other
}

func start(t testing.TB, dir string) *Client {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), path, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if id, err := c.Hello(context.Background()); err == nil {
			_ = syscall.Kill(id.PID, syscall.SIGKILL) // the keeper of this test's directory
		}
	})
	return c
}

func container(dir, id string) Container {
	return Container{ID: id, Stdout: filepath.Join(dir, id+".out"), Stderr: filepath.Join(dir, id+".err"), Log: filepath.Join(dir, "logs", id+".log")}
}

// shim opens a FIFO as containerd's shim does: both ends.
func shim(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestOutputIsKept(t *testing.T) {
	dir := t.TempDir()
	k := start(t, filepath.Join(dir, "k"))
	c := container(dir, "c")
	if err := k.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := k.Open(t.Context(), c); err != nil {
		t.Errorf("again: %v", err)
	}
	other := c
	other.Log += "x"
	if err := k.Open(t.Context(), other); err == nil {
		t.Error("opened with another log")
	}
	for _, end := range []struct{ path, text string }{{c.Stdout, "out 1\nout 2\n"}, {c.Stderr, "err\nno end"}} {
		f := shim(t, end.path)
		if _, err := f.WriteString(end.text); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := k.List(t.Context()); err != nil || fmt.Sprint(ids) != "[c]" {
		t.Errorf("%v, %v", ids, err)
	}
	if err := k.Close(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(t.Context(), "c"); err != nil {
		t.Errorf("again: %v", err)
	}
	data, err := os.ReadFile(c.Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" stdout F out 1\n", " stdout F out 2\n", " stderr F err\n", " stderr P no end\n"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%q is not in %q", want, data)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "c.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("fifos stay: %v, %v", left, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "k", socketName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
}

// Nobody speaks to the keeper while a container prints more than a pipe holds.
func TestD12_NoClientNeeded(t *testing.T) {
	dir := t.TempDir()
	k := start(t, filepath.Join(dir, "k"))
	c := container(dir, "c")
	if err := k.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	f := shim(t, c.Stdout)
	const total = 200_000
	w := bufio.NewWriter(f)
	for i := range total {
		fmt.Fprintf(w, "line %d %s\n", i, strings.Repeat("x", 60))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	checkNumbered(t, c.Log, total)
	id, err := k.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if rss := memory(t, id.PID); rss > 10<<10 {
		t.Errorf("the keeper holds %d KiB", rss)
	}
}

// memory is the resident size of a process in KiB.
func memory(t testing.TB, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// checkNumbered finds the lines 0 … total-1, each once, in order.
func checkNumbered(t testing.TB, path string, total int) {
	t.Helper()
	var out bytes.Buffer
	if err := Read(t.Context(), path, ReadOptions{Tail: -1}, &out); err != nil {
		t.Fatal(err)
	}
	i := 0
	for line := range bytes.Lines(out.Bytes()) {
		if !bytes.HasPrefix(line, fmt.Appendf(nil, "line %d ", i)) {
			t.Fatalf("line %d is %q", i, line)
		}
		i++
	}
	if i != total {
		t.Errorf("%d lines of %d", i, total)
	}
}

func TestTakeoverLosesAndDoublesNothing(t *testing.T) {
	dir := t.TempDir()
	k := start(t, filepath.Join(dir, "k"))
	before, err := k.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := container(dir, "c")
	if err := k.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	f := shim(t, c.Stdout)
	stop := make(chan struct{})
	count := make(chan int)
	go func() {
		i := 0
		for ; !isClosed(stop); i++ {
			// In two writes: a takeover may come in the middle of a line.
			fmt.Fprintf(f, "line %d ", i)
			fmt.Fprintf(f, "%s\n", strings.Repeat("x", 40))
		}
		count <- i
	}()
	for range 3 {
		next, err := Start(t.Context(), anotherBuild(t), filepath.Join(dir, "k"))
		if err != nil {
			t.Fatal(err)
		}
		if k, err = Start(t.Context(), mustBinary(t), filepath.Join(dir, "k")); err != nil {
			t.Fatal(err)
		}
		_ = next
	}
	close(stop)
	total := <-count
	after, err := k.Hello(t.Context())
	if err != nil || after.PID == before.PID {
		t.Errorf("%+v, %v", after, err)
	}
	if err := k.Close(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	checkNumbered(t, c.Log, total)
}

func mustBinary(t testing.TB) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKilledKeeperComesBack(t *testing.T) {
	dir := t.TempDir()
	k := start(t, filepath.Join(dir, "k"))
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- k.Keep(ctx) }()
	c := container(dir, "c")
	if err := k.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	f := shim(t, c.Stdout)
	if _, err := f.WriteString("line 0 \n"); err != nil {
		t.Fatal(err)
	}
	follow, stop := context.WithCancel(t.Context())
	seen := make(chan struct{})
	followed := make(chan error, 1)
	go func() { followed <- Read(follow, c.Log, ReadOptions{Follow: true, Tail: -1}, signalWriter(seen)) }()
	<-seen // it is in the log
	stop()
	if err := <-followed; err != nil {
		t.Fatal(err)
	}
	id, err := k.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(id.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// More than the pipe holds: it stalls until the next keeper reads.
	for i := 1; i < 5000; i++ {
		if _, err := fmt.Fprintf(f, "line %d %s\n", i, strings.Repeat("x", 90)); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Close(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	checkNumbered(t, c.Log, 5000)
	cancel()
	if err := <-kept; err != nil {
		t.Error(err)
	}
}

func TestVersionsAndNonsense(t *testing.T) {
	dir := t.TempDir()
	k := start(t, dir)
	for _, tc := range []struct{ send, want string }{
		{`{"version":99,"op":"hello"}`, "protocol version 99"},
		{`{"version":1,"op":"dance"}`, "unknown operation"},
		{`{"version":1,"op":"open"}`, "no container"},
		{`{"version":1,"op":"close","id":"../../etc/passwd"}`, "not allowed"},
		{`{"version":1,"op":"open","container":{"id":"a","stdout":"x","log":"/y"}}`, "absolute path"},
		{`not json`, "decode message"},
		{strings.Repeat("x", maxRequest+1), "too long"},
	} {
		conn, err := dial(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(conn, tc.send); err != nil {
			t.Fatal(err)
		}
		var a reply
		if err := readMessage(bufio.NewReader(conn), &a); err != nil || !strings.Contains(a.Error, tc.want) {
			t.Errorf("%.40q: %+v, %v", tc.send, a, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := k.Hello(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLongDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100), "k")
	k := start(t, dir)
	if _, err := Dial(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if err := k.Open(t.Context(), container(filepath.Dir(dir), "c")); err != nil {
		t.Error(err)
	}
}

func TestNoKeeper(t *testing.T) {
	if _, err := Dial(t.Context(), t.TempDir()); err == nil {
		t.Error("dialled nobody")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := (&Client{dir: t.TempDir()}).Close(ctx, "c"); err == nil {
		t.Error("closed at nobody's")
	}
}

func BenchmarkThroughput(b *testing.B) {
	dir := b.TempDir()
	k := start(b, filepath.Join(dir, "k"))
	c := container(dir, "c")
	if err := k.Open(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	f := shim(b, c.Stdout)
	data := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 10_000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := f.Write(data); err != nil {
			b.Fatal(err)
		}
	}
}
