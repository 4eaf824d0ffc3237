package render_test

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/syncer/render"
)

func TestOnlyUnitsThatChangedAreRendered(t *testing.T) {
	files := overlays(20)
	files["shared/kustomization.yaml"] = "resources: [s.yaml]\n"
	files["shared/s.yaml"] = config("shared")
	for i := range 5 {
		files[fmt.Sprintf("apps/%04d/prod/kustomization.yaml", i)] = strings.Replace(files[fmt.Sprintf("apps/%04d/prod/kustomization.yaml", i)], "[../base]", "[../base, ../../../shared]", 1)
	}
	opts := render.Options{Cache: render.NewCache(0)}
	for i, step := range []struct {
		change         func()
		read, rendered int
		problems       int
	}{
		{func() {}, 20*5 + 2, 20, 0},
		{func() {}, 0, 0, 0},
		{func() { files["apps/0007/prod/patch.yaml"] += "# more\n" }, 1, 1, 0},
		{func() { files["apps/0008/base/kustomization.yaml"] += "# more\n" }, 1, 1, 0},
		{func() { files["shared/s.yaml"] = config("other") }, 1, 5, 0},
		{func() { files["README.md"] = "unrelated" }, 0, 0, 0},
		{func() { files["plain.yaml"] = config("plain") }, 1, 0, 0},
		{func() { delete(files, "shared/s.yaml") }, 0, 5, 1},
		{func() { files["shared/s.yaml"] = config("other") }, 0, 0, 0}, // as it was before
		{func() { files["apps/0009/base/Kustomization"] = "resources: [web.yaml]\n" }, 0, 1, 1},
		{func() { delete(files, "apps/0009/base/Kustomization") }, 0, 0, 0},
		{func() { files["shared/s.yaml/x"] = "y"; delete(files, "shared/s.yaml") }, 0, 5, 1},
		{func() { opts.DefaultNamespace = "team" }, 1, 20, 1},
	} {
		step.change()
		result, problems, err := render.Render(files, opts)
		if err != nil || len(problems) != step.problems {
			t.Fatalf("step %d: %v %v", i, problems, err)
		}
		if result.Read != step.read || result.Rendered != step.rendered || result.Units != 20 {
			t.Errorf("step %d: %d files read, %d of %d units rendered; want %d and %d", i, result.Read, result.Rendered, result.Units, step.read, step.rendered)
		}
	}
}

// TestSameWithAndWithoutCacheWhateverChanges changes a tree at random and compares
// what a cache makes of it with a render from nothing.
func TestSameWithAndWithoutCacheWhateverChanges(t *testing.T) {
	variants := map[string][]string{
		"a/kustomization.yaml":       {"resources: [r.yaml]\n", "resources: [r.yaml, ../b]\n", "resources: [r.yaml, ../b, ../lost.yaml]\nnamePrefix: p-\n", "resources: [\n", "resources: [../shared/s.yaml, r.yaml]\nconfigMapGenerator: [{name: g, files: [../data.txt]}]\n", "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\nresources: [r.yaml]\n"},
		"a/kustomization.yml":        {"", "", "", "resources: [r.yaml]\n"},
		"a/r.yaml":                   {config("r"), config("r2"), config("R"), "", "-> ../shared/s.yaml"},
		"b/kustomization.yaml":       {"resources: [r.yaml]\npatches: [{path: p.yaml}]\n", "resources: [../a]\n", "", "namespace: x\ncomponents: [../c]\nresources: [r.yaml]\n"},
		"b/r.yaml":                   {config("b"), config("r"), "-> ../link/s.yaml"},
		"b/p.yaml":                   {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {x: y}\n", "- x\n", ""},
		"c/kustomization.yaml":       {"kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\nresources: [c.yaml]\n", "resources: [c.yaml]\n"},
		"c/c.yaml":                   {config("c"), config("s")},
		"shared/s.yaml":              {config("s"), config("t"), "a: b\n"},
		"link":                       {"-> shared", "-> b", "", "-> link", "submodule"},
		"lost.yaml":                  {"", config("lost")},
		"data.txt":                   {"one", "two", "\x00GITCRYPT\x00", ""},
		"plain.yaml":                 {config("plain"), config("r"), "a: [\n", "-> c/c.yaml"},
		".gitmodules":                {"", "[submodule \"x\"]\npath = link\nurl = https://x/y\n"},
		"far/kustomization.yaml":     {"-> ../way/k.yaml", "resources: [own.yaml]\n"},
		"far/own.yaml":               {config("far"), config("farther")},
		"way":                        {"-> ways/one", "-> ways/two", "-> ways/three", "-> way"},
		"ways/one/k.yaml":            {"resources: [own.yaml]\n"},
		"ways/two/k.yaml":            {"resources: [own.yaml]\nnamePrefix: two-\n", "-> ../one/k.yaml"},
		"from/kustomization.yaml":    {"resources: [../far]\nnameSuffix: x1\n"},
		"too/kustomization.yaml":     {"resources: [../far]\nnameSuffix: x2\n"},
		"deep/er/kustomization.yaml": {"", "resources: [../../a]\n", "resources: [../..]\n"},
	}
	paths := slices.Sorted(maps.Keys(variants))
	rnd := rand.New(rand.NewPCG(3, 4))
	files := tree{}
	cache := render.NewCache(0)
	good, cached := 0, 0
	for round := range 600 {
		for range 1 + rnd.IntN(2) {
			p := paths[rnd.IntN(len(paths))]
			text := variants[p][0] // mostly the one that is right
			if rnd.IntN(4) == 0 {
				text = variants[p][rnd.IntN(len(variants[p]))]
			}
			if files[p] = text; text == "" {
				delete(files, p)
			}
		}
		fresh, wantProblems, err := render.Render(files, render.Options{})
		if err != nil {
			t.Fatal(err)
		}
		again, problems, err := render.Render(files, render.Options{Cache: cache})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := told(again, problems), told(fresh, wantProblems); got != want {
			t.Fatalf("round %d: %v\ngot\n%s\nwant\n%s", round, files, got, want)
		}
		if !slices.Equal(hashes(again.Manifests), hashes(fresh.Manifests)) {
			t.Fatalf("round %d: other objects", round)
		}
		if len(problems) == 0 && fresh.Units > 0 {
			good++
			same(t, files, again)
		}
		cached += fresh.Rendered - again.Rendered
	}
	if good < 20 || cached < 200 {
		t.Errorf("%d trees were good, %d units came from the cache", good, cached)
	}
	t.Logf("%d trees were good, %d units came from the cache", good, cached)
}

// history is a tree that knows others by their name.
type history struct {
	tree
	all map[string]tree
}

func (h history) Name() string {
	sum := sha1.New()
	for _, p := range slices.Sorted(maps.Keys(h.tree)) {
		fmt.Fprintf(sum, "%s\x00%s\x00", p, h.tree[p])
	}
	name := fmt.Sprintf("%x", sum.Sum(nil))
	h.all[name] = maps.Clone(h.tree)
	return name
}

func (h history) Since(name string) (changes []render.Change, err error) {
	was, ok := h.all[name]
	if !ok {
		return nil, errors.New("no such tree")
	}
	for f := range h.Files() {
		if was[f.Path] != h.tree[f.Path] {
			changes = append(changes, render.Change{Path: f.Path, Now: &f})
		}
	}
	for p := range was {
		if _, there := h.tree[p]; !there {
			changes = append(changes, render.Change{Path: p})
		}
	}
	return changes, nil
}

// TestChangesAloneGiveTheSame changes a tree at random, and compares what is made of
// the changes with a render of everything.
func TestChangesAloneGiveTheSame(t *testing.T) {
	warned := "apiVersion: v1\nkind: Service\nmetadata: {name: warned}\nspec: {ports: [{port: 80}]}\nstatus: {loadBalancer: {}}\n"
	const head = "apiVersion: headway.dev/v1\nkind: Config\n"
	class := func(name string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: " + name + "}\nspec: {controller: example.org/x}\n"
	}
	policy := func(name string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: " + name + "}\nspec: {podSelector: {}}\n"
	}
	widget := func(group, name string) string {
		return "apiVersion: " + group + "/v1\nkind: Widget\nmetadata: {name: " + name + "}\n"
	}
	variants := map[string][]string{
		".headway.yaml":            {"", head, head + "ignore: [left*]\npaths: [{path: src/b, defaultNamespace: other}]\n", "kind: no\n"},
		"src/.headway.yaml":        {head + "allowStored: [NetworkPolicy, Widget]\n", head + "allowStored: [NetworkPolicy, Widget]\nignore: [left*]\n", head + "allowStored: [Widget.example.org, NetworkPolicy]\n", head + "allowStored: [Widget]\n", head + "allowStored: [Widgets, networkpolicy]\n", head, ""},
		"headway.yaml":             {"", "x"},
		"src/a/1.yaml":             {config("a1"), config("a1") + "---\n" + config("a1b"), config("a2"), "x: y\n", "", "a: ["},
		"src/a/2.yaml":             {config("a2"), config("a3"), warned, ""},
		"src/a/3.json":             {"", "[]", "{}"},
		"src/a/note.txt":           {"", "text", "more"},
		"src/a/class.yaml":         {class("r1"), class("r1") + "---\n" + class("r2"), class("r3"), widget("example.org", "r"), config("a3"), ""},
		"src/a/widget.yaml":        {widget("example.org", "w"), "", widget("example.org", "w1") + "---\n" + class("r2") + "---\n" + widget("example.com", "w2"), config("a2") + "---\n" + widget("example.com", "w"), "x: y\n"},
		"src/b/1.yaml":             {config("b1"), "", config("a1"), "-> ../a/1.yaml"},
		"src/b/policy.yaml":        {policy("b"), "", policy("b") + "---\n" + policy("c"), policy("u"), widget("example.com", "b")},
		"src/b/0.yaml":             {"", widget("example.org", "first"), policy("first") + "---\n" + class("r0")},
		"src/b/left.yaml":          {config("left"), config("b1"), ""},
		"src/.hidden/x.yaml":       {"", config("a1")},
		"src/b/deep/er/1.yaml":     {"", config("deep")},
		"src/b/deep":               {"", "a file"},
		"src/u/kustomization.yaml": {"resources: [r.yaml, ../s, ../far/x.yaml]\n", "resources: [r.yaml]\n", "resources: [r.yaml, ../s/in.yaml]\nconfigMapGenerator: [{name: g, files: [../far/data]}]\n", "resources: [r.yaml, stored.yaml]\n"},
		"src/u/stored.yaml":        {policy("u") + "---\n" + widget("example.org", "u"), class("r1"), widget("example.com", "u"), ""},
		"src/far/x.yaml":           {config("far"), config("farther")},
		"src/far/data":             {"one", "two", ""},
		"src/u/r.yaml":             {config("u"), config("a1"), ""},
		"src/u/more.yaml":          {"", config("more"), config("a2")},
		"src/s/kustomization.yaml": {"resources: [in.yaml]\n", ""},
		"src/s/in.yaml":            {config("in"), config("inner")},
		"src/s/Chart.yaml":         {"", "name: x\n"},
		"outside/x.yaml":           {"", config("a1"), config("out")},
		"src/.gitmodules":          {"", "x"},
		"submodule":                {"", "submodule"},
	}
	paths := slices.Sorted(maps.Keys(variants))
	rnd := rand.New(rand.NewPCG(5, 6))
	files, all := tree{}, map[string]tree{}
	for i := range 40 {
		files[fmt.Sprintf("src/rest/%02d.yaml", i)] = config(fmt.Sprintf("rest%d", i))
	}
	cache := render.NewCache(0)
	alone, good, seen := 0, 0, map[string]int{}
	for round := range 1_600 {
		for range 1 + rnd.IntN(3) {
			p := paths[rnd.IntN(len(paths))]
			text := variants[p][0]
			if rnd.IntN(3) == 0 {
				text = variants[p][rnd.IntN(len(variants[p]))]
			}
			if files[p] = text; text == "" {
				delete(files, p)
			}
		}
		if files["src/b/deep"] != "" {
			delete(files, "src/b/deep/er/1.yaml")
		}
		fresh, freshConfig, wantProblems, err := render.Source(files, "src", nil)
		if err != nil {
			t.Fatal(err)
		}
		listed := counted{history{files, all}, new(int)}
		again, config, problems, err := render.Source(listed, "src", cache)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := told(again, problems), told(fresh, wantProblems); got != want {
			t.Fatalf("round %d: %v\ngot\n%s\nwant\n%s", round, files, got, want)
		}
		if !slices.Equal(hashes(again.Manifests), hashes(fresh.Manifests)) || !slices.Equal(again.Warnings, fresh.Warnings) || again.Units != fresh.Units || config.DefaultNamespace != freshConfig.DefaultNamespace {
			t.Fatalf("round %d: others:\n%+v\n%+v", round, again, fresh)
		}
		if len(problems) == 0 {
			good++
		}
		if *listed.lists > 0 {
			continue
		}
		alone++
		for _, w := range again.Warnings {
			if kind, _, ok := strings.Cut(w.Reason, " "); ok && w.Field == "kind" {
				seen[kind]++
			}
		}
	}
	if t.Logf("%d trees were good, of %d the changes were enough, with what is told of %v", good, alone, seen); good < 150 || alone < 80 {
		t.Error("too few")
	}
	for _, kind := range []string{"IngressClass", "NetworkPolicy", "Widget"} {
		if seen[kind] < 30 {
			t.Errorf("the changes were enough in only %d trees with a %s", seen[kind], kind)
		}
	}
}

// TestAFolderThatComesOrGoesIsNoChangeAlone: the source's own among them.
func TestAFolderThatComesOrGoesIsNoChangeAlone(t *testing.T) {
	all := map[string]tree{}
	opts := render.Options{Path: "src", Cache: render.NewCache(0)}
	for i, step := range []struct {
		files tree
		lists int
		want  string
	}{
		{tree{"src/a.yaml": config("a"), "src/b.yaml": config("b"), "x": "y"}, 1, ""},
		{tree{"src/a.yaml": config("a"), "x": "y"}, 0, ""},
		{tree{"src/a.yaml": config("a"), "src/new/c.yaml": config("c"), "x": "y"}, 1, ""},
		{tree{"x": "y"}, 1, "src: no such folder in the commit; the source's path names it"},
		{tree{"src": "a file", "x": "y"}, 1, "src: no such folder in the commit; the source's path names it"},
		{tree{"src/a.yaml": config("a"), "src/new/d.yaml": config("d"), "src/new/c.yaml": config("c")}, 0, ""},
	} {
		c := counted{history{step.files, all}, new(int)}
		_, problems, err := render.Render(c, opts)
		said := ""
		for _, p := range problems {
			said += p.String()
		}
		if err != nil || said != step.want || *c.lists != step.lists {
			t.Errorf("step %d: %v, listed %d times, %q", i, err, *c.lists, said)
		}
	}
}

// counted counts how often a tree is listed.
type counted struct {
	history
	lists *int
}

func (c counted) Files() iter.Seq2[render.File, error] {
	*c.lists++
	return c.history.Files()
}

// TestEveryUserOfALinkIsRenderedAgain: two kustomizations use one that is reached
// over a link on the way.
func TestEveryUserOfALinkIsRenderedAgain(t *testing.T) {
	files := tree{
		"far/kustomization.yaml": "-> ../way/k.yaml", "far/own.yaml": config("far"), "way": "-> one",
		"one/k.yaml": "resources: [own.yaml]\n", "two/k.yaml": "resources: [own.yaml]\nnamePrefix: two-\n",
		"from/kustomization.yaml": "resources: [../far]\nnameSuffix: x1\n", "too/kustomization.yaml": "resources: [../far]\nnameSuffix: x2\n",
	}
	opts := render.Options{Cache: render.NewCache(0)}
	for _, step := range []struct {
		way  string
		want []string
	}{{"one", []string{"farx1", "farx2"}}, {"two", []string{"two-farx1", "two-farx2"}}, {"none", nil}, {"one", []string{"farx1", "farx2"}}} {
		files["way"] = "-> " + step.way
		result, problems, err := render.Render(files, opts)
		if err != nil || (len(problems) > 0) != (step.want == nil) {
			t.Fatalf("%s: %v %v", step.way, problems, err)
		}
		var got []string
		for _, m := range result.Manifests {
			got = append(got, m.Object.GetName())
		}
		if slices.Sort(got); step.want != nil && !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.way, got, step.want)
		}
	}
}

// TestR14_NoSecretInAUnitsProblem spoils kustomizations with Secrets in every way
// and looks for the value in what is said.
func TestR14_NoSecretInAUnitsProblem(t *testing.T) {
	const secret = "hunter2verysecret"
	const k = "kustomization.yaml"
	resource := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  a: " + secret + "\n"
	for i, files := range []tree{
		{k: "resources: [s.yaml, t.yaml]\n", "s.yaml": resource, "t.yaml": resource},
		{k: "resources: [s.yaml]\npatches:\n- patch: |-\n    apiVersion: v1\n    kind: Secret\n    metadata: {name: none}\n    stringData: {a: " + secret + "}\n", "s.yaml": resource},
		{k: "resources: [s.yaml]\npatches:\n- patch: '[{op: replace, path: /none/x, value: " + secret + "}]'\n  target: {kind: Secret}\n", "s.yaml": resource},
		{k: "resources: [s.yaml]\npatches:\n- patch: '[{op: replace, path: stringData, value: " + secret + "}]'\n  target: {kind: Secret}\n", "s.yaml": resource},
		{k: "resources: [s.yaml]\npatches:\n- patch: '" + secret + "'\n  target: {kind: Secret}\n", "s.yaml": resource},
		{k: "resources: [s.yaml]\npatches:\n- patch: '[{op: test, path: /stringData/a, value: x}]'\n  target: {kind: Secret}\n", "s.yaml": resource},
		{k: "secretGenerator:\n- name: x\n  literals: [" + secret + "]\n"},
		{k: "secretGenerator:\n- name: x\n  literals: [a=" + secret + "]\n  behavior: merge\n"},
		{k: "secretGenerator:\n- name: x\n  literals: [a=" + secret + ", a=" + secret + "]\n"},
		{k: "secretGenerator:\n- name: x\n  envs: [e]\n", "e": secret + " x\n9" + secret + "=" + secret + "\n"},
		{k: "secretGenerator:\n- name: x\n  envs: [e]\n", "e": "a=\xff" + secret + "\n"},
		{k: "secretGenerator:\n- name: X\n  literals: [a/b=" + secret + "]\n"},
		{k: "resources: [s.yaml]\nreplacements:\n- source: {kind: Secret, name: s, fieldPath: stringData.a, options: {delimiter: e, index: 77}}\n  targets: [{select: {kind: Secret}, fieldPaths: [stringData.b], options: {create: true}}]\n", "s.yaml": resource},
		{k: "resources: [s.yaml]\nreplacements:\n- source: {kind: Secret, name: s, fieldPath: stringData.a}\n  targets: [{select: {kind: Secret}, fieldPaths: [stringData]}]\n", "s.yaml": resource},
		{k: "resources: [s.yaml]\n", "s.yaml": strings.Replace(resource, "a: h", "a: b: h", 1)},
		{k: "resources: [s.yaml]\n", "s.yaml": strings.Replace(resource, "a: h", "a: *h", 1)},
		{k: "resources: [s.yaml]\n", "s.yaml": strings.Replace(resource, "a: h", "- h", 1)},
		{k: "resources: [s.yaml]\n", "s.yaml": strings.Replace(resource, "stringData", "data", 1)},
		{k: "resources: [s.yaml]\nnamePrefix: P\n", "s.yaml": resource},
		{k: "resources: [s.yaml]\nvars: [{name: V, objref: {kind: Secret, name: s, apiVersion: v1}, fieldref: {fieldPath: stringData}}]\n", "s.yaml": resource + "  b: $(V)\n"},
		{k: "generators:\n- |-\n  apiVersion: builtin\n  kind: SecretGenerator\n  metadata: {name: x}\n  literals: [" + secret + "]\n"},
	} {
		_, problems, err := render.Render(files, render.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(problems) == 0 && i < 19 {
			t.Errorf("%d is accepted: %v", i, files)
		}
		for _, p := range problems {
			if strings.Contains(p.String(), secret) || strings.Contains(p.String(), "aHVudGVyMnZlcnlzZWNyZXQ") {
				t.Errorf("%d: the secret is told: %s", i, p)
			}
			t.Logf("%d: %s", i, p)
		}
	}
}
