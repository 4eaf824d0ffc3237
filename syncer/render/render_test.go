package render_test

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/render"
)

// tree is a commit's content by path; a value that starts with "-> " is a
// symbolic link, "submodule" a submodule.
type tree map[string]string

func (t tree) Files() iter.Seq2[render.File, error] {
	return func(yield func(render.File, error) bool) {
		for p, text := range t {
			f := render.File{Path: p, Size: int64(len(text)), Hash: fmt.Sprintf("%x", sha1.Sum([]byte(text)))}
			switch {
			case strings.HasPrefix(text, "-> "):
				f.Mode = render.Symlink
			case text == "submodule":
				f.Mode = render.Submodule
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

func (t tree) Read(p string) ([]byte, error) {
	text, ok := t[p]
	if !ok {
		return nil, errors.New("no such file")
	}
	return []byte(strings.TrimPrefix(text, "-> ")), nil
}

func config(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\ndata:\n  a: b\n"
}

func names(ms []*api.Manifest) (out []string) {
	for _, m := range ms {
		out = append(out, m.Path+":"+m.Object.GetNamespace()+"/"+m.Object.GetName())
	}
	return out
}

func TestWhichFilesAreManifests(t *testing.T) {
	result, problems, err := render.Render(tree{
		"b.yaml":                config("b"),
		"a/a.yml":               config("a") + "---\n" + config("a2"),
		"c.json":                `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"x"}}`,
		"flow.yaml":             "{apiVersion: v1, kind: ConfigMap, metadata: {name: flow}}",
		"values.yaml":           "image: nginx\n",
		"tsconfig.json":         "{\n// strict: [\n}\n",
		"empty.yaml":            "# nothing\n",
		"package.json":          `{"name": "x"}`,
		"README.md":             "apiVersion: v1\nkind: Nonsense\n",
		".github/workflow.yaml": "apiVersion: v1\nkind: Nonsense\n",
		"a/.hidden.yaml":        "apiVersion: v1\nkind: Nonsense\n",
		"link.yaml":             "-> a/a.yml",
		"docs":                  "-> a",
		"a/copy.yaml":           "-> ../.hidden/d.yaml",
		".hidden/d.yaml":        config("d"),
		"binary":                "\x00\x01",
	}, render.Options{})
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v %v", problems, err)
	}
	if got, want := names(result.Manifests), []string{".hidden/d.yaml:default/d", "a/a.yml:default/a", "a/a.yml:default/a2", "b.yaml:default/b", "c.json:x/c", "flow.yaml:default/flow"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	var skipped []string
	for _, n := range result.Skipped {
		skipped = append(skipped, n.Path)
		if n.Why == "" {
			t.Errorf("%s is skipped without a reason", n.Path)
		}
	}
	if want := []string{"docs", "empty.yaml", "link.yaml", "package.json", "tsconfig.json", "values.yaml"}; !reflect.DeepEqual(skipped, want) {
		t.Errorf("skipped %v, want %v", skipped, want)
	}
}

// TestWhatIsNoYAMLIsRefused: nobody knows what it was before it was broken.
func TestWhatIsNoYAMLIsRefused(t *testing.T) {
	const leave = ": mend it, or leave the file out with an ignore pattern"
	broken := tree{"a.yaml": "x: {a", "b/c.yml": "a: [1\n---\nok: 1\n---\n\tb: 1\n", "t.yaml": "a: {{ .b }}\n c: ["}
	for _, ignore := range [][]string{nil, {"*.yaml", "b"}} {
		result, problems, err := render.Render(broken, render.Options{Ignore: ignore})
		if err != nil || len(result.Skipped) > 0 {
			t.Fatalf("%v %v", result.Skipped, err)
		}
		var said []string
		for _, p := range problems {
			said = append(said, p.String())
		}
		want := []string{
			"a.yaml:1: cannot be read: did not find expected ',' or '}'" + leave,
			"b/c.yml:1: cannot be read: did not find expected ',' or ']'" + leave,
			"b/c.yml:5: cannot be read: found character that cannot start any token" + leave,
			"t.yaml:1:4: cannot be read: this is an unrendered Helm template ({{ }} outside quotes): commit what `helm template` prints, leave the file out with an ignore pattern, or put the value in quotes",
		}
		if ignore != nil {
			want = nil
		}
		if !slices.Equal(said, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestRefusedByName(t *testing.T) {
	for name, c := range map[string]struct {
		tree tree
		want []string // each problem contains path and words
	}{
		"kustomization":   {tree{"k/kustomization.yaml": "resources: [a.yaml]", "k/a.yaml": "apiVersion: v1\nkind: Nonsense\n"}, []string{"k/a.yaml:1:1: metadata.name: missing: kustomize needs the name"}},
		"chart":           {tree{"c/Chart.yaml": "name: c", "c/templates/a.yaml": "apiVersion: v1\nkind: {{ x }}"}, []string{"c/Chart.yaml:1: Helm charts are not rendered"}},
		"chart at root":   {tree{"Chart.yaml": "name: c", "templates/a.yaml": "apiVersion: v1\nkind: {{ x }}"}, []string{"Chart.yaml:1: Helm charts are not rendered"}},
		"sops":            {tree{"s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  a: ENC[AES256_GCM,data:x]\nsops:\n  mac: ENC[AES256_GCM,data:y]\n"}, []string{"s.yaml:1: the file is encrypted with SOPS"}},
		"git-crypt":       {tree{"s.yaml": "\x00GITCRYPT\x00abc"}, []string{"s.yaml:1: the file is encrypted with git-crypt"}},
		"lfs":             {tree{"s.yaml": "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"}, []string{"s.yaml:1: the file is kept in Git LFS"}},
		"submodule":       {tree{"vendor": "submodule"}, []string{"vendor: a submodule is not followed"}},
		"link out":        {tree{"a/x.yaml": "-> ../../etc/passwd"}, []string{`a/x.yaml: the symbolic link to "../../etc/passwd" leaves the repository`}},
		"absolute link":   {tree{"x": "-> /etc"}, []string{`x: the symbolic link to "/etc" leaves the repository`}},
		"dangling link":   {tree{"x.yaml": "-> y.yaml"}, []string{`x.yaml: the symbolic link to "y.yaml" leads nowhere`}},
		"link to link":    {tree{"x.yaml": "-> y.yaml", "y.yaml": "-> x.yaml"}, []string{"x.yaml: ", "y.yaml: "}},
		"declared twice":  {tree{"a.yaml": config("same"), "b.yaml": "\n" + config("same")}, []string{"b.yaml:2:1: metadata.name: ConfigMap default/same is declared already at a.yaml:1:1"}},
		"invalid":         {tree{"a.yaml": config("Upper")}, []string{`a.yaml:4:3: metadata.name: Invalid value: "Upper"`}},
		"unsupported":     {tree{"a.yaml": "apiVersion: v1\nkind: PodTemplate\nmetadata:\n  name: x\n"}, []string{"a.yaml:2:1: kind: PodTemplate is not supported"}},
		"no head":         {tree{"a.yaml": "metadata: {name: a}\nspec: {replicas: 1}\n"}, []string{"a.yaml:1:1: kind: missing"}},
		"unreadable":      {tree{"a.yaml": "kind: ConfigMap\nmetadata: [\n"}, []string{"a.yaml:2: cannot be read"}},
		"template":        {tree{"a.yaml": "{{- if .x }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .x }}\n{{- end }}\n"}, []string{"a.yaml:1:1: cannot be read: this is an unrendered Helm template"}},
		"submodule, url":  {tree{"a/vendor": "submodule", ".gitmodules": "[submodule \"x\"]\n  url = git@example.com:x/y.git\n  path = a/vendor\n[other]\n"}, []string{"a/vendor: a submodule of git@example.com:x/y.git is not followed"}},
		"submodule, link": {tree{"a/in.yaml": "-> vendor/x.yaml", "a/vendor": "submodule"}, []string{"a/in.yaml: the symbolic link to \"vendor/x.yaml\" leads into a submodule", "a/vendor: a submodule is not"}},
		"removed version": {tree{"a.yaml": "apiVersion: extensions/v1beta1\nkind: PodSecurityPolicy\n", "b.yaml": "apiVersion: apps/v1beta2\nkind: Deployment\n"}, []string{"a.yaml:2:1: kind: apiVersion extensions/v1beta1 of PodSecurityPolicy was removed in Kubernetes 1.16 and nothing replaces it", "b.yaml:1:1: apiVersion: apiVersion apps/v1beta2 of Deployment was removed in Kubernetes 1.16: write apps/v1"}},
		"half a manifest": {tree{"a.yaml": config("a") + "---\nfoo: bar\n"}, []string{"a.yaml:8:1: kind: missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems, err := render.Render(c.tree, render.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(problems) != len(c.want) {
				t.Fatalf("got %v, want %v", problems, c.want)
			}
			for i, p := range problems {
				if !strings.HasPrefix(p.String(), c.want[i]) {
					t.Errorf("got %q, want %q", p, c.want[i])
				}
			}
		})
	}
}

func TestPath(t *testing.T) {
	files := tree{"deploy/a.yaml": config("a"), "deployed/b.yaml": config("b"), "c.yaml": config("c"), "deploy/.x/d.yaml": config("d")}
	result, problems, err := render.Render(files, render.Options{Path: "/deploy/", DefaultNamespace: "team"})
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v %v", problems, err)
	}
	if got := names(result.Manifests); !reflect.DeepEqual(got, []string{"deploy/a.yaml:team/a"}) {
		t.Errorf("got %v", got)
	}
	_, problems, err = render.Render(files, render.Options{Path: "deplo"})
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0].String(), "deplo: no such folder") {
		t.Errorf("%v %v", problems, err)
	}
}

type broken struct{ tree }

func (broken) Read(string) ([]byte, error) { return nil, errors.New("disk on fire") }

func TestUnreadableTreeIsNoVerdict(t *testing.T) {
	_, problems, err := render.Render(broken{tree{"a.yaml": config("a")}}, render.Options{})
	if err == nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestCacheReadsOnlyWhatChanged(t *testing.T) {
	files := tree{}
	for i := range 50 {
		files[fmt.Sprintf("%02d.yaml", i)] = config(fmt.Sprintf("c-%d", i))
	}
	opts := render.Options{Cache: render.NewCache(0)}
	read := func() int {
		t.Helper()
		result, problems, err := render.Render(files, opts)
		if err != nil || len(problems) > 0 || len(result.Manifests) != len(files) {
			t.Fatalf("%d %v %v", len(result.Manifests), problems, err)
		}
		return result.Read
	}
	for i, step := range []struct {
		change func()
		want   int
	}{
		{func() {}, 50},
		{func() {}, 0},
		{func() { files["07.yaml"] = config("other") }, 1},
		{func() { files["99.yaml"] = files["08.yaml"]; delete(files, "08.yaml") }, 1},
		{func() { files["07.yaml"] = config("c-7") }, 0},
		{func() { opts.DefaultNamespace = "team" }, 50},
	} {
		step.change()
		if got := read(); got != step.want {
			t.Errorf("step %d: %d files read, want %d", i, got, step.want)
		}
	}
	opts.Cache = render.NewCache(20 * 320)
	read()
	if got := read(); got < 25 || got > 40 {
		t.Errorf("a cache for about 20 files: %d of 50 read again", got)
	}
}

func TestSameResultWithAndWithoutCache(t *testing.T) {
	files := tree{"a.yaml": config("a"), "b.yaml": config("B"), "c.yaml": "x: y"}
	cache := render.NewCache(0)
	var first string
	for i := range 3 {
		opts := render.Options{Cache: cache}
		if i == 0 {
			opts.Cache = nil
		}
		result, problems, err := render.Render(files, opts)
		got := fmt.Sprint(names(result.Manifests), problems, result.Skipped, err)
		if i > 0 && got != first {
			t.Errorf("got %s, want %s", got, first)
		}
		first = got
	}
}

// TestTemplateRepositoryRenders renders what a team starts from.
func TestTemplateRepositoryRenders(t *testing.T) {
	files := tree{}
	root := "../../repo-template"
	err := filepath.WalkDir(root, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	result, problems, err := render.Render(files, render.Options{})
	if err != nil || len(problems) > 0 || len(result.Manifests) < 3 {
		t.Errorf("%v %v %v", names(result.Manifests), problems, err)
	}
}

func deployments(n int) tree {
	files := tree{}
	for i := range n {
		files[fmt.Sprintf("apps/%03d/app-%05d.yaml", i%100, i)] = fmt.Sprintf(`# app %[1]d
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-%[1]d
  namespace: team-%[2]d
  labels: {app.kubernetes.io/name: app-%[1]d, app.kubernetes.io/part-of: bench}
spec:
  replicas: 2
  selector:
    matchLabels: {app: app-%[1]d}
  template:
    metadata:
      labels: {app: app-%[1]d}
    spec:
      containers:
        - name: web
          image: registry.example.com/team/app:%[1]d
          ports:
            - {name: http, containerPort: 8080}
          env:
            - {name: LOG_LEVEL, value: info}
            - name: PASSWORD
              valueFrom: {secretKeyRef: {name: db, key: password}}
          resources:
            requests: {cpu: 100m, memory: 128Mi}
            limits: {memory: 256Mi}
`, i, i%100)
	}
	return files
}

// hashed gives the same files each time, hashed once, as git does.
type hashed struct {
	tree
	files []render.File
}

func (h hashed) Files() iter.Seq2[render.File, error] {
	return func(yield func(render.File, error) bool) {
		for _, f := range h.files {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// sound checks what must hold of every render, whatever the tree.
func sound(t *testing.T, files tree) {
	t.Helper()
	result, problems, err := render.Render(files, render.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Path == "" || p.Reason == "" || p.Line < 0 || strings.ContainsAny(p.String(), "\n\r\x00\x1b") {
			t.Errorf("problem %+v", p)
		}
	}
	for _, m := range result.Manifests {
		if m.Object == nil || m.Hash == "" || m.Line < 1 || m.Column < 1 || m.Place("metadata.name").Line < 1 || m.Place("spec.none[3].x").Path == "" {
			t.Errorf("manifest %+v", m)
		}
	}
	again, problemsAgain, err := render.Render(files, render.Options{Cache: render.NewCache(0)})
	if err != nil || told(again, problemsAgain) != told(result, problems) {
		t.Errorf("another time:\n%s\nat first:\n%s", told(again, problemsAgain), told(result, problems))
	}
}

func FuzzRender(f *testing.F) {
	for _, text := range slices.Sorted(maps.Values(deployments(1))) {
		f.Add("a.yaml", []byte(text))
	}
	f.Add("Chart.yaml", []byte("name: x"))
	f.Add("x.json", []byte(`{"kind":"List","apiVersion":"v1","items":[{}]}`))
	f.Add("t.yaml", []byte("kind: {{ x }}\napiVersion: v1\n"))
	f.Add("a\n.yaml", []byte("kind: \xff\n"))
	f.Add(".gitmodules", []byte("[submodule \"x\"]\npath=a\nurl=https://u:p@x\n"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if bytes.HasPrefix(data, []byte("-> ")) {
			return
		}
		sound(t, tree{name: string(data)})
	})
}

// FuzzKustomization gives kustomizations, resources and patches. Nothing may
// panic, take long or reach out.
func FuzzKustomization(f *testing.F) {
	add := func(kustomization, resource, patch string) {
		f.Add([]byte(kustomization), []byte(resource), []byte(patch))
	}
	patch := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2}\n"
	for _, k := range []string{
		"resources: [r.yaml]\n", "resources: [r.yaml]\npatches: [{path: p.yaml}]\n", "resources: [r.yaml]\npatches: [{path: p.yaml, target: {kind: .*}}]\nnamePrefix: a-\nnamespace: b\n",
		"resources: [r.yaml]\npatchesStrategicMerge: [p.yaml]\ncommonLabels: {a: b}\nimages: [{name: i, newName: j}]\n", "resources: [r.yaml]\npatchesJson6902: [{path: p.yaml, target: {kind: Deployment, name: web}}]\n",
		"configMapGenerator: [{name: a, files: [r.yaml], envs: [p.yaml], literals: [a=b]}]\n", "secretGenerator: [{name: a, files: [x=r.yaml]}]\ngeneratorOptions: {disableNameSuffixHash: true, immutable: true}\n",
		"resources: [r.yaml]\nreplacements: [{path: p.yaml}]\n", "resources: [r.yaml]\nvars: [{name: A, objref: {kind: Deployment, name: web, apiVersion: apps/v1}}]\n", "resources: [r.yaml]\ntransformers: [p.yaml]\ngenerators: [p.yaml]\n",
		"resources: [r.yaml]\nconfigurations: [p.yaml]\ncrds: [p.yaml]\n", "resources: [r.yaml, sub]\ncomponents: [c]\n", "resources: [r.yaml]\nlabels: [{pairs: {a: b}, includeSelectors: true, fields: [{path: spec/x, create: true}]}]\nreplicas: [{name: web, count: 2}]\nsortOptions: {order: legacy}\n",
		"resources: [https://x, git@x:y/z, ../.., /x]\n", "resources: [.]\n", "[]\n", "? [a]\n: b\n", "\x00", "{\"resources\": [\"r.yaml\"]}", "%YAML 1.1\n---\nresources: &a [r.yaml]\nbases: *a\n",
	} {
		add(k, web, patch)
		add(k, web+"---\n"+config("c"), "- {op: add, path: /metadata/annotations, value: {a: b}}\n")
		add(k, "apiVersion: v1\nkind: List\nitems: [{kind: X}, 1]\n", "A=b\nc\n")
		add(k, strings.ReplaceAll(web, "\n", "\r\n"), "source: {kind: Deployment}\ntargets: [{select: {kind: Deployment}, fieldPaths: [metadata.name]}]\n")
		add(k, "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: x}\n", "apiVersion: builtin\nkind: LabelTransformer\nmetadata: {name: x}\nlabels: {a: b}\nfieldSpecs: [{path: metadata/labels, create: true}]\n")
	}
	f.Fuzz(func(t *testing.T, kustomization, resource, patch []byte) {
		files := tree{"kustomization.yaml": string(kustomization), "r.yaml": string(resource), "p.yaml": string(patch), "sub/kustomization.yaml": "namePrefix: s-\nresources: [r.yaml]\n", "sub/r.yaml": string(resource), "c/kustomization.yaml": "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\npatches: [{path: ../p.yaml}]\n"}
		for _, text := range files {
			if strings.HasPrefix(text, "-> ") || text == "submodule" {
				return
			}
		}
		sound(t, files)
	})
}

func FuzzIgnore(f *testing.F) {
	for _, seed := range []string{"*.yaml", "!a", "a/**/b", "[[:alpha:]-]", "[]]", "\\", "[a", "**", "a\\ ", "[\\]]", "[^/]", "(?i)a{2}"} {
		f.Add(seed, "a/b.yaml")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		sound(t, tree{name: config("a")})
		if _, _, err := render.Render(tree{name: config("a")}, render.Options{Ignore: []string{pattern}, Paths: []api.PathConfig{{Path: name, Ignore: []string{pattern}}}}); err != nil {
			t.Error(err)
		}
	})
}
