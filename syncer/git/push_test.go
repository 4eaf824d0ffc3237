package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestPushCloneFetch(t *testing.T) {
	var followed []string
	h := startHost(t, func(c *Config) {
		c.Judge = func(ctx context.Context, p Push, progress io.Writer) ([]string, error) {
			fmt.Fprintf(progress, "judging %s\n", p.Ref)
			return nil, nil
		}
		c.Follow = func(ctx context.Context, commit string, w io.Writer) error {
			followed = append(followed, commit)
			fmt.Fprintln(w, "Deployment default/hello: healthy")
			return nil
		}
	})
	w := newWork(t)
	first := w.commit("a.yaml", "a: 1\n")
	out := w.git("push", h.url, "main")
	for _, want := range []string{"remote: judging refs/heads/main", "remote: Deployment default/hello: healthy", "main -> main"} {
		if !strings.Contains(out, want) {
			t.Errorf("the push does not show %q:\n%s", want, out)
		}
	}
	if h.refs.get("refs/heads/main") != first {
		t.Errorf("the key is at %q", h.refs.get("refs/heads/main"))
	}
	if len(h.refs.pushers) != 1 || h.refs.pushers[0] != "admin" {
		t.Errorf("pushers: %v", h.refs.pushers)
	}
	clone := &work{t: t, dir: t.TempDir()}
	clone.git("clone", "-q", h.url, ".")
	if got := clone.git("rev-parse", "HEAD"); got != first {
		t.Errorf("cloned %s", got)
	}
	second := w.commit("b.yaml", "b: 1\n")
	w.git("push", h.url, "main")
	clone.git("pull", "-q")
	if got := clone.git("rev-parse", "HEAD"); got != second {
		t.Errorf("pulled %s", got)
	}
	if got := clone.git("-c", "protocol.version=0", "ls-remote", "origin", "main"); !strings.HasPrefix(got, second) {
		t.Errorf("ls-remote: %s", got)
	}
	if got := strings.Join(followed, " "); got != first+" "+second {
		t.Errorf("followed %s", got)
	}
	commit, err := h.Commit(context.Background(), second)
	if err != nil {
		t.Fatal(err)
	}
	if commit.Author != "Ann <ann@example.org>" || commit.Subject != "change b.yaml" || len(commit.Parents) != 1 || commit.Parents[0] != first || commit.Committed.IsZero() {
		t.Errorf("commit: %+v", commit)
	}
}

// The number of objects decides whether git keeps a pack or loose objects.
func TestPushSizes(t *testing.T) {
	for _, unpackLimit := range []string{"1", "100"} {
		for _, n := range []int{1, 96, 97, 10_000} { // and a folder, the root and the commit: 99 and 100 objects
			if unpackLimit == "100" && n == 10_000 {
				continue
			}
			t.Run(fmt.Sprintf("%d files, unpackLimit %s", n, unpackLimit), func(t *testing.T) {
				seen := map[string]string{}
				h := startHost(t, func(c *Config) {
					c.Judge = func(ctx context.Context, p Push, _ io.Writer) ([]string, error) {
						tree, err := p.Objects.Tree(ctx, p.New, "")
						if err != nil {
							return nil, err
						}
						files, err := tree.Files(ctx)
						if err != nil {
							return nil, err
						}
						return nil, tree.ReadAll(ctx, files, func(f File, data []byte) error {
							seen[f.Path] = string(data)
							return nil
						})
					}
				})
				config := filepath.Join(h.config.Dir, "config")
				content, err := os.ReadFile(config)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(config, []byte(strings.Replace(string(content), "unpackLimit = 1\n", "unpackLimit = "+unpackLimit+"\n", 1)), 0o600); err != nil {
					t.Fatal(err)
				}
				w := newWork(t)
				commit := fill(t, w, n)
				w.git("push", h.url, "main")
				if len(seen) != n || !strings.Contains(seen[fmt.Sprintf("d%d/f%d.yaml", (n-1)/200, n-1)], fmt.Sprintf("number: \"%d\"\n", n-1)) {
					t.Errorf("the judge saw %d files", len(seen))
				}
				if got, err := h.Resolve(context.Background(), "refs/heads/main"); err != nil || got != commit {
					t.Errorf("the bare ref is at %s, %v", got, err)
				}
			})
		}
	}
}

func TestPushLarge(t *testing.T) {
	h := startHost(t, nil)
	w := newWork(t)
	noise := make([]byte, 20<<20)
	src := rand.NewChaCha8([32]byte{1})
	if _, err := src.Read(noise); err != nil {
		t.Fatal(err)
	}
	commit := w.commit("noise", string(noise))
	w.git("push", h.url, "main")
	if got := h.refs.get("refs/heads/main"); got != commit {
		t.Errorf("the key is at %q", got)
	}
}

func TestPushTooLarge(t *testing.T) {
	h := startHost(t, func(c *Config) { c.MaxPush = 1 << 20 })
	before := snapshot(t, h.config.Dir)
	for _, buffer := range []string{"1000", "100000000"} { // chunked, and with a Content-Length
		w := newWork(t)
		noise := make([]byte, 8<<20)
		src := rand.NewChaCha8([32]byte{2})
		if _, err := src.Read(noise); err != nil {
			t.Fatal(err)
		}
		w.commit("noise", string(noise))
		out, err := w.try("-c", "http.postBuffer="+buffer, "push", h.url, "main")
		if err == nil || !(strings.Contains(out, "exceeds maximum allowed size") || strings.Contains(out, "413")) {
			t.Errorf("buffer %s: %v\n%s", buffer, err, out)
		}
	}
	if after := snapshot(t, h.config.Dir); after != before {
		t.Errorf("the repository changed:\n%s", after)
	}
}

func TestR2_RefusedPushChangesNothing(t *testing.T) {
	verdict := []string{"a.yaml:3: spec.replicas: must be a number", "b.yaml:1: kind: unknown\x1b[31m"}
	var fail error
	h := startHost(t, func(c *Config) {
		c.Judge = func(context.Context, Push, io.Writer) ([]string, error) { return verdict, fail }
		c.Follow = func(context.Context, string, io.Writer) error { t.Error("followed a refused push"); return nil }
	})
	before := snapshot(t, h.config.Dir)
	w := newWork(t)
	w.commit("a.yaml", "a: 1\n")
	out, err := w.try("push", h.url, "main")
	if err == nil {
		t.Fatalf("accepted:\n%s", out)
	}
	for _, want := range []string{"remote: a.yaml:3: spec.replicas: must be a number", "remote: b.yaml:1: kind: unknown?[31m", "remote: headway: refused, nothing changed: 2 problems", "pre-receive hook declined"} {
		if !strings.Contains(out, want) {
			t.Errorf("the push does not show %q:\n%s", want, out)
		}
	}
	verdict, fail = nil, errors.New("the store cannot be reached with "+token)
	out, err = w.try("push", h.url, "main")
	if err == nil || !strings.Contains(out, "could not be judged: the store cannot be reached with ***") {
		t.Errorf("%v:\n%s", err, out)
	}
	if after := snapshot(t, h.config.Dir); after != before {
		t.Errorf("the repository changed:\n%s", after)
	}
	if len(h.refs.keys) != 0 {
		t.Errorf("keys: %v", h.refs.keys)
	}
}

func TestR1_FollowedRefMovesToDescendantsOnly(t *testing.T) {
	var allow bool
	h := startHost(t, func(c *Config) {
		c.AllowRewind = func(context.Context, Update) (bool, error) { return allow, nil }
	})
	w := newWork(t)
	w.commit("a", "1")
	first := w.git("rev-parse", "HEAD")
	second := w.commit("a", "2")
	w.git("push", h.url, "main", "main:other")
	w.git("reset", "-q", "--hard", first)
	third := w.commit("a", "3")

	out, err := w.try("push", "--force", h.url, "main")
	if err == nil || !strings.Contains(out, second) || !strings.Contains(out, third) || !strings.Contains(out, "git revert") {
		t.Errorf("%v:\n%s", err, out)
	}
	out, err = w.try("push", "--force", h.url, first+":refs/heads/main")
	if err == nil || !strings.Contains(out, second) || !strings.Contains(out, first) {
		t.Errorf("%v:\n%s", err, out)
	}
	out, err = w.try("push", h.url, ":main")
	if err == nil || !strings.Contains(out, "cannot be deleted") || !strings.Contains(out, second) {
		t.Errorf("%v:\n%s", err, out)
	}
	if got := h.refs.get("refs/heads/main"); got != second {
		t.Errorf("the key is at %s", got)
	}
	// Another branch may do as it likes, and so may this one when it is allowed to.
	w.git("push", "--force", h.url, "main:other")
	w.git("push", h.url, ":other")
	allow = true
	w.git("push", "--force", h.url, "main")
	if got := h.refs.get("refs/heads/main"); got != third {
		t.Errorf("the key is at %s", got)
	}
	if _, ok := h.refs.keys["refs/heads/other"]; ok {
		t.Error("other is still there")
	}
}

func TestPushRefusedNames(t *testing.T) {
	h := startHost(t, nil)
	w := newWork(t)
	w.commit("a", "1")
	w.git("push", h.url, "main:dir")
	for _, ref := range []string{"refs/heads/headway/main/live", "refs/heads/headway", "refs/notes/headway/main", "refs/headway/main/keep/x", "refs/pull/1/head", "refs/heads/dir/b"} {
		if out, err := w.try("push", h.url, "main:"+ref); err == nil {
			t.Errorf("%s was accepted:\n%s", ref, out)
		} else if !strings.Contains(out, "remote: "+ref) && !strings.Contains(out, "hidden ref") {
			t.Errorf("%s: %s", ref, out)
		}
	}
	blob := w.git("hash-object", "-w", "a")
	if out, err := w.try("push", h.url, blob+":refs/heads/blob"); err == nil {
		t.Errorf("a blob became a branch:\n%s", out)
	}
	if len(h.refs.keys) != 1 {
		t.Errorf("keys: %v", h.refs.keys)
	}
	w.git("tag", "-a", "-m", "v1", "v1")
	w.git("push", h.url, "v1")
	if h.refs.get("refs/tags/v1") != w.git("rev-parse", "v1") {
		t.Errorf("keys: %v", h.refs.keys)
	}
	// By the folder, past the server.
	if out, err := w.try("push", h.config.Dir, "main:sneak"); err == nil || !strings.Contains(out, "headway remote") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestTwoPushesOneWins(t *testing.T) {
	var together sync.WaitGroup
	together.Add(2)
	h := startHost(t, func(c *Config) {
		c.Refs = &memoryRefs{keys: map[string]string{}, before: func(u []Update) error {
			if u[0].Old != "" {
				together.Done()
				together.Wait()
			}
			return nil
		}}
	})
	w := newWork(t)
	w.commit("a", "1")
	w.git("push", h.url, "main")
	var outs [2]string
	var errs [2]error
	var commits [2]string
	var pushes sync.WaitGroup
	for i := range 2 {
		clone := &work{t: t, dir: t.TempDir()}
		clone.git("clone", "-q", h.url, ".")
		commits[i] = clone.commit("a", fmt.Sprintf("of %d", i))
		pushes.Go(func() { outs[i], errs[i] = clone.try("push", "origin", "main") })
	}
	pushes.Wait()
	winner := 0
	if errs[0] != nil {
		winner = 1
	}
	if errs[winner] != nil || errs[1-winner] == nil {
		t.Fatalf("%v %v\n%s\n%s", errs[0], errs[1], outs[0], outs[1])
	}
	if !strings.Contains(outs[1-winner], "somebody else pushed meanwhile") {
		t.Errorf("the loser reads:\n%s", outs[1-winner])
	}
	if got, err := h.Resolve(context.Background(), "refs/heads/main"); err != nil || got != commits[winner] || h.refs.get("refs/heads/main") != got {
		t.Errorf("bare %s, key %s, want %s: %v", got, h.refs.get("refs/heads/main"), commits[winner], err)
	}
}

// A move that ends in an error may have happened all the same.
func TestMoveWithUnknownOutcome(t *testing.T) {
	h := startHost(t, func(c *Config) {
		c.Refs = &memoryRefs{keys: map[string]string{}, after: func([]Update) error { return errors.New("deadline exceeded") }}
	})
	w := newWork(t)
	commit := w.commit("a", "1")
	w.git("push", h.url, "main")
	if h.refs.get("refs/heads/main") != commit {
		t.Error("not moved")
	}
	h.refs.before = func([]Update) error { return errors.New("no leader") }
	w.commit("a", "2")
	out, err := w.try("push", h.url, "main")
	if err == nil || !strings.Contains(out, "nothing changed: no leader") {
		t.Errorf("%v:\n%s", err, out)
	}
}
