package syncer

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/render"
)

// folderOf makes a folder; a text that begins with "-> " is a symbolic link.
func folderOf(t testing.TB, files map[string]string) *Folder {
	t.Helper()
	f := NewFolder()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		mode, text := render.Regular, files[name]
		switch {
		case strings.HasPrefix(text, "-> "):
			mode, text = render.Symlink, text[3:]
		case text == "submodule":
			mode, text = render.Submodule, ""
		}
		if err := f.Add(name, mode, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// overTheWire sends a folder and reads it.
func overTheWire(t testing.TB, f *Folder) *Folder {
	t.Helper()
	var wire bytes.Buffer
	if err := f.Send(&wire); err != nil {
		t.Fatal(err)
	}
	out, err := ReadFolder(&wire)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAFolderIsJudgedAsTheNextCommit(t *testing.T) {
	r := newRemote(t)
	files := map[string]string{}
	for name, text := range configFiles(20) {
		files["deploy/"+name] = text
	}
	files["deploy/web.yaml"] = app
	c1 := r.message("first\n\nAllow-Delete: all", files)
	w := forged(t, r)
	w.settle()
	w.poll()
	if st := w.status(); st.Applied != c1 {
		t.Fatalf("status %+v", st)
	}
	cache := render.NewCache(0)
	before, revision := w.versions(), w.st.Revision()
	judge := func(files map[string]string, head string, trailers ...string) *Verdict {
		t.Helper()
		trial := Trial{Folder: overTheWire(t, folderOf(t, files)), Head: head, Cache: cache}
		for _, line := range trailers {
			k, v, _ := strings.Cut(line, ": ")
			trial.Trailers = append(trial.Trailers, Trailer{Commit: head, Key: k, Value: v})
		}
		v, err := w.s.JudgeFolder(t.Context(), trial)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := judge(files, c1); !v.OK() || v.Create+v.Update+v.Delete != 0 {
		t.Errorf("the same: %v %+v", v.Lines(), v.Preview().Changes)
	}
	// The same verdict as for the commit that has it.
	files["deploy/web.yaml"], files["deploy/new.yaml"] = edit(app, "replicas: 3", "replicas: 4"), configMap("new", "1")
	files["deploy/link.yaml"] = "-> ../shared.yaml"
	files["shared.yaml"] = configMap("shared", "1")
	v := judge(files, c1)
	f := folderOf(t, files)
	if err := os.Symlink("../shared.yaml", filepath.Join(r.dir, "deploy/link.yaml")); err != nil {
		t.Fatal(err)
	}
	c2 := r.commit("Ada", map[string]string{"deploy/web.yaml": files["deploy/web.yaml"], "deploy/new.yaml": files["deploy/new.yaml"], "shared.yaml": files["shared.yaml"]})
	pushed, err := w.s.Judge(t.Context(), Candidate{Commit: c2, Commits: &Checkout{Objects: r.objects(), Cache: cache}})
	if err != nil {
		t.Fatal(err)
	}
	a, b := v.Preview(), pushed.Preview()
	if a.Commit != f.name() || len(a.Changes) != 3 {
		t.Errorf("%+v", a)
	}
	if a.Commit = b.Commit; fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("folder %+v\ncommit %+v", a, b)
	}
	// A trailer of what is applied already allows nothing; one of a new commit does.
	gone := map[string]string{"deploy/c00.yaml": files["deploy/c00.yaml"]}
	if v := judge(gone, c1, "Allow-Delete: all"); v.OK() || !strings.HasPrefix(v.Refusal, "this folder would delete 20 objects") {
		t.Errorf("a stale trailer counts: %s", v.Refusal)
	}
	if v := judge(gone, strings.Repeat("a", 40), "Allow-Delete: all"); !v.OK() || v.Delete != 20 {
		t.Errorf("%v", v.Lines())
	}
	if v := judge(map[string]string{"README.md": "x"}, ""); v.OK() || !strings.Contains(strings.Join(v.Lines(), "\n"), "deploy: no such folder") {
		t.Errorf("%v", v.Lines())
	}
	if v := judge(map[string]string{"deploy/sub": "submodule", "deploy/c00.yaml": configMap("c00", "1")}, ""); v.OK() || !strings.Contains(strings.Join(v.Lines(), "\n"), "deploy/sub") {
		t.Errorf("a submodule: %v", v.Lines())
	}
	if !maps.Equal(w.versions(), before) || w.st.Revision() != revision {
		t.Error("judging changed something")
	}
}

func TestFolderBounds(t *testing.T) {
	f := NewFolder()
	for _, name := range []string{"", "/etc/passwd", "a/../b", "..", ".", "a//b", "a/", "./a", ".git/config", "a/.GIT/x", "a\nb", "a\x00b", strings.Repeat("x", 5000), strings.Repeat("a/", 80) + "x"} {
		if err := f.Add(name, render.Regular, []byte("x"), 0); err == nil {
			t.Errorf("%.40q is taken", name)
		}
	}
	if len(f.files) != 0 {
		t.Errorf("%d files", len(f.files))
	}
	for i, err := range []error{
		f.Add("a", render.Regular, []byte("x"), 0), f.Add("b", render.Regular, nil, 10<<20),
	} {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	for i, err := range []error{
		f.Add("a", render.Regular, []byte("y"), 0), f.Add("c", render.Regular, []byte("y"), 5), f.Add("d", render.Symlink, nil, 5), f.Add("e", render.Regular, nil, -1),
		f.Add("f", render.Regular, make([]byte, MaxFolderBytes), 0),
	} {
		if err == nil {
			t.Errorf("%d is taken", i)
		}
	}
	if data, err := f.Read("a"); err != nil || string(data) != "x" {
		t.Errorf("%s %v", data, err)
	}
	if _, err := f.Read("b"); err == nil || !strings.Contains(err.Error(), "too many to be sent") {
		t.Errorf("%v", err)
	}
}

func TestAFileTooLargeToSendIsStillJudged(t *testing.T) {
	f := folderOf(t, map[string]string{"a.yaml": configMap("a", "1")})
	for _, name := range []string{"big.yaml", "big.bin"} {
		if err := f.Add(name, render.Regular, nil, api.MaxFileBytes+1); err != nil {
			t.Fatal(err)
		}
	}
	v, err := newWorld(t).s.JudgeFolder(t.Context(), Trial{Folder: overTheWire(t, f), Cache: render.NewCache(0)})
	if err != nil || len(v.Problems) != 1 || v.Problems[0].Path != "big.yaml" {
		t.Errorf("%v %v", v, err)
	}
}

func FuzzReadFolder(f *testing.F) {
	var wire bytes.Buffer
	files := map[string]string{"a.yaml": "x", "deep/er/b": "y", "l": "-> a.yaml", "s": "submodule"}
	folder := folderOf(f, files)
	if err := folder.Add("large", render.Regular, nil, 9<<20); err != nil {
		f.Fatal(err)
	}
	if err := folder.Send(&wire); err != nil {
		f.Fatal(err)
	}
	f.Add(wire.Bytes())
	f.Add(wire.Bytes()[:wire.Len()-600])
	header := func(h tar.Header, content string) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			f.Fatal(err)
		}
		return out.Bytes()
	}
	f.Add(header(tar.Header{Name: "../x", Typeflag: tar.TypeReg}, "x"))
	f.Add(header(tar.Header{Name: "x", Typeflag: tar.TypeFifo}, ""))
	f.Add(header(tar.Header{Name: "x", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}, ""))
	f.Add(header(tar.Header{Name: "x", Typeflag: tar.TypeReg, Format: tar.FormatPAX, PAXRecords: map[string]string{paxSize: "-5"}}, ""))
	f.Add([]byte("no tar"))
	f.Fuzz(func(t *testing.T, data []byte) {
		folder, err := ReadFolder(bytes.NewReader(data))
		if err != nil {
			return
		}
		if len(folder.files) > MaxFolderFiles || folder.bytes > MaxFolderBytes {
			t.Fatalf("%d files of %d bytes", len(folder.files), folder.bytes)
		}
		for file := range folder.Files() {
			if checkFolderPath(file.Path) != nil || file.Hash == "" || file.Size < 0 {
				t.Fatalf("%+v", file)
			}
		}
		if again := overTheWire(t, folder); again.name() != folder.name() {
			t.Fatal("not the same after a way over the wire")
		}
	})
}

// The hash of a file is git's.
func TestFolderHashesAsGitDoes(t *testing.T) {
	r := newRemote(t)
	r.commit("Ada", map[string]string{"a": "hello\n", "b/c": "x"})
	tree, err := r.objects().Tree(t.Context(), r.git("rev-parse", "HEAD"), "")
	if err != nil {
		t.Fatal(err)
	}
	files, err := tree.Files(t.Context())
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	f := folderOf(t, map[string]string{"a": "hello\n", "b/c": "x"})
	for _, file := range files {
		if got := f.files[file.Path].Hash; got != file.Hash || file.Mode != git.ModeFile {
			t.Errorf("%s: %s, git says %s", file.Path, got, file.Hash)
		}
	}
}
