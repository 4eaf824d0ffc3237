package git

import (
	"context"
	"errors"
	"io"
	"net/http"
	cgihandler "net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// backend is a forge over http: git's own http-backend, which takes pushes to any
// ref of those who bring the token, for what is not a fetch.
func backend(t *testing.T, root string) (url string, requests func() int) {
	t.Helper()
	path, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	seen := make(chan struct{}, 1)
	seen <- struct{}{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-seen
		count++
		seen <- struct{}{}
		user, password, _ := r.BasicAuth()
		push := strings.Contains(r.URL.RawQuery+r.URL.Path, "git-receive-pack")
		switch {
		case push && password != token:
			w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		case push && user == "reader":
			http.Error(w, "read only", http.StatusForbidden)
			return
		}
		cgi(w, r, path, root)
	}))
	t.Cleanup(web.Close)
	return strings.Replace(web.URL, "http://", "http://writer:"+token+"@", 1) + "/repo.git", func() int {
		<-seen
		defer func() { seen <- struct{}{} }()
		return count
	}
}

func hook(t *testing.T, bare, name, script string) {
	t.Helper()
	dir := filepath.Join(bare, "hooks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestForgePush(t *testing.T) {
	ctx := context.Background()
	s := startSSH(t)
	known := s.known(s.line(s.hostKey.PublicKey()))
	for _, kind := range []string{"local", "ssh", "http"} {
		t.Run(kind, func(t *testing.T) {
			w := newWork(t)
			w.commit("deploy/web.yaml", "replicas: 1\n")
			head := w.commit("other", "x")
			root := s.root
			if kind == "http" {
				root = t.TempDir()
			}
			bare := filepath.Join(root, kind, "repo.git")
			if kind == "http" {
				bare = filepath.Join(root, "repo.git")
			}
			w.git("clone", "-q", "--bare", ".", bare)
			theirs := &work{t: t, dir: bare}
			c := ForgeConfig{URL: bare}
			requests := func() int { return 0 }
			switch kind {
			case "ssh":
				c = ForgeConfig{URL: "ssh://" + s.address + "/ssh/repo.git", SSHKey: s.writer, KnownHosts: known}
			case "http":
				c.URL, requests = backend(t, root)
			}
			f := openForge(t, c)
			if err := f.Push(ctx, nil); err != nil { // nothing to push
				t.Fatal(err)
			}
			if _, err := f.Fetch(ctx, "main", 0); err != nil {
				t.Fatal(err)
			}
			live, err := f.WriteLive(ctx, liveOf("", head, Edit{Path: "deploy/web.yaml", Content: []byte("replicas: 3\n")}), nil)
			if err != nil {
				t.Fatal(err)
			}
			writeNote(t, f.Repository, head, "applied")
			sent := errors.New("the fence has moved")
			if err := f.Push(ctx, func(context.Context) error { return sent }); !errors.Is(err, sent) {
				t.Errorf("not ready: %v", err)
			}
			if out, err := theirs.try("rev-parse", "--verify", "-q", "refs/heads/headway/main/live"); err == nil {
				t.Errorf("pushed all the same: %s", out)
			}
			if err := f.Push(ctx, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			before := requests()
			if err := f.Push(ctx, nil); err != nil || requests() != before {
				t.Errorf("nothing new: %v", err)
			}
			if got := theirs.git("rev-parse", "headway/main/live"); got != live {
				t.Errorf("live there is %s", got)
			}
			if got := theirs.git("diff", "--stat", "main", "headway/main/live"); !strings.Contains(got, "deploy/web.yaml | 2 +-") || strings.Contains(got, "other") {
				t.Errorf("the drift there:\n%s", got)
			}
			if got := theirs.git("log", "-1", "--notes=headway/*", "main"); !strings.Contains(got, "applied") {
				t.Errorf("the log there:\n%s", got)
			}
			writeNote(t, f.Repository, head, "applied\nhealthy")
			next, err := f.WriteLive(ctx, liveOf(live, head), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Push(ctx, nil); err != nil {
				t.Fatal(err)
			}
			if got := theirs.git("rev-parse", "headway/main/live"); got != next {
				t.Errorf("live there is %s", got)
			}
			theirs.git("fsck", "--strict")

			// An answer that was lost.
			f.program.dir = f.config.Dir
			ours := &work{t: t, dir: f.config.Dir}
			ours.git("update-ref", f.pushed(f.liveRef()), live)
			if err := f.Push(ctx, nil); err != nil {
				t.Errorf("what has arrived already: %v", err)
			}
			if got := ours.git("rev-parse", f.pushed(f.liveRef())); got != next {
				t.Errorf("remembered %s", got)
			}

			// Somebody else's commit is never overwritten; the other ref still goes.
			theirs.git("update-ref", "refs/heads/headway/main/live", head)
			if _, err := f.WriteLive(ctx, liveOf(next, head, Edit{Path: "other", Content: []byte("y")}), nil); err != nil {
				t.Fatal(err)
			}
			writeNote(t, f.Repository, head, "applied\nagain")
			err = f.Push(ctx, nil)
			if !errors.Is(err, ErrMoved) || !strings.Contains(err.Error(), head) || !strings.Contains(err.Error(), next) {
				t.Errorf("moved by somebody: %v", err)
			}
			if got := theirs.git("rev-parse", "headway/main/live"); got != head {
				t.Errorf("overwritten by %s", got)
			}
			if got := theirs.git("notes", "--ref=headway/main", "show", head); got != "applied\nagain" {
				t.Errorf("the notes there: %s", got)
			}
			theirs.git("update-ref", "-d", "refs/heads/headway/main/live")
			if err := f.Push(ctx, nil); !errors.Is(err, ErrMoved) || !strings.Contains(err.Error(), "absent") {
				t.Errorf("deleted by somebody: %v", err)
			}

			// What the forge's own rules refuse.
			if err := f.Adopt(ctx); err != nil {
				t.Fatal(err)
			}
			hook(t, bare, "pre-receive", "echo protected by rule 7 >&2; exit 1")
			err = f.Push(ctx, nil)
			if !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "pre-receive hook declined") || !strings.Contains(err.Error(), "rule 7") {
				t.Errorf("refused by a hook: %v", err)
			}
			hook(t, bare, "pre-receive", "exit 0")
			if err := f.Push(ctx, nil); err != nil {
				t.Errorf("made anew: %v", err)
			}
		})
	}
}

// A clone that was lost goes on where the forge is.
func TestForgeAdopt(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	head := w.commit("a", "1")
	bare := filepath.Join(t.TempDir(), "repo.git")
	w.git("clone", "-q", "--bare", ".", bare)
	theirs := &work{t: t, dir: bare}
	open := func(dir string) *Forge {
		f := openForge(t, ForgeConfig{URL: bare, Dir: dir})
		if _, err := f.Fetch(ctx, "main", 0); err != nil {
			t.Fatal(err)
		}
		return f
	}
	write := func(f *Forge, old, content string) string {
		t.Helper()
		live, err := f.WriteLive(ctx, liveOf(old, head, Edit{Path: "a", Content: []byte(content)}), nil)
		if err != nil {
			t.Fatal(err)
		}
		return live
	}
	f := open("")
	if err := f.Adopt(ctx); err != nil { // the forge has none
		t.Fatal(err)
	}
	first := write(f, "", "2")
	writeNote(t, f.Repository, head, "job db-migrate: done")
	if err := f.Push(ctx, nil); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "backup.git")
	if err := os.CopyFS(backup, os.DirFS(f.config.Dir)); err != nil {
		t.Fatal(err)
	}
	second := write(f, first, "3")
	if err := f.Push(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"lost": "", "restored": backup} {
		g := open(dir)
		if err := g.Adopt(ctx); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := g.Live(ctx); err != nil || got != second {
			t.Errorf("%s: live is %s: %v", name, got, err)
		}
		if note, err := g.ReadNote(ctx, head); err != nil || string(note) != "job db-migrate: done\n" {
			t.Errorf("%s: note %q: %v", name, note, err)
		}
		if refs, err := g.refs(ctx, "refs/headway/main/adopt/"); err != nil || len(refs) > 0 {
			t.Errorf("%s: left %v: %v", name, refs, err)
		}
	}
	// Ahead of the forge: nothing moves, and Push goes on.
	third := write(f, second, "4")
	if err := f.Adopt(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Live(ctx); err != nil || got != third {
		t.Errorf("live is %s: %v", got, err)
	}
	// Two clusters of one name.
	g := open("")
	if err := g.Adopt(ctx); err != nil {
		t.Fatal(err)
	}
	write(g, second, "of the other")
	if err := g.Push(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.Push(ctx, nil); !errors.Is(err, ErrMoved) {
		t.Errorf("%v", err)
	}
	writeNote(t, g.Repository, head, "of the other")
	if err := g.Push(ctx, nil); err != nil {
		t.Fatal(err)
	}
	err := f.Adopt(ctx)
	if !errors.Is(err, ErrMoved) || !strings.Contains(err.Error(), third) || !strings.Contains(err.Error(), "two clusters") {
		t.Errorf("%v", err)
	}
	if got, err := f.Live(ctx); err != nil || got != third {
		t.Errorf("live is %s: %v", got, err)
	}
	// The notes have not gone apart, and are taken over for themselves.
	if note, err := f.ReadNote(ctx, head); err != nil || string(note) != "of the other\n" {
		t.Errorf("note %q: %v", note, err)
	}
	if refs, err := f.refs(ctx, "refs/headway/main/adopt/"); err != nil || len(refs) > 0 {
		t.Errorf("left %v: %v", refs, err)
	}
	// And theirs is not overwritten by what we push next.
	if err := f.Push(ctx, nil); !errors.Is(err, ErrMoved) || theirs.git("rev-parse", "headway/main/live") == third {
		t.Errorf("after it: %v", err)
	}
	// The operator deletes it there.
	theirs.git("update-ref", "-d", "refs/heads/headway/main/live")
	if err := f.Adopt(ctx); err != nil {
		t.Fatal(err)
	}
	if err := f.Push(ctx, nil); err != nil || theirs.git("rev-parse", "headway/main/live") != third {
		t.Errorf("made anew: %v", err)
	}
}

// Many commits of ours do not hide from the forge what we have of its own.
func TestForgeHaves(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	commits := w.history(3)
	w.git("reset", "-q", "--hard", "main")
	f := openForge(t, ForgeConfig{URL: w.dir})
	head, err := f.Fetch(ctx, "main", 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := &work{t: t, dir: f.config.Dir}
	var in strings.Builder
	in.WriteString("reset refs/notes/headway/main\n")
	for range maxHaves + 10 {
		in.WriteString("commit refs/notes/headway/main\ncommitter Bob <bob@example.org> 1900000000 +0000\ndata 1\nx\n")
	}
	ours.fastImport(in.String())
	haves, err := f.haves(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commits {
		if _, ok := haves[c]; !ok {
			t.Errorf("%s is not told, with the tip at %s", c, head)
		}
	}
	if len(haves) > maxHaves {
		t.Errorf("%d haves", len(haves))
	}
}

// What the hosted repository holds of ours, anybody may fetch and nobody push.
func TestHostedNotesAndLive(t *testing.T) {
	ctx := context.Background()
	h := startHost(t, nil)
	w := newWork(t)
	head := w.commit("web.yaml", "replicas: 1\n")
	w.git("push", "-q", h.url, "main")
	live, err := h.WriteLive(ctx, liveOf("", head, Edit{Path: "web.yaml", Content: []byte("replicas: 3\n")}), nil)
	if err != nil {
		t.Fatal(err)
	}
	writeNote(t, h.Repository, head, "applied by server-1")
	clone := &work{t: t, dir: t.TempDir()}
	clone.git("clone", "-q", h.url, ".")
	clone.git("fetch", "-q", "origin", "refs/notes/*:refs/notes/*")
	if log := clone.git("log", "--notes=headway/*"); !strings.Contains(log, "Notes (headway/main):\n    applied by server-1") {
		t.Errorf("the log in a clone:\n%s", log)
	}
	if diff := clone.git("diff", head, "origin/headway/main/live"); !strings.Contains(diff, "-replicas: 1\n+replicas: 3") {
		t.Errorf("the drift in a clone:\n%s", diff)
	}
	clone.git("notes", "--ref=headway/main", "append", "-m", "forged")
	for _, spec := range []string{"refs/notes/headway/main", "+main:refs/heads/headway/main/live", ":refs/heads/headway/main/live", "main:refs/notes/headway/other"} {
		if out, err := clone.try("push", "origin", spec); err == nil || !strings.Contains(out, "Headway alone writes this ref") {
			t.Errorf("%s: %v\n%s", spec, err, out)
		}
	}
	// They have no keys, and stay when the refs are brought to theirs.
	second := w.commit("web.yaml", "replicas: 2\n")
	w.git("push", "-q", h.url, "main")
	if err := h.Reconcile(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Live(ctx); err != nil || got != live {
		t.Errorf("live is %s: %v", got, err)
	}
	if _, err := h.WriteLive(ctx, liveOf(live, second), nil); err != nil {
		t.Error(err)
	}
	clone.git("pull", "-q")
	if diff := clone.git("diff", "origin/main", "origin/headway/main/live"); diff != "" {
		t.Errorf("drift when in sync:\n%s", diff)
	}
}

// What is live can be read from us even when the forge does not take it.
func TestForgeReader(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	w := newWork(t)
	head := w.commit("web.yaml", "replicas: 1\n")
	f := openForge(t, ForgeConfig{URL: w.dir})
	if _, err := f.Fetch(ctx, "main", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteLive(ctx, liveOf("", head, Edit{Path: "web.yaml", Content: []byte("replicas: 3\n")}), nil); err != nil {
		t.Fatal(err)
	}
	writeNote(t, f.Repository, head, "applied")
	h := OpenReader(f, Config{Tokens: map[string]string{"git": token}})
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	web := httptest.NewServer(h)
	defer web.Close()
	url := strings.Replace(web.URL, "http://", "http://x:"+token+"@", 1) + "/clone.git"
	user := newWork(t)
	user.git("fetch", "-q", url, "refs/heads/headway/*:refs/remotes/headway/*", "refs/notes/*:refs/notes/*")
	if diff := user.git("diff", head, "refs/remotes/headway/main/live"); !strings.Contains(diff, "+replicas: 3") {
		t.Errorf("the drift:\n%s", diff)
	}
	if log := user.git("log", "--notes=headway/*", head); !strings.Contains(log, "applied") {
		t.Errorf("the log:\n%s", log)
	}
	if refs := user.git("ls-remote", url); strings.Contains(refs, "refs/headway/") || strings.Count(refs, "\n") != 1 {
		t.Errorf("refs:\n%s", refs)
	}
	if out, err := user.try("push", url, head+":refs/heads/main"); err == nil || !strings.Contains(out, "403") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := user.try("ls-remote", strings.Replace(url, token, "wrong", 1)); err == nil {
		t.Errorf("read with a wrong token: %s", out)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := f.Live(context.Background()); err != nil {
		t.Errorf("the clone after it: %v", err)
	}
}

// cgi runs git http-backend on the repositories of a folder.
func cgi(w http.ResponseWriter, r *http.Request, git, root string) {
	h := &cgihandler.Handler{
		Path: git, Args: []string{"http-backend"}, Dir: root, Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=somebody", "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.receivepack", "GIT_CONFIG_VALUE_0=true"},
	}
	h.ServeHTTP(w, r)
}
