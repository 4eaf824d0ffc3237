package render_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/render"
)

func TestIgnorePatterns(t *testing.T) {
	files := tree{
		"deploy/a.yaml": config("a"), "deploy/dev/b.yaml": config("b"), "deploy/dev/keep.yaml": config("keep"), "deploy/charts/x/Chart.yaml": "name: x", "deploy/charts/x/templates/a.yaml": "apiVersion: v1\nkind: {{ x }}",
		"deploy/vendor": "submodule", "deploy/secret.enc.yaml": "\x00GITCRYPT\x00", "deploy/out.yaml": "-> ../../x", "deploy/k/kustomization.yaml": "resources: [https://x]\n", "deploy/.headway.yaml": "apiVersion: headway.dev/v1\nkind: Config\n",
		"deploy/used/kustomization.yaml": "resources: [left-out.yaml]\n", "deploy/used/left-out.yaml": config("used"),
		"deploy/staging/kustomization.yaml": "resources: [../base]\n", "deploy/base/kustomization.yaml": "resources: [x.yaml]\n", "deploy/base/x.yaml": config("base"),
	}
	result, problems, err := render.Render(files, render.Options{
		Path:   "deploy",
		Ignore: []string{"# a comment", "", "/dev/*", "!keep.yaml", "charts/", "vendor", "*.enc.yaml", "out.yaml", "k/", "left-out.yaml", "staging"},
		Paths:  []api.PathConfig{{Path: "dev", Ignore: []string{"!b.yaml"}}},
	})
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	// staging is left out, and its base stays a base.
	if got, want := names(result.Manifests), []string{"deploy/a.yaml:default/a", "deploy/dev/b.yaml:default/b", "deploy/dev/keep.yaml:default/keep", "deploy/used/left-out.yaml:default/used"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSettingsByPath(t *testing.T) {
	files := tree{
		"src/a.yaml": config("a"), "src/team/b.yaml": config("b"), "src/team/sub/c.yaml": config("c"), "src/teams/d.yaml": config("d"),
		"src/team/unit/kustomization.yaml": "resources: [e.yaml]\n", "src/team/unit/e.yaml": config("e"),
		"src/other/kustomization.yaml": "namespace: own\nresources: [../team/shared]\n", "src/team/shared/kustomization.yaml": "resources: [f.yaml]\n", "src/team/shared/f.yaml": config("f"),
	}
	opts := render.Options{Path: "src", DefaultNamespace: "top", Cache: render.NewCache(0), Paths: []api.PathConfig{{Path: "team", DefaultNamespace: "one"}, {Path: "/team/sub/", DefaultNamespace: "two"}, {Path: "team/unit"}}}
	want := []string{"src/a.yaml:top/a", "src/team/b.yaml:one/b", "src/team/shared/f.yaml:own/f", "src/team/sub/c.yaml:two/c", "src/team/unit/e.yaml:one/e", "src/teams/d.yaml:top/d"}
	for range 2 {
		result, problems, err := render.Render(files, opts)
		if err != nil || len(problems) > 0 || !slices.Equal(names(result.Manifests), want) {
			t.Errorf("got %v, want %v (%v %v)", names(result.Manifests), want, problems, err)
		}
	}
	opts.Paths[0].DefaultNamespace = "three"
	result, _, err := render.Render(files, opts)
	if got := names(result.Manifests); err != nil || got[1] != "src/team/b.yaml:three/b" || got[4] != "src/team/unit/e.yaml:three/e" || result.Rendered != 1 {
		t.Errorf("got %v, %d rendered", got, result.Rendered)
	}
}

// TestPatternsThatAreAcceptedAreRead makes patterns of the pieces that matter: one
// that a configuration may have is never passed over in silence.
func TestPatternsThatAreAcceptedAreRead(t *testing.T) {
	pieces := []string{"a", "z", "é", "-", "[", "]", "!", "^", "/", "*", "**", "?", `\`, "[:alpha:]", "[:foo:]", "[:", ":]", ":", " ", "#", "."}
	rnd := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 50_000 {
		var b strings.Builder
		for range 1 + rnd.IntN(7) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		pattern := b.String()
		text, err := json.Marshal([]string{pattern})
		if err != nil {
			t.Fatal(err)
		}
		if _, problems := api.DecodeConfig(".headway.yaml", fmt.Appendf(nil, "apiVersion: headway.dev/v1\nkind: Config\nignore: %s\n", text)); len(problems) > 0 {
			continue
		}
		if accepted++; !render.Reads(pattern) {
			t.Errorf("%q is accepted and never matches", pattern)
		}
	}
	if accepted < 5_000 {
		t.Errorf("only %d were accepted", accepted)
	}
}

// TestPatternsAreBounded: a commit cannot make the judge work for minutes.
func TestPatternsAreBounded(t *testing.T) {
	files := tree{}
	for i := range 500 {
		files[fmt.Sprintf("%s/%d.yaml", strings.Repeat("/"+strings.Repeat("a", 250), 12)[1:], i)] = config("a")
	}
	_, problems, err := render.Render(files, render.Options{Ignore: slices.Repeat([]string{"a*" + strings.Repeat("*b", 400) + "*"}, 1000)})
	if err != nil || len(problems) != 1 || problems[0].String() != ".headway.yaml: ignore: the patterns cost too much on so many files: write fewer with stars, or ignore a folder as a whole" {
		t.Errorf("%v %v", problems, err)
	}
}

// TestIgnoreIsGits compares the patterns with git's own reading of them.
func TestIgnoreIsGits(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err) // the syncer does not work without it either
	}
	dir := t.TempDir()
	run := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.Command(git, args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(in)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := cmd.Output()
		if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == 1 {
			return string(out) // nothing is ignored
		}
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return string(out)
	}
	run("", "init", "-q", ".")
	fixed := [][]string{
		{"*.yaml", "!a.yaml"}, {"/a"}, {"a/"}, {"a/b"}, {"**/b"}, {"a/**"}, {"a/**/b"}, {"**"}, {"*"}, {"!*"}, {"a*", "!ab/"}, {"[ab]"}, {"[!a]"}, {"[^a]*"}, {"[a-b]c"}, {`\!a`}, {`\#a`}, {"#a"}, {"a\\ "}, {"a "},
		{"?"}, {"a?b"}, {"a/*"}, {"a/*", "!a/b"}, {"/*/b"}, {"a//b"}, {"***"}, {"a**b"}, {"[[:alpha:]]"}, {"[]a]"}, {"[a"}, {"b/", "!a/b/"}, {"/"}, {"//"}, {"**/"}, {"a/**/"}, {"/**/a"}, {"*a*b*"}, {`a\`}, {"a[/]b"}, {"a.b"}, {"(a|b)"}, {"a+"}, {"^a"}, {"$"}, {"{a,b}"}, {"[a\\]b]"}, {"[a-]"}, {"[-a]"}, {"./a"}, {"a/./b"}, {"é*"},
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(of string, n int) string {
		var b strings.Builder
		for range 1 + rnd.IntN(n) {
			b.WriteByte(of[rnd.IntN(len(of))])
		}
		return b.String()
	}
	for range 150 {
		var lines []string
		for range 1 + rnd.IntN(3) {
			lines = append(lines, pick("aab/**!?.", 6))
		}
		fixed = append(fixed, lines)
	}
	for _, lines := range fixed {
		files := tree{}
		for range 60 {
			name := filepath.Clean(pick("abc.", 2) + "/" + pick("ab ", 3) + "/" + pick("abc/", 4))
			for strings.Contains(name, "..") || strings.Contains(name, "/.") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") {
				name = "a/b" + strings.ReplaceAll(strings.ReplaceAll(name, ".", "c"), "//", "/")
			}
			files[name+".yaml"] = config("x")
		}
		for _, name := range []string{"a.yaml", "ab/a.yaml", "a/b.yaml", "a/b/c.yaml", "a/c/b/d.yaml", "b/x.yaml", "é.yaml", "!a/x.yaml", "#a/x.yaml", "a b/c.yaml", "a+/x.yaml", "ac/x.yaml"} {
			files[name] = config("x")
		}
		if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var all []string
		for name := range files {
			all = append(all, name)
		}
		slices.Sort(all)
		ignored := strings.Split(run(strings.Join(all, "\x00"), "check-ignore", "--no-index", "-z", "--stdin"), "\x00")
		var want, got []string
		for _, name := range all {
			if !slices.Contains(ignored, name) {
				want = append(want, name)
			}
		}
		for name := range files {
			files[name] = config(fmt.Sprintf("c%x", name))
		}
		result, problems, err := render.Render(files, render.Options{Ignore: lines})
		if err != nil || len(problems) > 0 {
			t.Fatalf("%q: %v %v", lines, problems[:min(3, len(problems))], err)
		}
		for _, m := range result.Manifests {
			got = append(got, m.Path)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			for _, name := range all {
				if slices.Contains(got, name) != slices.Contains(want, name) {
					t.Errorf("%q: git ignores %q: %t", lines, name, slices.Contains(ignored, name))
					break
				}
			}
		}
	}
}
