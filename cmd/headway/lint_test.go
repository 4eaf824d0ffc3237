package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/syncer/render"
)

// repository writes files into a new folder; a value that starts with "-> " is a
// symbolic link.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, at)
		} else {
			err = os.WriteFile(at, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// execute runs a command line.
func execute(t *testing.T, args ...string) (out, notes string, err error) {
	t.Helper()
	cmd := root()
	var o, n strings.Builder
	cmd.SetOut(&o)
	cmd.SetErr(&n)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return o.String(), n.String(), err
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n"
}

const config = "apiVersion: headway.dev/v1\nkind: Config\n"

func TestLintCleanDirectory(t *testing.T) {
	dir := repository(t, map[string]string{
		"a.yaml":         configMap("a"),
		"b/c.yaml":       configMap("b") + "---\n" + configMap("c") + "status: {x: y}\n",
		"b/link.yaml":    "-> c.yaml",
		"b/up.yaml":      "-> ../.hidden/d.yaml",
		".hidden/d.yaml": configMap("d"),
		"values.yaml":    "image: nginx\n",
		"README.md":      "text",
		".git/HEAD":      "ref: refs/heads/main",
		".git/x.yaml":    "nonsense: [",
		".gitignore":     "*.yaml",
		".headway.yaml":  config + "drift: report\nallowedSigners: {ssh: keys/signers}\n",
		"keys/signers":   "me@example.org ssh-ed25519 AAAA",
	})
	out, notes, err := execute(t, "lint", dir)
	if err != nil || out != "" {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"skipped: values.yaml: ", "skipped: b/link.yaml: ", "warning: b/c.yaml:10:1: status: ignored: the cluster writes the status\n",
		"headway: lint: 0 problems, 1 warning; 4 objects in ",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("does not say %q:\n%s", want, notes)
		}
	}
	if last := notes[strings.LastIndex(strings.TrimSuffix(notes, "\n"), "\n")+1:]; !strings.HasPrefix(last, "headway: lint:") {
		t.Errorf("the counts are not the last line: %q", last)
	}
}

// TestR2_LintNamesEveryProblem has the problems of the manifests, of the
// configuration, and of the tree, in the order of the files.
func TestR2_LintNamesEveryProblem(t *testing.T) {
	dir := repository(t, map[string]string{
		".headway.yaml":     config + "drift: fix\nallowedSigners: {ssh: keys/none}\n",
		"a.yaml":            configMap("same"),
		"b.yaml":            configMap("same") + "dat: {}\n",
		"c.yaml":            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  runtimeClassName: x\n  containers: [{name: c, image: i, imagePulPolicy: x}]\n",
		"d.yaml":            "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: s}\n",
		"e.yaml":            config,
		"link.yaml":         "-> /etc/passwd",
		"sub/.headway.yaml": config,
		"vendor/.git":       "gitdir: ../.git/modules/vendor",
		"vendor/x.yaml":     "nonsense: [",
	})
	out, notes, err := execute(t, "lint", dir)
	if err == nil || !strings.HasPrefix(err.Error(), "lint: 11 problems, 0 warnings; ") {
		t.Errorf("%v", err)
	}
	want := []string{
		".headway.yaml:3:1: drift: must be heal or report",
		".headway.yaml:4:18: allowedSigners.ssh: no such file in the repository",
		"b.yaml:5:1: dat: unknown field: did you mean \"data\"?",
		"c.yaml:6:36: spec.containers[0].imagePulPolicy: unknown field: did you mean \"imagePullPolicy\"?",
		"d.yaml:2:1: kind: PodTemplate is not supported by this version of Headway",
		"e.yaml:2:1: kind: Config stands in the file .headway.yaml at the source's root",
		"link.yaml: the symbolic link to \"/etc/passwd\" leaves the repository",
		"sub/.headway.yaml: only the configuration at the source's root is read",
		"vendor: ",
	}
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for _, w := range want {
		if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, w) }) {
			t.Errorf("does not say %q", w)
		}
	}
	if len(got) != 11 || !slices.IsSortedFunc(got, func(a, b string) int {
		a, _, _ = strings.Cut(a, ":")
		b, _, _ = strings.Cut(b, ":")
		return strings.Compare(a, b)
	}) {
		t.Errorf("got\n%s\n%s", out, notes)
	}
}

func TestLintJSON(t *testing.T) {
	dir := repository(t, map[string]string{"a.yaml": configMap("Upper"), "values.yaml": "a: b\n"})
	out, _, err := execute(t, "lint", "-o", "json", dir)
	if err == nil {
		t.Error("no error")
	}
	var report lintReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) != 1 || report.Problems[0].Path != "a.yaml" || report.Problems[0].Line != 4 || report.Problems[0].Column != 3 || report.Problems[0].Field != "metadata.name" {
		t.Errorf("problems %+v", report.Problems)
	}
	if len(report.Skipped) != 1 || report.Skipped[0].Path != "values.yaml" || report.Files != 2 {
		t.Errorf("report %+v", report)
	}
	out, _, err = execute(t, "lint", "-o", "json", t.TempDir())
	if err != nil || !strings.Contains(out, `"problems": []`) || !strings.Contains(out, `"warnings": []`) || !strings.Contains(out, `"skipped": []`) {
		t.Errorf("%v %s", err, out)
	}
}

func TestLintPath(t *testing.T) {
	dir := repository(t, map[string]string{
		"other.yaml":           "nonsense: [\napiVersion: v1",
		"deploy/a.yaml":        configMap("a"),
		"deploy/.headway.yaml": config + "nonsense: 1\n",
	})
	out, _, err := execute(t, "lint", "--path", "/deploy/", dir)
	if err == nil || out != "deploy/.headway.yaml:3:1: nonsense: unknown field\n" {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = execute(t, "lint", "--path", "deplo", dir)
	if err == nil || !strings.HasPrefix(out, "deplo: no such folder") {
		t.Errorf("%v\n%s", err, out)
	}
	for outside, args := range map[string][]string{
		`--path "../x": name a folder inside`: {"--path", "../x", dir},
		"a.yaml\" is a file":                  {filepath.Join(dir, "deploy", "a.yaml")},
	} {
		if out, _, err := execute(t, append([]string{"lint"}, args...)...); err == nil || out != "" || !strings.Contains(err.Error(), outside) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	if out, _, err = execute(t, "lint", filepath.Join(dir, "nowhere")); err == nil || out != "" || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestLintFollowsTheConfiguration: what is ignored is no problem, and one name may
// stand in the default namespaces of two paths.
func TestLintFollowsTheConfiguration(t *testing.T) {
	files := map[string]string{
		"a.yaml":               configMap("same"),
		"staging/a.yaml":       configMap("same"),
		"docs/example.yaml":    "apiVersion: v1\nkind: Nonsense\n",
		"staging/x.bak":        "apiVersion: v1\nkind: Nonsense\n",
		"staging/bad.yaml":     "apiVersion: v1\nkind: Nonsense\n",
		"k/kustomization.yaml": "resources: [cm.yaml]\nnamePrefix: k-\n",
		"k/cm.yaml":            configMap("a"),
	}
	if out, _, err := execute(t, "lint", repository(t, files)); err == nil || strings.Count(out, "\n") != 3 {
		t.Errorf("without a configuration: %v\n%s", err, out)
	}
	files[".headway.yaml"] = config + "ignore: [/docs/]\npaths: [{path: staging, defaultNamespace: staging, ignore: [bad.yaml]}]\n"
	out, notes, err := execute(t, "lint", repository(t, files))
	if err != nil || !strings.Contains(notes, "3 objects in ") || !strings.Contains(notes, " and 1 kustomization\n") {
		t.Errorf("%v\n%s%s", err, out, notes)
	}
}

// TestLintOfTheRepositoryToStartFrom: what a team starts from is clean.
func TestLintOfTheRepositoryToStartFrom(t *testing.T) {
	if out, notes, err := execute(t, "lint", "../../repo-template"); err != nil {
		t.Errorf("%v\n%s%s", err, out, notes)
	}
}

func TestFolderReadsNothingOutside(t *testing.T) {
	outside := repository(t, map[string]string{"secret.yaml": configMap("secret")})
	dir := repository(t, map[string]string{
		"file":   "-> " + filepath.Join(outside, "secret.yaml"),
		"folder": "-> " + outside,
		"in":     "-> real/a.yaml",
		"real/a": "x",
		"loop":   "-> loop",
	})
	f, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	modes := map[string]render.Mode{}
	for _, file := range f.files {
		modes[file.Path] = file.Mode
	}
	if want := (map[string]render.Mode{"file": render.Symlink, "folder": render.Symlink, "in": render.Symlink, "loop": render.Symlink, "real/a": render.Regular}); len(modes) != len(want) || modes["folder"] != render.Symlink || modes["real/a"] != render.Regular {
		t.Errorf("files %v", modes)
	}
	for _, name := range []string{"file", "folder", "in", "loop"} {
		if data, err := f.Read(name); err != nil || strings.Contains(string(data), "apiVersion") {
			t.Errorf("%s: %q %v, want the link's target", name, data, err)
		}
	}
	for _, name := range []string{"folder/secret.yaml", "../x", "real", "none"} {
		if data, err := f.Read(name); err == nil {
			t.Errorf("%s: read %q", name, data)
		}
	}
}
