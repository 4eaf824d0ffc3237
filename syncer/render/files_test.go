package render_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"headway.dev/headway/syncer/render"
)

// failing is a tree of which some files cannot be read.
type failing struct {
	tree
	at string
}

var errUnread = errors.New("the disk is gone")

func (f failing) Read(p string) ([]byte, error) {
	if strings.HasPrefix(p, f.at) {
		return nil, errUnread
	}
	return f.tree.Read(p)
}

func newFiles(t *testing.T, tree render.Tree) *render.Files {
	t.Helper()
	files, err := render.NewFiles(tree)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestFilesBuildWithOthersInTheirPlace(t *testing.T) {
	files := newFiles(t, tree{"k/kustomization.yaml": "resources: [a.yaml]\n", "k/a.yaml": config("a"), "other/x": "y"})
	for _, c := range []struct {
		with      map[string][]byte
		want, why string
	}{
		{nil, "name: a\n", ""},
		{map[string][]byte{"k/a.yaml": []byte(config("b"))}, "name: b\n", ""},
		{map[string][]byte{"k/kustomization.yaml": []byte("resources: [a.yaml, ../new/n.yaml]\n"), "new/n.yaml": []byte(config("new"))}, "name: new\n", ""},
		{map[string][]byte{"k/kustomization.yaml": []byte("resources: [a.yaml, ../new]\n"), "new/kustomization.yaml": []byte("resources: [n.yaml]\n"), "new/n.yaml": []byte(config("new"))}, "name: new\n", ""},
		{map[string][]byte{"k/kustomization.yaml": []byte("resources: [lost.yaml]\n")}, "", `k/kustomization.yaml:1:13: resources[0]: "lost.yaml"`},
		{nil, "name: a\n", ""},
	} {
		out, why, err := files.Build("k", c.with)
		if err != nil || !strings.Contains(string(out), c.want) || !strings.HasPrefix(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%v: %s, %q, %v", c.with, out, why, err)
		}
	}
	if out, why, err := files.Build("other", nil); err != nil || out != nil || why != "there is no kustomization that can be read in other" {
		t.Errorf("%s, %q, %v", out, why, err)
	}
	if _, err := files.Read("k/lost.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestR14_NoSecretInWhyFilesDoNotBuild: kustomize's own words may repeat one.
func TestR14_NoSecretInWhyFilesDoNotBuild(t *testing.T) {
	const secret = "hunter2verysecret"
	text := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  a: " + secret + "\n"
	files := newFiles(t, tree{"k/kustomization.yaml": "resources: [s.yaml]\n", "k/s.yaml": text})
	for _, patch := range []string{
		"'[{op: replace, path: /none/x, value: " + secret + "}]'\n  target: {kind: Secret}",
		"'[{op: test, path: /stringData/a, value: x}]'\n  target: {kind: Secret}",
		"|-\n    apiVersion: v1\n    kind: Secret\n    metadata: {name: none}\n    stringData: {a: " + secret + "}",
	} {
		_, why, err := files.Build("k", map[string][]byte{"k/kustomization.yaml": []byte("resources: [s.yaml]\npatches:\n- patch: " + patch + "\n")})
		if err != nil || why == "" || strings.Contains(why, secret) {
			t.Errorf("%s: %q %v", patch, why, err)
		}
	}
}

// TestAFileThatCannotBeReadIsNoVerdict: it says nothing about the commit.
func TestAFileThatCannotBeReadIsNoVerdict(t *testing.T) {
	all := tree{"k/kustomization.yaml": "resources: [a.yaml]\n", "k/a.yaml": config("a"), "link": "-> k/a.yaml"}
	for at, read := range map[string]string{"k/kustomization.yaml": "k/kustomization.yaml", "k/a.yaml": "link", "link": "link"} {
		files := newFiles(t, failing{all, at})
		if _, err := files.Read(read); !errors.Is(err, errUnread) {
			t.Errorf("read %s: %v", read, err)
		}
		if _, why, err := files.Build("k", nil); at != "link" && (!errors.Is(err, errUnread) || why != "") {
			t.Errorf("build without %s: %q %v", at, why, err)
		}
	}
}
