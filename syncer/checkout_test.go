package syncer

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store/storetest"
	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/render"
)

// remote is a real repository, driven with the git program.
type remote struct {
	t   testing.TB
	dir string
}

func newRemote(t testing.TB) *remote {
	r := &remote{t, filepath.Join(t.TempDir(), "repo")}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.git("init", "-q", "-b", "main")
	return r
}

func (r *remote) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@x", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@x")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes files (empty: removes) and commits them.
func (r *remote) commit(author string, files map[string]string) string {
	r.t.Helper()
	for name, text := range files {
		path := filepath.Join(r.dir, name)
		if text == "" {
			if err := os.Remove(path); err != nil {
				r.t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "x", "--author", author+" <"+author+"@x>")
	return r.git("rev-parse", "HEAD")
}

// forged is a world that follows r.
func forged(t testing.TB, r *remote) *world {
	forge := openForge(t, r)
	return newWorld(t, func(c *Config) {
		c.Commits = &Checkout{Objects: forge.Repository, Keeper: forge.Repository, Cache: render.NewCache(0)}
		c.Fetch = func(ctx context.Context, spec api.SourceSpec, _ time.Duration) (string, error) { // our clock is not its own
			return forge.Fetch(ctx, spec.Ref, 0)
		}
		c.Spec = api.SourceSpec{URL: r.dir, Ref: "refs/heads/main", Path: "deploy"}
	})
}

// openForge makes a clone of r, with nothing in it yet.
func openForge(t testing.TB, r *remote) *git.Forge {
	t.Helper()
	forge, err := git.OpenForge(t.Context(), git.ForgeConfig{URL: r.dir, Dir: filepath.Join(t.TempDir(), "clone.git"), Cluster: "main"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(forge.Close)
	return forge
}

// poll passes the time until the forge is asked again.
func (w *world) poll() {
	w.now = w.now.Add(12 * time.Second)
	w.settle()
}

func TestFollowsAForge(t *testing.T) {
	r := newRemote(t)
	first := r.commit("ada", map[string]string{"deploy/a.yaml": configMap("a", "1"), "deploy/b.yaml": configMap("b", "1"), "README.md": "x"})
	w := forged(t, r)
	w.settle()
	if st := w.status(); st.Applied != first || st.Objects != 2 {
		t.Fatalf("status %+v", st)
	}
	if p, _ := api.ProvenanceOf(w.get("configmaps", "default", "a")); p.Author != "ada <ada@x>" || p.Path != "deploy/a.yaml" {
		t.Errorf("provenance %+v", p)
	}
	// Two commits at once: each object names the one that changed it.
	second := r.commit("bob", map[string]string{"deploy/a.yaml": configMap("a", "2")})
	third := r.commit("eve", map[string]string{"deploy/b.yaml": configMap("b", "2")})
	w.poll()
	a, _ := api.ProvenanceOf(w.get("configmaps", "default", "a"))
	b, _ := api.ProvenanceOf(w.get("configmaps", "default", "b"))
	if a.Commit != second || a.Author != "bob <bob@x>" || b.Commit != third || b.Author != "eve <eve@x>" || w.status().Applied != third {
		t.Errorf("provenance %+v and %+v", a, b)
	}
	// A deleted object comes back as what its own commit made it.
	w.remove("configmaps", "default", "a")
	w.settle()
	if again, _ := api.ProvenanceOf(w.get("configmaps", "default", "a")); again != a {
		t.Errorf("provenance %+v, was %+v", again, a)
	}
	if kept := r.kept(w); kept != 2 {
		t.Errorf("%d commits kept", kept)
	}
	// The base of an object is read at its own commit, also after a restart.
	fourth := r.commit("eve", map[string]string{"deploy/a.yaml": strings.Replace(configMap("a", "2"), "k:", "other:", 1)})
	w.open()
	w.poll()
	if cm := w.get("configmaps", "default", "a"); w.status().Applied != fourth || strings.Contains(storeText(cm), `"k"`) {
		t.Errorf("config map %s", storeText(cm))
	}
	// A removed file prunes.
	r.commit("bob", map[string]string{"deploy/b.yaml": ""})
	w.poll()
	if w.get("configmaps", "default", "b") != nil {
		t.Error("not pruned")
	}
}

// kept counts the keep refs of the clone.
func (r *remote) kept(w *world) int {
	forge := w.cfg.Commits.(*Checkout).Keeper.(*git.Repository)
	n := 0
	for _, c := range strings.Fields(r.git("log", "--format=%H")) {
		if _, err := forge.Resolve(r.t.Context(), "refs/headway/main/keep/"+c); err == nil {
			n++
		} else if !errors.Is(err, git.ErrNotFound) {
			r.t.Fatal(err)
		}
	}
	return n
}

func TestR3_AForgeThatFailsDeletesNothing(t *testing.T) {
	r := newRemote(t)
	first := r.commit("ada", map[string]string{"deploy/a.yaml": configMap("a", "1"), "README.md": "x"})
	w := forged(t, r)
	w.settle()
	if err := os.Rename(r.dir, r.dir+".away"); err != nil {
		t.Fatal(err)
	}
	w.poll()
	if st := w.status(); st.Applied != first || st.Message == "" || w.get("configmaps", "default", "a") == nil {
		t.Errorf("status %+v", st)
	}
	// What is applied is still healed.
	w.remove("configmaps", "default", "a")
	w.settle()
	if w.get("configmaps", "default", "a") == nil {
		t.Error("not healed while the forge is away")
	}
	if err := os.Rename(r.dir+".away", r.dir); err != nil {
		t.Fatal(err)
	}
	// A missing folder, and a rewritten history.
	r.commit("ada", map[string]string{"deploy/a.yaml": ""})
	w.now = w.now.Add(6 * time.Minute)
	w.settle()
	if st := w.status(); st.Applied != first || len(st.Problems) != 1 || w.get("configmaps", "default", "a") == nil {
		t.Errorf("status %+v", st)
	}
	r.git("checkout", "-q", "--orphan", "other")
	other := r.commit("eve", map[string]string{"deploy/a.yaml": configMap("a", "9")})
	r.git("branch", "-q", "-M", "other", "main")
	w.poll()
	if st := w.status(); st.Applied != first || st.Refused != other || !strings.Contains(st.Message, first) {
		t.Errorf("status %+v", st)
	}
}

func TestRefsMoveAllOrNone(t *testing.T) {
	w := newWorld(t)
	refs := &Refs{Store: w.st, Now: func() time.Time { return w.now }}
	a, b, c := commitID("aa"), commitID("bb"), commitID("cc")
	move := func(want error, updates ...git.Update) {
		t.Helper()
		if err := refs.Move(t.Context(), updates, "ada"); !errors.Is(err, want) {
			t.Errorf("move %v: %v, want %v", updates, err, want)
		}
	}
	move(nil, git.Update{Ref: "refs/heads/main", New: a}, git.Update{Ref: "refs/tags/v1", New: b})
	move(git.ErrMoved, git.Update{Ref: "refs/heads/main", Old: a, New: c}, git.Update{Ref: "refs/tags/v1", Old: a, New: c})
	move(git.ErrMoved, git.Update{Ref: "refs/heads/main", New: c})
	move(nil, git.Update{Ref: "refs/heads/main", Old: a, New: c}, git.Update{Ref: "refs/tags/v1", Old: b})
	move(nil, git.Update{Ref: "refs/tags/none"})
	got, err := refs.List(t.Context())
	if err != nil || len(got) != 1 || got["refs/heads/main"] != c {
		t.Errorf("refs %v %v", got, err)
	}
	storetest.Settle(t, w.st)
	if ref := w.st.Get(refKey("refs/heads/main")).(*api.GitRef); ref.Pusher != "ada" {
		t.Errorf("ref %+v", ref)
	}
}

// TestR2_ATreeThatIsTooLargeIsRefused: it is a fact about the commit, so it is told,
// and not tried again and again.
func TestR2_ATreeThatIsTooLargeIsRefused(t *testing.T) {
	r := newRemote(t)
	first := r.commit("ada", map[string]string{"deploy/a.yaml": configMap("a", "1")})
	w := forged(t, r)
	w.settle()
	deep := r.commit("bob", map[string]string{"deploy/" + strings.Repeat("d/", 70) + "b.yaml": configMap("b", "1")})
	w.poll()
	st := w.status()
	if st.Applied != first || st.Refused != deep || len(st.Problems) != 1 {
		t.Fatalf("status %+v", st)
	}
	contain(t, st.Problems[0], ".: the tree is too large: folder deploy/d/d/", "is nested deeper than 64: point the source at a repository of its own")
	third := r.commit("bob", map[string]string{"deploy/" + strings.Repeat("d/", 70) + "b.yaml": "", "deploy/a.yaml": configMap("a", "2")})
	w.poll()
	if st := w.status(); st.Applied != third {
		t.Errorf("status %+v", st)
	}
}
