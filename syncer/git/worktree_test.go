package git

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWorkTree(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "protocol.file.allow=always", "-c", "user.name=A", "-c", "user.email=a@x"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	if _, err := ReadWorkTree(t.Context(), dir); !errors.Is(err, ErrNotFound) {
		t.Fatalf("a plain folder: %v", err)
	}
	run("init", "-q", "-b", "main")
	write("a.yaml", "a")
	w, err := ReadWorkTree(t.Context(), dir)
	if err != nil || w.Head != "" || !slices.Equal(w.Paths, []string{"a.yaml"}) {
		t.Fatalf("before the first commit: %+v %v", w, err)
	}
	write(".gitignore", "*.tmp\nbuild/\n")
	write("gone.yaml", "x")
	write("odd\nname \"ü\".yaml", "x")
	run("add", "-A")
	run("commit", "-q", "-m", "first\n\nAllow-Delete: all\nReplace: a/b\n")
	write("build/out.yaml", "x")
	write("x.tmp", "x")
	write("deep/new.yaml", "x")
	run("init", "-q", filepath.Join(dir, "inside"))
	write("inside/y.yaml", "x")
	if err := os.Remove(filepath.Join(dir, "gone.yaml")); err != nil {
		t.Fatal(err)
	}
	w, err = ReadWorkTree(t.Context(), dir)
	slices.Sort(w.Paths)
	if want := []string{".gitignore", "a.yaml", "deep/new.yaml", "gone.yaml", "inside", "odd\nname \"ü\".yaml"}; err != nil || !slices.Equal(w.Paths, want) {
		t.Errorf("%q %v, want %q", w.Paths, err, want)
	}
	if want := []Trailer{{"Allow-Delete", "all"}, {"Replace", "a/b"}}; w.Head != run("rev-parse", "HEAD") || !slices.Equal(w.Trailers, want) {
		t.Errorf("%+v", w)
	}
	// A folder inside is not the top.
	if _, err := ReadWorkTree(t.Context(), filepath.Join(dir, "deep")); !errors.Is(err, ErrNotFound) {
		t.Errorf("a folder inside: %v", err)
	}
	// What git refuses is an error, not a plain folder.
	write(".git/HEAD", "nonsense")
	if _, err := ReadWorkTree(t.Context(), dir); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("a broken repository: %v", err)
	}
}
