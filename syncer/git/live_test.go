package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func liveOf(old, applied string, edits ...Edit) LiveCommit {
	return LiveCommit{
		Old: old, Applied: applied, Edits: edits,
		Message:  "kubectl scale deployment/web [skip ci]",
		Trailers: []Trailer{{"Headway-Event", "scale"}, {"Headway-Object", "apps/Deployment default/web"}},
		Author:   Identity{"ann <x>", "ann@example.org"}, Authored: noon,
		Committer: us, Committed: noon,
	}
}

func TestLive(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	w.write("run.sh", "#!/bin/sh\n")
	w.write("deploy/web.yaml", "replicas: 1\n")
	w.write("deploy/old/only.yaml", "x: 1\n")
	if err := os.Chmod(filepath.Join(w.dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("web.yaml", filepath.Join(w.dir, "deploy", "link")); err != nil {
		t.Fatal(err)
	}
	first := w.commit("tool.sh", "#!/bin/sh\n")
	r := bareOf(t, w)
	if _, err := r.Live(ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("live before it is there: %v", err)
	}
	write := func(c LiveCommit) string {
		t.Helper()
		commit, err := r.WriteLive(ctx, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Live(ctx); err != nil || got != commit {
			t.Fatalf("the ref is at %s, not at %s: %v", got, commit, err)
		}
		return commit
	}
	parents := func(commit string) string { return w.git("log", "-1", "--format=%P", commit) }

	synced := write(liveOf("", first))
	if w.git("rev-parse", synced+"^{tree}") != w.git("rev-parse", first+"^{tree}") || parents(synced) != first {
		t.Error("in sync is not the applied tree")
	}
	if again := write(liveOf("", first)); again != synced {
		t.Error("the same call had another answer")
	}
	if again := write(liveOf(synced, first)); again != synced {
		t.Error("a commit was written that changes nothing")
	}
	scaled := write(liveOf(synced, first,
		Edit{Path: "deploy/web.yaml", Content: []byte("replicas: 3\n")},
		Edit{Path: "run.sh", Content: []byte("#!/bin/bash\n")},
		Edit{Path: "new/deep/headway-live.yaml", Content: []byte("p: 1\n")},
		Edit{Path: "deploy/old/only.yaml", Delete: true}))
	if parents(scaled) != synced {
		t.Errorf("parents of the second: %s", parents(scaled))
	}
	diff := w.git("diff", "--raw", "--no-abbrev", "--no-renames", first, "headway/main/live")
	var got []string
	for line := range strings.Lines(diff) {
		f := strings.Fields(line)
		got = append(got, f[0]+f[1]+f[4]+" "+f[5])
	}
	want := []string{":100644000000D deploy/old/only.yaml", ":100644100644M deploy/web.yaml", ":000000100644A new/deep/headway-live.yaml", ":100755100755M run.sh"}
	if !slices.Equal(got, want) {
		t.Errorf("git diff says %q\nwant %q", got, want)
	}
	if mode := w.git("ls-tree", scaled, "deploy/link"); !strings.HasPrefix(mode, "120000") {
		t.Errorf("the link: %s", mode)
	}
	if got := w.git("log", "-1", "--format=%an|%ae|%cn|%s|%(trailers:only,unfold)", scaled); got !=
		"ann x|ann@example.org|Headway|kubectl scale deployment/web [skip ci]|Headway-Commit: "+first+"\nHeadway-Event: scale\nHeadway-Object: apps/Deployment default/web" {
		t.Errorf("git log says %s", got)
	}
	second := w.commit("deploy/web.yaml", "replicas: 2\n")
	followed := write(liveOf(scaled, second))
	if parents(followed) != scaled+" "+second {
		t.Errorf("parents after the applied commit moved: %s", parents(followed))
	}
	if w.git("diff", second, "headway/main/live") != "" {
		t.Error("drift is left")
	}
	w.git("fsck", "--strict")

	if _, err := r.WriteLive(ctx, liveOf(scaled, second), nil); err != nil {
		t.Errorf("the same call after its answer was lost: %v", err)
	}
	for _, old := range []string{"", synced, scaled} {
		_, err := r.WriteLive(ctx, liveOf(old, second, Edit{Path: "run.sh", Content: []byte("late")}), nil)
		if !errors.Is(err, ErrMoved) || !strings.Contains(err.Error(), followed) {
			t.Errorf("from %q: %v", old, err)
		}
	}
	if _, err := r.WriteLive(ctx, liveOf(synced, first), nil); !errors.Is(err, ErrMoved) {
		t.Errorf("nothing to do at a place where the ref is not: %v", err)
	}
	everything := liveOf(followed, second)
	for _, path := range strings.Fields(w.git("ls-tree", "-r", "--name-only", second)) {
		if path != "deploy/link" {
			everything.Edits = append(everything.Edits, Edit{Path: path, Delete: true})
		}
	}
	if left := w.git("ls-tree", "-r", "--name-only", write(everything)); left != "deploy/link" {
		t.Errorf("left: %s", left)
	}
}

// Whoever is deposed while the objects are stored does not move the ref (R4).
func TestR4_LiveAsksBeforeTheRefMoves(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	head := w.commit("a", "1")
	r := bareOf(t, w)
	first, err := r.WriteLive(ctx, liveOf("", head), func(context.Context) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	deposed := errors.New("deposed")
	refuse := func(context.Context) error { return deposed }
	next := liveOf(first, head, Edit{Path: "a", Content: []byte("2")})
	if c, err := r.WriteLive(ctx, next, refuse); !errors.Is(err, deposed) || c != "" {
		t.Errorf("%q %v", c, err)
	}
	if got, err := r.Live(ctx); err != nil || got != first {
		t.Errorf("live is %s: %v", got, err)
	}
	if c, err := r.WriteLive(ctx, liveOf(first, head), refuse); err != nil || c != first {
		t.Errorf("nothing is to be written, so nobody is asked: %q %v", c, err)
	}
	// One that is faster, between the reading of the ref and its move.
	var faster string
	_, err = r.WriteLive(ctx, next, func(ctx context.Context) (err error) {
		faster, err = r.WriteLive(ctx, liveOf(first, head, Edit{Path: "a", Content: []byte("3")}), nil)
		return err
	})
	if !errors.Is(err, ErrMoved) {
		t.Errorf("%v", err)
	}
	if got, err := r.Live(ctx); err != nil || got != faster {
		t.Errorf("live is %s: %v", got, err)
	}
}

func TestLiveRefuses(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	w.write("deploy/web.yaml", "x")
	if err := os.Symlink("web.yaml", filepath.Join(w.dir, "deploy", "link")); err != nil {
		t.Fatal(err)
	}
	w.git("add", "-A")
	w.git("update-index", "--add", "--cacheinfo", "160000,1234567890123456789012345678901234567890,module")
	w.git("commit", "-q", "-m", "x")
	head := w.git("rev-parse", "HEAD")
	r := bareOf(t, w)
	file := func(paths ...string) (edits []Edit) {
		for _, p := range paths {
			edits = append(edits, Edit{Path: p, Content: []byte("new")})
		}
		return edits
	}
	for want, edits := range map[string][]Edit{
		"deploy/link: it is a symbolic link":       file("deploy/link"),
		"module: it is a submodule":                file("module"),
		"module is no folder but a submodule":      file("module/a"),
		"deploy: it is a folder":                   file("deploy"),
		"deploy/web.yaml is no folder but a file":  file("deploy/web.yaml/a"),
		"edited twice":                             file("a", "a"),
		"a is written as a file too":               file("a", "a-b", "a/b/c"),
		`"../a": not the path of a file`:           file("../a"),
		`"": not the path`:                         file(""),
		`"/a": not the path`:                       file("/a"),
		`"a//b": not the path`:                     file("a//b"),
		`"a/.GIT/config": not the path`:            file("a/.GIT/config"),
		"not the path of a file in a":              file("a\nb"),
		"none/x: it is to be deleted: not found":   {{Path: "none/x", Delete: true}},
		"too large":                                {{Path: "a", Content: make([]byte, maxBlob+1)}},
		"at most 20000 can be":                     make([]Edit, maxEdits+1),
		strings.Repeat("a/", maxDepth)[:100] + "a": file(strings.Repeat("a/", maxDepth+1) + "a"),
	} {
		if c, err := r.WriteLive(ctx, liveOf("", head, edits...), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s %v", want, c, err)
		}
	}
	// A file may take the place of a folder's, when that goes.
	if _, err := r.WriteLive(ctx, liveOf("", head, Edit{Path: "deploy/web.yaml", Delete: true}, Edit{Path: "deploy/web.yaml/a", Content: []byte("x")}), nil); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*LiveCommit){
		"needs a message":             func(c *LiveCommit) { c.Message, c.Trailers = "", nil },
		"says nothing":                func(c *LiveCommit) { c.Author.Name = "\n" },
		"before 1970":                 func(c *LiveCommit) { c.Authored = c.Authored.AddDate(-100, 0, 0) },
		"is set by the live ref":      func(c *LiveCommit) { c.Trailers = []Trailer{{"headway-commit", "x"}} },
		"letters, digits and hyphens": func(c *LiveCommit) { c.Trailers = []Trailer{{"A b", "x"}} },
		"no value":                    func(c *LiveCommit) { c.Trailers = []Trailer{{"A", "\n"}} },
		"not a full commit hash":      func(c *LiveCommit) { c.Applied = "main" },
		"previous live commit":        func(c *LiveCommit) { c.Old = strings.Repeat("ab", 20) },
	} {
		c := liveOf("", head)
		change(&c)
		if _, err := r.WriteLive(ctx, c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// What comes out of a graft is what git's own index makes of the same edits.
func TestGraft(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	w.commit("a", "1")
	r := bareOf(t, w)
	paths := []string{"a", "a-b", "a.b", "a0", "b/a", "b/c/d", "b/c-d", "b.c", "c/d/e/f", "c/d/g", "é/ü"}
	rapid.Check(t, func(t *rapid.T) {
		files := map[string]string{}
		tree := ""
		for range 3 {
			var edits []Edit
			for _, p := range rapid.SliceOfDistinct(rapid.SampledFrom(paths), rapid.ID).Draw(t, "paths") {
				if _, there := files[p]; there && rapid.Bool().Draw(t, "delete") {
					edits = append(edits, Edit{Path: p, Delete: true})
					delete(files, p)
					continue
				}
				content := rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "content")
				edits = append(edits, Edit{Path: p, Content: []byte(content)})
				files[p] = content
			}
			var objects additions
			var err error
			if tree, err = r.graft(ctx, tree, edits, &objects); err != nil {
				t.Fatal(err)
			}
			if err := r.store(ctx, &objects); err != nil {
				t.Fatal(err)
			}
		}
		var index strings.Builder
		for p, content := range files {
			var objects additions
			blob := objects.add("blob", []byte(content))
			if err := r.store(ctx, &objects); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&index, "100644 %s\t%s\n", blob, p)
		}
		p := r.program
		p.env = []string{"GIT_INDEX_FILE=" + filepath.Join(w.dir, "index-of-test")}
		if _, err := p.run(ctx, nil, "read-tree", "--empty"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.run(ctx, strings.NewReader(index.String()), "update-index", "--index-info"); err != nil {
			t.Fatal(err)
		}
		out, err := p.run(ctx, nil, "write-tree")
		if err != nil {
			t.Fatal(err)
		}
		want := strings.TrimSpace(string(out))
		if tree == "" {
			tree = hashOf("tree", nil)
		}
		if tree != want {
			t.Fatalf("tree %s, git makes %s of %v", tree, want, files)
		}
	})
}
