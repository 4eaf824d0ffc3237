package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLog(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	first := w.commit("a", "1")
	w.git("checkout", "-q", "-b", "side")
	side := w.commit("b", "1")
	w.git("checkout", "-q", "main")
	second := w.commit("a", "2")
	w.git("merge", "-q", "--no-ff", "-m", "merge side\n\nAllow-Delete: service/old", "side")
	merge := w.git("rev-parse", "HEAD")
	r := bareOf(t, w)
	writeNote(t, r, second, "applied")
	log, err := r.Log(ctx, merge, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range log {
		got = append(got, fmt.Sprintf("%s %s %s %v %d %s", e.Hash, e.Subject, e.Author, e.Trailers, e.Authored.Unix(), e.Note))
	}
	at := func(c string) string { return w.git("log", "-1", "--format=%at", c) }
	want := []string{
		merge + " merge side Ann <ann@example.org> [{Allow-Delete service/old}] " + at(merge) + " ",
		second + " change a Ann <ann@example.org> [] " + at(second) + " applied\n",
		first + " change a Ann <ann@example.org> [] " + at(first) + " ",
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("log\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if log, err := r.Log(ctx, merge, 1); err != nil || len(log) != 1 || log[0].Hash != merge {
		t.Errorf("one: %v %v", log, err)
	}
	if log, err := r.Log(ctx, side, 5); err != nil || len(log) != 2 {
		t.Errorf("of the side: %v %v", log, err)
	}
	for _, n := range []int{0, -1, maxLog + 1} {
		if _, err := r.Log(ctx, merge, n); err == nil {
			t.Errorf("%d commits", n)
		}
	}
	if _, err := r.Log(ctx, strings.Repeat("ab", 20), 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing commit: %v", err)
	}
}

func TestShowFile(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	w.write("d/b", "two\n")
	if err := os.Symlink("b", filepath.Join(w.dir, "d", "link")); err != nil {
		t.Fatal(err)
	}
	head := w.commit("a", "one\n")
	r := bareOf(t, w)
	for path, want := range map[string]string{"a": "one\n", "d/b": "two\n", "d/link": "b"} {
		if got, err := r.ShowFile(ctx, head, path); err != nil || string(got) != want {
			t.Errorf("%s: %q %v", path, got, err)
		}
	}
	for _, path := range []string{"none", "d", "d/none", "none/b", "a/b"} {
		if got, err := r.ShowFile(ctx, head, path); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), head) {
			t.Errorf("%s: %q %v", path, got, err)
		}
	}
	for _, path := range []string{"", "../a", "/a", "a\nb"} {
		if _, err := r.ShowFile(ctx, head, path); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestBlame(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	// Nothing that the tree says changes the answer.
	w.write(".mailmap", "Mallory <m@example.org> Ann <ann@example.org>\n")
	w.write(".gitattributes", "*.yaml diff=x\n")
	old := "\"ö d\"/web.yaml"
	first := w.commit(old, "kind: Deployment\nreplicas: 1\nimage: a\n")
	w.git("mv", old, "moved.yaml")
	w.git("commit", "-q", "-m", "move it")
	second := w.commit("moved.yaml", "kind: Deployment\nreplicas: 3\nimage: a")
	r := bareOf(t, w)
	blamed, err := r.Blame(ctx, second, "moved.yaml", 1, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range blamed {
		got = append(got, fmt.Sprintf("%s %s:%d %s", b.Commit, b.Path, b.Line, b.Author))
		if fmt.Sprint(b.Authored.Unix()) != w.git("log", "-1", "--format=%at", b.Commit) {
			t.Errorf("authored %s", b.Authored)
		}
	}
	want := []string{
		first + " " + old + ":1 Ann <ann@example.org>",
		second + " moved.yaml:2 Ann <ann@example.org>",
		second + " moved.yaml:3 Ann <ann@example.org>", // the last line lost its end
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("blame\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if blamed, err := r.Blame(ctx, first, old, 2); err != nil || len(blamed) != 1 || blamed[0].Commit != first || blamed[0].Line != 2 {
		t.Errorf("at the first commit: %v %v", blamed, err)
	}
	for want, ask := range map[string]struct {
		path  string
		lines []int
	}{
		"no line 4 but 3":                 {"moved.yaml", []int{4}},
		"no line 0":                       {"moved.yaml", []int{0}},
		"not in rising order":             {"moved.yaml", []int{2, 2}},
		"0 lines are asked":               {"moved.yaml", nil},
		"1001 lines are asked":            {"moved.yaml", make([]int, 1001)},
		"not found":                       {"none", []int{1}},
		"not the path":                    {"-x\n", []int{1}},
		"file --help at commit " + second: {"--help", []int{1}},
	} {
		if _, err := r.Blame(ctx, second, ask.path, ask.lines...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func FuzzBlame(f *testing.F) {
	f.Add(strings.Repeat("ab", 20) + " 1 2 1\nauthor x\nfilename \"a\\303\\244\"\n\tline\n")
	f.Add("\t\n\n 1\n")
	f.Fuzz(func(t *testing.T, out string) {
		blamed, err := parseBlame(out)
		if err == nil && len(blamed) > strings.Count(out, "\t") {
			t.Errorf("%+v", blamed)
		}
	})
}
