package render_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/render"
)

// TestAllowStored: what nothing acts on is refused, told or left in git as the
// configuration says, from plain files and from kustomizations, from the cache too,
// and when only what changed is looked at.
func TestAllowStored(t *testing.T) {
	t.Run("everything", func(t *testing.T) {
		allowStored(t, func(files tree) (render.Tree, func() bool) { return files, nil })
	})
	t.Run("changes", func(t *testing.T) {
		all := map[string]tree{}
		allowStored(t, func(files tree) (render.Tree, func() bool) {
			c := counted{history{files, all}, new(int)}
			return c, func() bool { return *c.lists == 0 }
		})
	})
}

// allowStored runs the steps on trees as they are seen; alone, when there is one,
// says whether the changes of the last tree were enough.
func allowStored(t *testing.T, seen func(tree) (_ render.Tree, alone func() bool)) {
	const config = "apiVersion: headway.dev/v1\nkind: Config\n"
	files := tree{
		"c/policy.yaml":           "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podSelector: {}}\n",
		"c/routes.yaml":           "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: a}, spec: {controller: example.org/x}}\n- {apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: b}, spec: {controller: example.org/x}}\n",
		"c/z.yaml":                "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: z}\n",
		"c/k/kustomization.yaml":  "namePrefix: x-\nresources: [w.yaml]\n",
		"c/k/w.yaml":              "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: a}\n---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: b}\nspec: {podSelector: {}}\n",
		"c/other/not-needed.yaml": "a: b\n",
	}
	cache := render.NewCache(0)
	lines := func(list []api.Problem) (out []string) {
		for _, p := range list {
			at, _, _ := strings.Cut(p.String(), " by this version")
			out = append(out, at+" …"+p.Reason[strings.LastIndex(p.Reason, ":")+1:])
		}
		return out
	}
	source := func(enough bool) ([]string, []string, []string) {
		t.Helper()
		seen, alone := seen(files)
		result, _, problems, err := render.Source(seen, "c", cache)
		if err != nil {
			t.Fatal(err)
		}
		if alone != nil && alone() != enough {
			t.Errorf("the changes were enough: %v, want %v", alone(), enough)
		}
		return names(result.Manifests), lines(problems), lines(result.Warnings)
	}
	check := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
	for range 2 {
		_, problems, warnings := source(false)
		check("refused", problems, []string{
			"c/k/w.yaml:2:1: kind: Widget (example.org/v1) is not supported … [Widget]` to c/.headway.yaml to keep it in git only",
			"c/k/w.yaml:6:1: kind: NetworkPolicy is stored, not enforced … [NetworkPolicy]` to c/.headway.yaml to keep it stored and not enforced",
			"c/policy.yaml:2:1: kind: NetworkPolicy is stored, not enforced … [NetworkPolicy]` to c/.headway.yaml to keep it stored and not enforced",
			"c/z.yaml:2:1: kind: Widget (example.org/v1) is not supported … [Widget]` to c/.headway.yaml to keep it in git only",
		})
		if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "c/routes.yaml:4:") || !strings.HasSuffix(warnings[0], "(2 objects, of which this is the first)") {
			t.Errorf("warnings %v", warnings)
		}
	}
	files["c/.headway.yaml"] = config + "allowStored: [NetworkPolicy, Widget]\n"
	for i := range 2 {
		manifests, problems, warnings := source(i == 1)
		check("allowed", problems, nil)
		check("manifests", manifests, []string{"c/k/w.yaml:default/x-b", "c/policy.yaml:default/a", "c/routes.yaml:/a", "c/routes.yaml:/b"})
		if len(warnings) != 3 || !strings.HasPrefix(warnings[0], "c/k/w.yaml:6:1: kind: NetworkPolicy") || !strings.HasPrefix(warnings[2], "c/k/w.yaml:2:1: kind: Widget") || !strings.Contains(warnings[2], "it is kept in git only (2 objects") {
			t.Errorf("warnings %s", strings.Join(warnings, "\n"))
		}
	}

	files["c/z.yaml"] = "{apiVersion: v1, kind: ConfigMap, metadata: {name: z}}\n"
	files["c/policy.yaml"] = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\n"
	files["c/a.yaml"] = strings.Repeat("---\napiVersion: example.org/v1\nkind: Widget\nmetadata: {name: b}\n", 2)
	manifests, problems, warnings := source(true)
	check("changed", problems, nil)
	check("manifests", manifests, []string{"c/k/w.yaml:default/x-b", "c/routes.yaml:/a", "c/routes.yaml:/b", "c/z.yaml:default/z"})
	if len(warnings) != 4 || !strings.HasPrefix(warnings[2], "c/a.yaml:3:1: kind: Widget (example.org/v1)") || !strings.Contains(warnings[2], "(3 objects, of which") ||
		!strings.HasPrefix(warnings[3], "c/policy.yaml:2:1: kind: Widget (example.com/v1)") || strings.Contains(warnings[3], "objects, of which") {
		t.Errorf("warnings %s", strings.Join(warnings, "\n"))
	}
	files["c/a.yaml"] = "apiVersion: example.org/v1\nkind: Gadget\nmetadata: {name: a}\n"
	_, problems, _ = source(false)
	check("one that is not allowed", problems, []string{"c/a.yaml:2:1: kind: Gadget (example.org/v1) is not supported … add Gadget to allowStored in c/.headway.yaml to keep it in git only"})
	delete(files, "c/a.yaml")
	if manifests, problems, warnings = source(true); len(manifests) != 4 || len(problems) > 0 || len(warnings) != 4 {
		t.Errorf("mended: %v %v %v", manifests, problems, warnings)
	}

	files["c/.headway.yaml"] = config + "allowStored: [Widget.example.org]\n"
	_, problems, _ = source(false)
	check("less is allowed", problems, []string{
		"c/k/w.yaml:6:1: kind: NetworkPolicy is stored, not enforced … add NetworkPolicy to allowStored in c/.headway.yaml to keep it stored and not enforced",
		"c/policy.yaml:2:1: kind: Widget (example.com/v1) is not supported … add Widget to allowStored in c/.headway.yaml to keep it in git only",
	})
	files["c/.headway.yaml"] = config + "allowStored: [NetworkPolice]\n"
	if _, problems, _ := source(true); len(problems) != 1 || !strings.Contains(problems[0], "allowStored[0]") {
		t.Errorf("a mistake in the configuration is told alone: %v", problems)
	}
}

// Objects in git only count towards the bound of a source.
func TestForeignObjectsAreBounded(t *testing.T) {
	var list strings.Builder
	for range 9_000 {
		list.WriteString("kind: W\napiVersion: a.b/v1\n---\n")
	}
	files := tree{".headway.yaml": "apiVersion: headway.dev/v1\nkind: Config\nallowStored: [W]\n"}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		files[name+".yaml"] = list.String()
	}
	_, _, problems, err := render.Source(files, "", nil)
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Reason, "more than 50000 objects") {
		t.Errorf("%v %v", problems, err)
	}
}

// What is told once for each kind is told, however much else there is to say.
func TestStoredKindsAreToldFirst(t *testing.T) {
	warned := strings.Repeat("---\napiVersion: v1\nkind: Service\nmetadata: {name: N}\nspec: {ports: [{port: 80}]}\nstatus: {loadBalancer: {}}\n", render.MaxNotices)
	for i := range render.MaxNotices {
		warned = strings.Replace(warned, "name: N", fmt.Sprintf("name: n%d", i), 1)
	}
	files := tree{"a.yaml": warned, "z.yaml": "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: z}\nspec: {controller: example.org/x}\n"}
	result, problems, err := render.Render(files, render.Options{})
	if err != nil || len(problems) > 0 || len(result.Warnings) != render.MaxNotices {
		t.Fatalf("%d warnings, %v %v", len(result.Warnings), problems, err)
	}
	if !strings.HasPrefix(result.Warnings[0].Reason, "IngressClass is stored, not enforced") || result.Warnings[1].Field != "status" {
		t.Errorf("it begins with %v", result.Warnings[:2])
	}
}
