package git

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// fileRefs are keys in a file, which survive the process.
type fileRefs struct {
	path string
	die  func(moved bool)
}

func (f fileRefs) List(context.Context) (map[string]string, error) {
	keys := map[string]string{}
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return keys, nil
	}
	if err != nil {
		return nil, err
	}
	return keys, json.Unmarshal(content, &keys)
}

func (f fileRefs) Move(ctx context.Context, updates []Update, _ string) error {
	f.die(false)
	keys, err := f.List(ctx)
	if err != nil {
		return err
	}
	for _, u := range updates {
		if keys[u.Ref] != u.Old {
			return ErrMoved
		}
		keys[u.Ref] = u.New
	}
	content, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	if err := replace(f.path, string(content), 0o600); err != nil {
		return err
	}
	f.die(true)
	return nil
}

// serveAndDie is the server that is killed: it serves dir, prints its address,
// and at the second move kills itself, and git before it when it is told to.
func serveAndDie(dir string) {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	when := os.Getenv("HEADWAY_TEST_WHEN")
	var h *Hosted
	moves := 0
	die := func(moved bool) {
		if !moved {
			moves++
		}
		if moves < 2 || moved != strings.HasPrefix(when, "moved") {
			return
		}
		if strings.HasSuffix(when, "with git") {
			h.mu.Lock()
			for cmd := range h.running {
				kill(cmd)
			}
			h.mu.Unlock()
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	h, err := Open(context.Background(), Config{
		Dir: filepath.Join(dir, "main.git"), Cluster: "main", Keeper: os.Getenv("HEADWAY_TEST_KEEPER"),
		Tokens: map[string]string{"admin": token}, Refs: fileRefs{filepath.Join(dir, "keys"), die},
	})
	if err != nil {
		fail(err)
	}
	web := httptest.NewServer(http.Handler(h))
	fmt.Println(web.URL)
	fail(h.Run(context.Background()))
}

// Kill -9 between the key's move and git's own update of the ref must not lose
// the commit; kill -9 just before it must change nothing.
func TestKilledAroundTheMove(t *testing.T) {
	keeper, err := keeperPath()
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before", "before, with git", "moved", "moved, with git"} {
		t.Run(when, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "HEADWAY_TEST_DIE="+dir, "HEADWAY_TEST_WHEN="+when, "HEADWAY_TEST_KEEPER="+keeper)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			address, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			url := strings.Replace(strings.TrimSpace(address), "http://", "http://x:"+token+"@", 1) + "/main.git"
			w := newWork(t)
			first := w.commit("a", "1")
			w.git("push", url, "main")
			second := w.commit("a", "2")
			if out, err := w.try("push", url, "main"); err == nil {
				t.Fatalf("the push ended well:\n%s", out)
			}
			if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("the server ended with %v", err)
			}

			want := first
			if strings.HasPrefix(when, "moved") {
				want = second
			}
			h := startHost(t, func(c *Config) {
				c.Dir = filepath.Join(dir, "main.git")
				c.Refs = fileRefs{filepath.Join(dir, "keys"), func(bool) {}}
			})
			if got, err := h.Resolve(context.Background(), "refs/heads/main"); err != nil || got != want {
				t.Fatalf("the bare ref is at %s, want %s: %v", got, want, err)
			}
			// The commit is whole, and the repository takes the next push.
			clone := &work{t: t, dir: t.TempDir()}
			clone.git("clone", "-q", h.url, ".")
			if got := clone.git("rev-parse", "HEAD"); got != want {
				t.Errorf("cloned %s", got)
			}
			clone.git("fsck", "--strict")
			w.commit("a", "3")
			w.git("push", h.url, "main")
			left, err := filepath.Glob(filepath.Join(h.config.Dir, "objects", "tmp_objdir-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

// Git is killed alone, after the key has moved: we go on and mend the ref, also
// when the request of the push has seen git's end before the move is noted.
func TestGitKilledAfterTheMove(t *testing.T) {
	var h *host
	refs := &memoryRefs{keys: map[string]string{}}
	refs.after = func([]Update) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for cmd := range h.running {
			kill(cmd)
		}
		for len(h.pushes) > 0 {
			h.mu.Unlock()
			runtime.Gosched()
			h.mu.Lock()
		}
		return nil
	}
	h = startHost(t, func(c *Config) {
		c.Refs = refs
		c.Judge = func(_ context.Context, _ Push, w io.Writer) ([]string, error) {
			fmt.Fprintln(w, "so that the answer has begun")
			return nil, nil
		}
	})
	w := newWork(t)
	commit := w.commit("a", "1")
	if out, err := w.try("push", h.url, "main"); err == nil {
		t.Fatalf("the push ended well:\n%s", out)
	}
	clone := &work{t: t, dir: t.TempDir()}
	refs.after = nil
	clone.git("clone", "-q", h.url, ".")
	if got := clone.git("rev-parse", "HEAD"); got != commit {
		t.Errorf("cloned %s", got)
	}
}

func TestReconcileOnStart(t *testing.T) {
	ctx := context.Background()
	h := startHost(t, nil)
	w := newWork(t)
	first := w.commit("a", "1")
	second := w.commit("a", "2")
	w.git("push", h.url, "main", "main:gone/x", first+":refs/heads/behind")
	h.stop()

	keys := map[string]string{
		"refs/heads/main": first, "refs/heads/behind": second, "refs/heads/gone": second,
		"refs/heads/lost": "00000000000000000000000000000000000000aa",
	}
	lock := filepath.Join(h.config.Dir, "refs", "heads", "main.lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h = startHost(t, func(c *Config) { c.Dir = h.config.Dir; c.Refs = &memoryRefs{keys: keys} })
	for ref, want := range map[string]string{"refs/heads/main": first, "refs/heads/behind": second, "refs/heads/gone": second} {
		if got, err := h.Resolve(ctx, ref); err != nil || got != want {
			t.Errorf("%s is at %s, want %s: %v", ref, got, want, err)
		}
	}
	for _, ref := range []string{"refs/heads/gone/x", "refs/heads/lost"} {
		if got, err := h.Resolve(ctx, ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s is at %s: %v", ref, got, err)
		}
	}
	if got, err := h.Resolve(ctx, "refs/headway/main/stray/"+second); err != nil || got != second {
		t.Errorf("the stray commit: %s %v", got, err)
	}
	if err := h.Reconcile(ctx); err == nil || !strings.Contains(err.Error(), "refs/heads/lost is at 00000000000000000000000000000000000000aa") {
		t.Errorf("the lost commit: %v", err)
	}
}

// A repository that lost its objects is mended by pushing the same history.
func TestPushMendsALostRepository(t *testing.T) {
	h := startHost(t, nil)
	w := newWork(t)
	w.commit("a", "1")
	commit := w.commit("a", "2")
	w.git("push", h.url, "main")
	refs := h.refs
	h.stop()
	h = startHost(t, func(c *Config) { c.Refs = refs })
	other := newWork(t)
	other.commit("b", "1")
	if out, err := other.try("push", h.url, "main"); err == nil || !strings.Contains(out, "does not descend from it") {
		t.Errorf("%v:\n%s", err, out)
	}
	next := w.commit("a", "3")
	w.git("push", h.url, "main")
	if got, err := h.Resolve(context.Background(), "refs/heads/main"); err != nil || got != next || refs.get("refs/heads/main") != next {
		t.Errorf("at %s after %s: %v", got, commit, err)
	}
}
