package render_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/corpus"
	"headway.dev/headway/syncer/render"
)

// realFiles are the corpus, as one tree.
func realFiles(t testing.TB) tree {
	files := tree{}
	root := filepath.Join(corpus.Dir(t), "valid")
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		files[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	return files
}

// TestCorpusAsPlainFiles renders all real manifests as one source. Nothing may be
// wrong with them but kinds and fields that this version does not have, missing
// names, and what several repositories declare alike.
func TestCorpusAsPlainFiles(t *testing.T) {
	files := realFiles(t)
	var allowed []string
	for _, k := range api.Kinds() {
		if k.Risk != "" {
			allowed = append(allowed, k.Kind)
		}
	}
	result, problems, err := render.Render(files, render.Options{AllowStored: allowed})
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`not supported by this version|is declared already at|metadata.generateName: Forbidden|is made by the cluster|cannot be declared|supported by this version of Headway|finalizers: Forbidden`)
	for _, p := range problems {
		if !known.MatchString(p.String()) || p.Line < 1 || p.Column < 1 {
			t.Errorf("%s", p)
		}
	}
	if len(result.Manifests) < 100 {
		t.Errorf("only %d manifests", len(result.Manifests))
	}
	for _, n := range result.Skipped {
		t.Log(n)
	}
}

// TestCorpusAsKustomizations makes a kustomization around each real file, with an
// overlay above it, and compares its objects with those of kustomize itself.
func TestCorpusAsKustomizations(t *testing.T) {
	compared, objects := 0, 0
	for name, text := range realFiles(t) {
		if kustomize := path.Base(name); strings.HasPrefix(strings.ToLower(kustomize), "kustomization") {
			t.Logf("the corpus has a kustomization: %s", name)
		}
		files := tree{
			"base/" + path.Base(name):  text,
			"base/kustomization.yaml":  "resources: [\"" + path.Base(name) + "\"]\n",
			"prod/kustomization.yaml":  "resources: [../base]\nnamePrefix: p-\nnamespace: prod\nlabels: [{pairs: {env: prod}, includeSelectors: true}]\ncommonAnnotations: {a: b}\nimages: [{name: nginx, newTag: x}]\npatches:\n- target: {kind: Deployment}\n  patch: |-\n    - {op: add, path: /spec/minReadySeconds, value: 1}\n",
			"prod/not-named/hint.yaml": "a: b\n",
		}
		result, problems, err := render.Render(files, render.Options{})
		if err != nil {
			t.Fatal(err)
		}
		hard := false
		for _, p := range problems {
			if p.Path == "" || p.Reason == "" {
				t.Errorf("%s: %+v", name, p)
			}
			hard = hard || strings.Contains(p.Reason, "kustomize")
			if strings.Contains(p.Reason, "kustomize") {
				t.Logf("%s: %s", name, p)
			}
		}
		if hard || len(problems) > 0 {
			continue
		}
		compared++
		objects += len(result.Manifests)
		same(t, files, result)
		for _, m := range result.Manifests {
			if m.Unit != "prod" || !strings.HasPrefix(m.Path, "base/") || m.Line < 1 {
				t.Errorf("%s: %s comes from %s:%d by %s", name, m.Object.GetName(), m.Path, m.Line, m.Unit)
			}
			if at := m.Place("metadata.name"); at.Path != m.Path && m.Kind.Kind != "Namespace" {
				t.Errorf("%s: the name of %s stands at %s", name, m.Object.GetName(), at)
			}
		}
	}
	if compared < 10 {
		t.Errorf("only %d files were compared", compared)
	}
	t.Logf("%d files with %d objects", compared, objects)
}
