package git

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const token = "s3cret-token-of-the-test"

// keeperPath is built once per run of the tests.
var keeperPath = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.Getenv("HEADWAY_TEST_BIN"), "headway-keeper")
	out, err := exec.Command("go", "build", "-o", path, "headway.dev/headway/cmd/headway-keeper").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the keeper: %w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	if dir := os.Getenv("HEADWAY_TEST_DIE"); dir != "" {
		serveAndDie(dir)
	}
	dir, err := os.MkdirTemp("", "headway-git-test")
	if err == nil {
		err = os.Setenv("HEADWAY_TEST_BIN", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// memoryRefs are keys in memory. before is called before a move, after once it
// has happened; an error of after is what Move returns.
type memoryRefs struct {
	mu            sync.Mutex
	keys          map[string]string
	pushers       []string
	before, after func(updates []Update) error
}

func (m *memoryRefs) List(context.Context) (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.keys), nil
}

func (m *memoryRefs) Move(_ context.Context, updates []Update, pusher string) error {
	if m.before != nil {
		if err := m.before(updates); err != nil {
			return err
		}
	}
	m.mu.Lock()
	for _, u := range updates {
		if m.keys[u.Ref] != u.Old {
			m.mu.Unlock()
			return ErrMoved
		}
	}
	for _, u := range updates {
		if m.keys[u.Ref] = u.New; u.New == "" {
			delete(m.keys, u.Ref)
		}
	}
	m.pushers = append(m.pushers, pusher)
	m.mu.Unlock()
	if m.after != nil {
		return m.after(updates)
	}
	return nil
}

func (m *memoryRefs) get(ref string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys[ref]
}

// host runs a hosted repository with an HTTP server before it.
type host struct {
	*Hosted
	refs *memoryRefs
	url  string // with the token
	web  *httptest.Server
	stop func() // ends it and waits
}

func startHost(t testing.TB, change func(*Config)) *host {
	t.Helper()
	keeper, err := keeperPath()
	if err != nil {
		t.Fatal(err)
	}
	refs := &memoryRefs{keys: map[string]string{}}
	c := Config{
		Dir: filepath.Join(t.TempDir(), "main.git"), Cluster: "main", Keeper: keeper,
		Tokens: map[string]string{"admin": token}, Refs: refs,
	}
	if change != nil {
		change(&c)
	}
	if r, ok := c.Refs.(*memoryRefs); ok {
		refs = r
	}
	ctx, cancel := context.WithCancel(context.Background())
	h, err := Open(ctx, c)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	web := httptest.NewServer(h)
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		web.Close()
	})
	t.Cleanup(stop)
	url := strings.Replace(web.URL, "http://", "http://x:"+token+"@", 1) + "/" + filepath.Base(c.Dir)
	return &host{Hosted: h, refs: refs, url: url, web: web, stop: stop}
}

// work is a working copy, driven with the real git program.
type work struct {
	t   testing.TB
	dir string
}

func newWork(t testing.TB) *work {
	t.Helper()
	w := &work{t: t, dir: t.TempDir()}
	w.git("init", "-q", "-b", "main")
	return w
}

func cleanEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.org", "GIT_COMMITTER_NAME=Bob", "GIT_COMMITTER_EMAIL=bob@example.org"}
}

// try runs git, which may take as long as no test should; a git that hangs is
// killed with its helpers, so that the test that ran it fails and says so.
func (w *work) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = w.dir, cleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { kill(cmd); return nil }
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("git %s hangs: %w", strings.Join(args, " "), err)
	}
	return string(out), err
}

func (w *work) git(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (w *work) write(path, content string) {
	w.t.Helper()
	full := filepath.Join(w.dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// commit writes one file, commits everything and returns the commit.
func (w *work) commit(path, content string) string {
	w.t.Helper()
	w.write(path, content)
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "change "+path)
	return w.git("rev-parse", "HEAD")
}

// snapshot describes refs and object files of a bare repository.
func snapshot(t testing.TB, dir string) string {
	t.Helper()
	var b bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if e.IsDir() || (!strings.HasPrefix(rel, "objects") && !strings.HasPrefix(rel, "refs")) {
			return nil
		}
		fmt.Fprintln(&b, rel)
		if strings.HasPrefix(rel, "refs") {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b.Write(content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// receive waits for a value, not for longer than a test may take.
func receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(2 * time.Minute):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}
