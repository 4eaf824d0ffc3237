package render_test

import (
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/render"
)

// TestPlaceOfAWrongValue spoils one thing at a time in a base, a component and two
// overlays, and looks where the problem is said to be.
func TestPlaceOfAWrongValue(t *testing.T) {
	good := tree{
		"base/kustomization.yaml": "resources:\n- web.yaml\n- more.yaml\n",
		"base/more.yaml":          "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: two\ndata:\n  a: b\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  x: a\n",
		"base/web.yaml": `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: first
          image: one
          env:
            - {name: A, value: a}
            - {name: B, value: b}
        - name: second
          image: two
`,
		"extra/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n- path: patch.yaml\n",
		"extra/patch.yaml":         "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n      containers:\n      - name: side\n        image: side\n        ports:\n        - containerPort: 80\n",
		"mid/kustomization.yaml":   "namePrefix: m-\nresources: [../base]\ncomponents: [../extra]\nconfigMapGenerator:\n- name: made\n  literals: [a=b]\n",
		"prod/kustomization.yaml": `namespace: prod
resources: [../mid]
namePrefix: p-
images:
- name: two
  newTag: v2
replicas:
- name: web
  count: 3
labels:
- pairs: {team: a}
patches:
- target: {kind: Deployment}
  patch: |-
    - op: add
      path: /spec/template/spec/containers/0/workingDir
      value: /a
    - op: add
      path: /spec/minReadySeconds
      value: 5
- patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      progressDeadlineSeconds: 600
`,
	}
	render1 := func(files tree) (render.Result, []api.Problem) {
		t.Helper()
		result, problems, err := render.Render(files, render.Options{Path: ""})
		if err != nil {
			t.Fatal(err)
		}
		return result, problems
	}
	result, problems := render1(good)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got, want := names(result.Manifests), []string{"base/more.yaml:prod/p-m-one", "base/more.yaml:prod/p-m-two", "base/more.yaml:prod/p-m-s", "base/web.yaml:prod/p-m-web", "mid/kustomization.yaml:prod/p-m-made-4h2mbtbbt6"}; !slices.Equal(got, want) {
		t.Fatalf("got %v", got)
	}
	for name, c := range map[string]struct{ file, old, new, want string }{
		"resource":                 {"base/web.yaml", "replicas: 1", "revisionHistoryLimit: -1", "base/web.yaml:6:3: spec.revisionHistoryLimit: "},
		"resource, unknown field":  {"base/web.yaml", "  replicas: 1", "  replica: 1", `base/web.yaml:6:3: spec.replica: unknown field: did you mean "replicas"?`},
		"resource, list item":      {"base/web.yaml", "{name: B, value: b}", "{name: B, valeu: b}", "base/web.yaml:16:25: spec.template.spec.containers[1].env[1].valeu: unknown field"},
		"resource, missing field":  {"base/web.yaml", "          image: two\n", "", "base/web.yaml:17:11: spec.template.spec.containers[2].image: Required value"},
		"second document":          {"base/more.yaml", "  a: b\n", "  a/b: c\n", "base/more.yaml:11:3: data[a/b]: Invalid value"},
		"name in a document":       {"base/more.yaml", "name: two", "name: Two", `base/more.yaml:9:3: metadata.name: Invalid value: "p-m-Two"`},
		"secret":                   {"base/more.yaml", "  x: a\n", "  x/y: hunter2\n", "base/more.yaml:17:3: data[x/y]: Invalid value"},
		"patch in a component":     {"extra/patch.yaml", "containerPort: 80", "containerPort: 80000", "extra/patch.yaml:12:11: spec.template.spec.containers[0].ports[0].containerPort: Invalid value"},
		"unknown field in a patch": {"extra/patch.yaml", "        ports", "        port", "extra/patch.yaml:11:9: spec.template.spec.containers[0].port: unknown field"},
		"missing field in a patch": {"extra/patch.yaml", "        image: side\n", "", "extra/patch.yaml:9:9: spec.template.spec.containers[0].image: Required value"},
		"json patch inline":        {"prod/kustomization.yaml", "value: 5", "value: -5", "prod/kustomization.yaml:18:7: spec.minReadySeconds: Invalid value"},
		"merge patch inline":       {"prod/kustomization.yaml", "Seconds: 600", "Seconds: 0", "prod/kustomization.yaml:26:7: spec.progressDeadlineSeconds: Invalid value"},
		"patch takes a field away": {"prod/kustomization.yaml", "      progressDeadlineSeconds: 600", "      selector: null", "prod/kustomization.yaml:26:7: spec.selector: "},
		"json patch takes it away": {"prod/kustomization.yaml", "- op: add\n      path: /spec/minReadySeconds\n      value: 5", "- op: remove\n      path: /spec/selector", "prod/kustomization.yaml:18:7: spec.selector: "},
		"replicas":                 {"prod/kustomization.yaml", "count: 3", "count: -3", "prod/kustomization.yaml:9:3: spec.replicas: Invalid value"},
		"labels":                   {"prod/kustomization.yaml", "team: a", `team: "a b"`, "prod/kustomization.yaml:11:11: metadata.labels"},
		"generated":                {"mid/kustomization.yaml", "[a=b]", "[a/c=b]", "mid/kustomization.yaml:5:3: data[a/c]: Invalid value"},
		"merged into a document":   {"mid/kustomization.yaml", "- name: made\n  literals: [a=b]", "- name: two\n  behavior: merge\n  literals: [a/c=b]", "mid/kustomization.yaml:5:3: data[a/c]: Invalid value"},
		"generated, name":          {"mid/kustomization.yaml", "name: made", "name: Made", `mid/kustomization.yaml:5:3: metadata.name: Invalid value`},
		"wrong kind in a resource": {"base/web.yaml", "kind: Deployment", "kind: Deploymet", "base/web.yaml:2:1: kind: no matches for kind"},
		"unsupported in a patch":   {"extra/patch.yaml", "        ports:", "        lifecycle: {preStop: {tcpSocket: {port: 1}}}\n        ports:", "extra/patch.yaml:11:31: spec.template.spec.containers[0].lifecycle.preStop.tcpSocket: Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			files := tree{}
			for p, text := range good {
				files[p] = text
			}
			if files[c.file] = strings.Replace(good[c.file], c.old, c.new, 1); files[c.file] == good[c.file] {
				t.Fatal("nothing was spoiled")
			}
			_, problems := render1(files)
			for _, p := range problems {
				if strings.HasPrefix(p.String(), c.want) {
					return
				}
			}
			t.Errorf("got %v, want %s", problems, c.want)
		})
	}
}
