package git

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// bareOf opens the repository of a working copy.
func bareOf(t testing.TB, w *work) *Repository {
	t.Helper()
	path, err := find("")
	if err != nil {
		t.Fatal(err)
	}
	r := newRepository(program{path: path, dir: filepath.Join(w.dir, ".git")}, "main", nil)
	t.Cleanup(r.Close)
	return r
}

// fill commits n files of the given content with fast-import, d0/f0 and so on.
func fill(t testing.TB, w *work, n int) string {
	t.Helper()
	var in strings.Builder
	fmt.Fprintf(&in, "commit refs/heads/main\ncommitter Bob <bob@example.org> 1700000000 +0100\ndata 4\nmany\n")
	for i := range n {
		content := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c%d\ndata:\n  number: \"%d\"\n", i, i)
		fmt.Fprintf(&in, "M 100644 inline d%d/f%d.yaml\ndata %d\n%s\n", i/200, i, len(content), content)
	}
	cmd := exec.Command("git", "fast-import", "--quiet")
	// Or it gives memory back to the kernel after every object.
	cmd.Dir, cmd.Env, cmd.Stdin = w.dir, append(cleanEnv(), "MALLOC_TRIM_THRESHOLD_=67108864"), strings.NewReader(in.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git fast-import: %v\n%s", err, out)
	}
	return w.git("rev-parse", "refs/heads/main")
}

func TestTree(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	w.write("deploy/app/web.yaml", "kind: Deployment\n")
	w.write("deploy/empty", "")
	w.write("other", "x")
	if err := os.Symlink("../other", filepath.Join(w.dir, "deploy", "link")); err != nil {
		t.Fatal(err)
	}
	w.write("deploy/run.sh", "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(w.dir, "deploy", "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.git("add", "-A")
	w.git("update-index", "--add", "--cacheinfo", "160000,1234567890123456789012345678901234567890,deploy/module")
	w.git("commit", "-q", "-m", "all kinds")
	head := w.git("rev-parse", "HEAD")
	r := bareOf(t, w)

	tree, err := r.Tree(ctx, head, "deploy/")
	if err != nil {
		t.Fatal(err)
	}
	files, err := tree.Files(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, fmt.Sprintf("%s %s %d", f.Mode, f.Path, f.Size))
	}
	want := []string{"100644 app/web.yaml 17", "100644 empty 0", "120000 link 8", "160000 module 0", "100755 run.sh 10"}
	if !slices.Equal(got, want) {
		t.Errorf("files %q\nwant  %q", got, want)
	}
	for path, want := range map[string]string{"app/web.yaml": "kind: Deployment\n", "link": "../other", "empty": ""} {
		if data, err := tree.Read(ctx, path); err != nil || string(data) != want {
			t.Errorf("%s: %q %v", path, data, err)
		}
	}
	for path, want := range map[string]string{"module": "submodule", "app": "not found", "none": "not found"} {
		if _, err := tree.Read(ctx, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"none", "other", "deploy/app/web.yaml", "deploy/none/x"} {
		if _, err := r.Tree(ctx, head, path); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := r.Tree(ctx, "1234567890123456789012345678901234567890", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing commit: %v", err)
	}
	if _, err := r.Commit(ctx, tree.Hash); err == nil || !strings.Contains(err.Error(), "it is a tree") {
		t.Errorf("a tree as a commit: %v", err)
	}
	if _, err := r.Resolve(ctx, "refs/heads/none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing ref: %v", err)
	}
	for _, ref := range []string{"main", "refs/heads/a b", "refs/heads/a\nquit", "refs/heads/../x", "refs/heads/x.lock", "refs/heads/a^{tree}"} {
		if _, err := r.Resolve(ctx, ref); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

// Files come out right in every order, whatever was read ahead.
func TestReadAhead(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	r := bareOf(t, w)
	fill(t, w, 700)
	large := strings.Repeat("x", maxAheadBytes)
	w.git("reset", "-q", "--hard")
	for i := range 3 {
		w.write(fmt.Sprintf("d1/large%d", i), fmt.Sprint(i)+large)
	}
	w.git("add", "-A")
	w.git("update-index", "--add", "--cacheinfo", "160000,1234567890123456789012345678901234567890,d2/module")
	w.git("commit", "-q", "-m", "more")
	head := w.git("rev-parse", "HEAD")
	rapid.Check(t, func(t *rapid.T) {
		tree, err := r.Tree(ctx, head, "")
		if err != nil {
			t.Fatal(err)
		}
		files, err := tree.Files(ctx)
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for range rapid.IntRange(1, 300).Draw(t, "reads") {
			if i += rapid.SampledFrom([]int{1, 1, 1, 1, 2, 10, 40, -5, 0}).Draw(t, "step"); i < 0 || i >= len(files) {
				i = 0
			}
			f := files[i]
			data, err := tree.Read(ctx, f.Path)
			if f.Mode == ModeSubmodule {
				if err == nil {
					t.Fatal("a submodule was read")
				}
				continue
			}
			sum := sha1.Sum(append([]byte(fmt.Sprintf("blob %d\x00", len(data))), data...))
			if err != nil || hex.EncodeToString(sum[:]) != f.Hash {
				t.Fatalf("%s: %d bytes, %v", f.Path, len(data), err)
			}
			kept := 0
			for _, data := range tree.ahead {
				kept += len(data)
			}
			if kept > maxAheadBytes {
				t.Fatalf("%d bytes kept", kept)
			}
		}
	})
}

func TestDiff(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	for _, path := range []string{"same/deep/a", "same/b", "changed/c", "changed/d", "becomes-dir", "becomes-file/x", "removed/y/z"} {
		w.write(path, path)
	}
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "one")
	w.git("rm", "-q", "-r", "becomes-dir", "becomes-file", "removed")
	for _, path := range []string{"changed/c", "becomes-dir/w", "becomes-file", "added/v"} {
		w.write(path, path+" now")
	}
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "two")
	r := bareOf(t, w)
	a, err := r.Tree(ctx, w.git("rev-parse", "HEAD~"), "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Tree(ctx, w.git("rev-parse", "HEAD"), "")
	if err != nil {
		t.Fatal(err)
	}
	show := func(a, b *Tree) string {
		changes, err := r.Diff(ctx, a, b)
		if err != nil {
			t.Fatal(err)
		}
		var s strings.Builder
		for _, c := range changes {
			fmt.Fprintf(&s, "%s %d>%d; ", c.Path, c.Old.Size, c.New.Size)
		}
		return s.String()
	}
	want := "added/v 0>11; becomes-dir 11>0; becomes-dir/w 0>17; becomes-file 0>16; becomes-file/x 14>0; changed/c 9>13; removed/y/z 11>0; "
	if got := show(a, b); got != want {
		t.Errorf("diff %s\nwant %s", got, want)
	}
	same := w.git("rev-parse", "HEAD:same")
	if _, ok := r.cache.get(same); ok {
		t.Error("the unchanged folder was read")
	}
	if got := show(b, b); got != "" {
		t.Errorf("diff with itself: %s", got)
	}
	if got := strings.Count(show(nil, a), ";"); got != 7 {
		t.Errorf("diff with nothing: %s", show(nil, a))
	}
}

func TestR1_IsAncestor(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	base := w.commit("a", "1")
	w.git("checkout", "-q", "-b", "side")
	side := w.commit("b", "1")
	w.git("checkout", "-q", "main")
	w.commit("a", "2")
	w.git("merge", "-q", "-m", "merge", "side")
	merged := w.git("rev-parse", "HEAD")
	last := w.commit("a", "3")
	r := bareOf(t, w)
	for _, c := range []struct {
		a, b string
		want bool
	}{{base, base, true}, {base, last, true}, {side, merged, true}, {side, last, true}, {last, side, false}, {merged, side, false}, {last, base, false}} {
		if got, err := r.IsAncestor(ctx, c.a, c.b); err != nil || got != c.want {
			t.Errorf("%s of %s: %v %v", c.a, c.b, got, err)
		}
	}
	if _, err := r.IsAncestor(ctx, "1234567890123456789012345678901234567890", last); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing commit: %v", err)
	}
}

func TestKeepAndGC(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	first := w.commit("a", "1")
	w.git("checkout", "-q", "--orphan", "lonely")
	lonely := w.commit("a", "2")
	w.git("checkout", "-q", "main")
	w.git("branch", "-q", "-D", "lonely")
	w.git("reflog", "expire", "--expire=now", "--all")
	r := bareOf(t, w)
	if err := r.Keep(ctx, []string{first, lonely}); err != nil {
		t.Fatal(err)
	}
	if err := r.Keep(ctx, []string{lonely}); err != nil {
		t.Fatal(err)
	}
	refs, err := r.refs(ctx, "refs/headway/")
	if err != nil || len(refs) != 1 || refs["refs/headway/main/keep/"+lonely] != lonely {
		t.Errorf("refs %v: %v", refs, err)
	}
	if err := r.Keep(ctx, []string{"1234567890123456789012345678901234567890"}); err == nil {
		t.Error("a missing commit was kept")
	}
	// Packs change under the reading process.
	for i := range manyPacks + 1 {
		if err := os.WriteFile(filepath.Join(r.program.dir, "objects", "pack", fmt.Sprintf("pack-%d.pack", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.GC(ctx); err != nil {
		t.Fatal(err)
	}
	w.git("-c", "gc.pruneExpire=now", "gc", "--quiet", "--prune=now")
	for _, c := range []string{first, lonely} {
		if _, err := r.Commit(ctx, c); err != nil {
			t.Errorf("after gc: %v", err)
		}
	}
	if loose, err := os.ReadDir(filepath.Join(r.program.dir, "objects", first[:2])); err == nil && len(loose) > 0 {
		t.Error("gc packed nothing")
	}
}

// The reading process may die, and ends by itself when nobody reads.
func TestReadingProcessEnds(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	head := w.commit("a", "1")
	r := bareOf(t, w)
	if _, err := r.Commit(ctx, head); err != nil {
		t.Fatal(err)
	}
	if err := r.reader.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit(ctx, head); err != nil {
		t.Errorf("after its death: %v", err)
	}
	r.rest()
	if r.reader != nil {
		t.Error("still there")
	}
	if _, err := r.Commit(ctx, head); err != nil {
		t.Errorf("after its end: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.Commit(cancelled, head); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := r.Commit(ctx, head); err != nil {
		t.Errorf("after a cancelled one: %v", err)
	}
}

func TestReadManyFilesFast(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	head := fill(t, w, 10_000)
	r := bareOf(t, w)
	began := time.Now()
	tree, err := r.Tree(ctx, head, "")
	if err != nil {
		t.Fatal(err)
	}
	files, err := tree.Files(ctx)
	if err != nil {
		t.Fatal(err)
	}
	listed := time.Since(began)
	n := 0
	err = tree.ReadAll(ctx, files, func(f File, data []byte) error {
		if int64(len(data)) != f.Size {
			t.Errorf("%s has %d bytes", f.Path, len(data))
		}
		n++
		return nil
	})
	if err != nil || n != 10_000 {
		t.Fatalf("%d files: %v", n, err)
	}
	t.Logf("listed in %s, read in %s", listed, time.Since(began))
	began = time.Now()
	for _, f := range files {
		if data, err := tree.Read(ctx, f.Path); err != nil || int64(len(data)) != f.Size {
			t.Fatalf("%s: %d bytes, %v", f.Path, len(data), err)
		}
	}
	t.Logf("read one by one in %s", time.Since(began))
}

func TestTreeBounds(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	blob := w.git("hash-object", "-w", "/dev/null")
	mktree := func(kind, hash string, n int) string {
		var in strings.Builder
		for i := range n {
			fmt.Fprintf(&in, "%s %s\te%d\n", kind, hash, i)
		}
		cmd := exec.Command("git", "mktree")
		cmd.Dir, cmd.Env, cmd.Stdin = w.dir, cleanEnv(), strings.NewReader(in.String())
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	bomb := mktree("100644 blob", blob, 10)
	for range 9 {
		bomb = mktree("040000 tree", bomb, 10)
	}
	deep := mktree("100644 blob", blob, 1)
	for range maxDepth + 2 {
		deep = mktree("040000 tree", deep, 1)
	}
	// Each level has the name of the one above in the path of each of its files.
	long := mktree("100644 blob", blob, 20_000)
	cmd := exec.Command("git", "mktree")
	cmd.Dir, cmd.Env, cmd.Stdin = w.dir, cleanEnv(), strings.NewReader("040000 tree "+long+"\t"+strings.Repeat("n", 4000)+"\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	long = strings.TrimSpace(string(out))
	r := bareOf(t, w)
	for tree, want := range map[string]string{bomb: "more than", deep: "nested deeper", long: "the paths of its files have more than"} {
		commit := w.git("commit-tree", "-m", "x", tree)
		got, err := r.Tree(ctx, commit, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := got.Files(ctx); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
