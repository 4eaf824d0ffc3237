package render_test

import (
	"strings"
	"testing"

	"headway.dev/headway/syncer/render"
)

// TestFormsOfText gives the same kustomization in the forms that editors leave
// behind, and compares with kustomize itself.
func TestFormsOfText(t *testing.T) {
	good := tree{
		"kustomization.yaml": "resources:\n- a.yaml\nconfigMapGenerator:\n- name: g\n  files: [t.txt]\n  envs: [e.env]\npatches:\n- patch: |-\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: a}\n    data: {p: q}\n",
		"a.yaml":             config("a") + "---\n" + config("b") + "---\n# empty\n---\n",
		"t.txt":              "one\ntwo\n", "e.env": "A=b\n# c\nD=e=f\n",
	}
	for name, change := range map[string]func(string) string{
		"as it is":        func(s string) string { return s },
		"crlf":            func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"byte order mark": func(s string) string { return "\xef\xbb\xbf" + s },
		"no last newline": func(s string) string { return strings.TrimSuffix(s, "\n") },
		"blanks":          func(s string) string { return "\n\n" + strings.ReplaceAll(s, "\n", "  \n") + "\n\n" },
	} {
		t.Run(name, func(t *testing.T) {
			files := tree{}
			for p, text := range good {
				files[p] = change(text)
			}
			result, problems, err := render.Render(files, render.Options{})
			if err != nil || len(problems) > 0 {
				t.Fatal(problems, err)
			}
			if len(result.Manifests) != 3 {
				t.Errorf("got %v", names(result.Manifests))
			}
			same(t, files, result)
		})
	}
}
