package render_test

import (
	"strings"
	"testing"

	"headway.dev/headway/syncer/render"
)

const web = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: c, image: i}]}\n"

func TestPatchThatChangesNothingIsSaid(t *testing.T) {
	result, problems, err := render.Render(tree{"kustomization.yaml": "resources: [a.yaml]\npatches:\n- target: {kind: StatefulSet}\n  path: p.yaml\n- target: {name: we.}\n  path: p.yaml\n", "a.yaml": web, "p.yaml": "- {op: add, path: /spec/paused, value: true}\n"}, render.Options{})
	if err != nil || len(problems) > 0 || len(result.Warnings) != 1 || !strings.HasPrefix(result.Warnings[0].String(), "p.yaml:1:1: the patch changes nothing") {
		t.Errorf("%v %v %v", result.Warnings, problems, err)
	}
}

func TestKustomizationsThatAreRefused(t *testing.T) {
	const k = "kustomization.yaml"
	for name, c := range map[string]struct {
		files tree
		want  []string
	}{
		"remote base":             {tree{k: "resources:\n- github.com/org/repo//base?ref=v1\n- https://user:hunter2@example.com/x.yaml?token=hunter2\n- git@example.com:a/b.git\n- ssh://git@x/y\n- HTTPS://x/y\n- git::https://x/y\n- file:///x/y\n"}, []string{`kustomization.yaml:2:3: resources[0]: "github.com/org/repo//base?ref=v1" is not in this repository: a build reaches no network`, `kustomization.yaml:3:3: resources[1]: "https://example.com/x.yaml" is not`, `kustomization.yaml:4:3: resources[2]: "git@example.com:a/b.git" is not`, `kustomization.yaml:5:3: resources[3]: "ssh://git@x/y" is not`, "kustomization.yaml:6:3: resources[4]: ", "kustomization.yaml:7:3: resources[5]: ", "kustomization.yaml:8:3: resources[6]: "}},
		"remote everywhere":       {tree{k: "components: [https://a/b]\npatches:\n- path: https://a/p.yaml\nconfigMapGenerator:\n- name: a\n  files: [k=https://a/f, 'https://a/f?a=b']\n  envs: [https://a/e]\ncrds: [http://a/c]\nconfigurations: [http://a/c]\ntransformers: ['http://a/t', 'http: {a']\nreplacements:\n- path: http://a/r\npatchesStrategicMerge: [http://a]\n"}, []string{"kustomization.yaml:1:14: components[0]: ", "kustomization.yaml:3:3: patches[0].path: ", "kustomization.yaml:6:11: configMapGenerator[0].files[0]: ", "kustomization.yaml:6:26: configMapGenerator[0].files[1]: ", "kustomization.yaml:7:10: configMapGenerator[0].envs[0]: ", "kustomization.yaml:8:8: crds[0]: ", "kustomization.yaml:9:18: configurations[0]: ", "kustomization.yaml:10:16: transformers[0]: ", "kustomization.yaml:10:30: transformers[1]: ", "kustomization.yaml:12:3: replacements[0].path: ", "kustomization.yaml:13:25: patchesStrategicMerge[0]: "}},
		"remote in a transformer": {tree{k: "resources: [a.yaml]\ntransformers: [t.yaml]\ngenerators:\n- |-\n  apiVersion: builtin\n  kind: ConfigMapGenerator\n  metadata: {name: x}\n  files: [https://a/b]\n", "a.yaml": config("a"), "t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: x}\nPath: https://a/b\n"}, []string{"kustomization.yaml:8:11: files[0]: ", "t.yaml:4:1: Path: "}},
		"leaves the repository":   {tree{"a/" + k: "resources: [../../x.yaml, /etc/passwd]\n"}, []string{`a/kustomization.yaml:1:13: resources[0]: "../../x.yaml" leaves the repository`, `a/kustomization.yaml:1:27: resources[1]: "/etc/passwd" is a place on somebody's machine`}},
		"missing":                 {tree{k: "resources:\n- no.yaml\n- '*.yaml'\n- ''\n- dir\n", "dir/a.yaml": config("a")}, []string{`kustomization.yaml:2:3: resources[0]: "no.yaml" is no file or folder of the commit`, `kustomization.yaml:3:3: resources[1]: "*.yaml" is no file of the commit: kustomize does not know patterns`, "kustomization.yaml:4:3: resources[2]: an empty path", `kustomization.yaml:5:3: resources[3]: the folder "dir" has no kustomization`}},
		"unknown field":           {tree{k: "resource: [a.yaml]\nResources: [b.yaml]\nnamespace: 1\n"}, []string{`kustomization.yaml:1:1: resource: unknown field: did you mean "resources"?`, `kustomization.yaml:2:1: Resources: unknown field: did you mean "resources"?`, "kustomization.yaml:3:1: namespace: must be a string, not a number: put it in quotes"}},
		"unreadable":              {tree{k: "resources: [\n"}, []string{"kustomization.yaml:"}},
		"key twice":               {tree{k: "resources: [a.yaml]\nresources: [a.yaml]\n", "a.yaml": config("a")}, []string{"kustomization.yaml:2:1: resources: key already set in line 1"}},
		"key twice in a resource": {tree{k: "resources: [a.yaml]\npatches: [{path: p.yaml}]\n", "a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: a\n  x: b\n", "p.yaml": "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {a: b, a: c}\n"}, []string{"a.yaml:6:3: data.x: key already set in line 5", "p.yaml:4:14: data.a: key already set in line 4"}},
		"empty":                   {tree{k: "# nothing\n"}, []string{"kustomization.yaml:1: the kustomization says nothing"}},
		"only a kind":             {tree{k: "kind: Kustomization\n"}, []string{"kustomization.yaml:1:1: the kustomization says nothing"}},
		"transformer, no name":    {tree{k: "resources: [a.yaml]\ntransformers: [t.yaml]\n", "a.yaml": web, "t.yaml": "apiVersion: builtin\nkind: PrefixTransformer\n"}, []string{"t.yaml:1:1: the configuration of a transformer names"}},
		"two documents":           {tree{k: "resources: [a.yaml]\n---\nresources: [a.yaml]\n", "a.yaml": config("a")}, []string{"kustomization.yaml:3:1: a kustomization is one document"}},
		"two files":               {tree{k: "resources: [a.yaml]\n", "Kustomization": "resources: [a.yaml]\n", "a.yaml": config("a")}, []string{"Kustomization:1: the folder has two kustomizations, this one and kustomization.yaml"}},
		"flux":                    {tree{k: "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nnamespace: x\n"}, []string{"kustomization.yaml:1:1: apiVersion: must be kustomize.config.k8s.io/v1beta1"}},
		"helm":                    {tree{k: "helmCharts: [{name: x, repo: https://x}]\n"}, []string{"kustomization.yaml:1:1: helmCharts: Helm charts are not rendered"}},
		"openapi":                 {tree{k: "resources: [a.yaml]\nopenapi: {path: s.json}\n", "a.yaml": config("a")}, []string{"kustomization.yaml:2:1: openapi: a schema of its own is not supported"}},
		"managed by":              {tree{k: "buildMetadata: [managedByLabel]\n"}, []string{"kustomization.yaml:1:17: buildMetadata[0]: managedByLabel is not supported"}},
		"program":                 {tree{k: "generators: [g.yaml]\ntransformers:\n- |-\n  apiVersion: v1\n  kind: List\n  items:\n  - apiVersion: x/v1\n    kind: Fn\n    metadata: {name: x}\n", "g.yaml": "apiVersion: viaduct.ai/v1\nkind: ksops\nmetadata:\n  name: s\n  annotations:\n    config.kubernetes.io/function: |\n      exec: {path: ksops}\nfiles: [s.enc.yaml]\n"}, []string{"g.yaml:2:1: kind: ksops would run a program", "kustomization.yaml:8:5: kind: Fn would run a program"}},
		"folder of transformers":  {tree{k: "transformers: [t]\n", "t/" + k: "resources: [a.yaml]\n", "t/a.yaml": config("a")}, []string{`kustomization.yaml:1:16: transformers[0]: "t" is a folder: name the files in it`}},
		"refers to itself":        {tree{k: "resources: [.]\n"}, []string{"kustomization.yaml:1:13: resources[0]: kustomizations refer to each other in a circle: . → ."}},
		"circle":                  {tree{"a/" + k: "resources: [../b]\n", "b/" + k: "resources: [../c]\n", "c/" + k: "resources: [../a]\n"}, []string{"in a circle: "}},
		"circle below":            {tree{"a/" + k: "resources: [../b]\n", "b/" + k: "resources: [../c]\n", "c/" + k: "resources: [../b]\n"}, []string{"c/kustomization.yaml:1:13: resources[0]: kustomizations refer to each other in a circle: b → c → b"}},
		"base holds the overlay":  {tree{"a/" + k: "resources: [a.yaml]\n", "a/a.yaml": config("a"), "a/b/" + k: "resources: [..]\n"}, []string{"a/b/kustomization.yaml:1:13: resources[0]: a holds a/b, which uses it"}},
		"component as resource":   {tree{k: "resources: [c]\n", "c/" + k: "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\nnamePrefix: a-\n"}, []string{`kustomization.yaml:1:13: resources[0]: "c" is a component: name it in components`}},
		"resource as component":   {tree{k: "components: [c, a.yaml]\n", "a.yaml": config("a"), "c/" + k: "namePrefix: a-\n"}, []string{`kustomization.yaml:1:14: components[0]: "c" is no component: name it in resources`, `kustomization.yaml:1:17: components[1]: "a.yaml" is a file`}},
		"sops":                    {tree{k: "resources: [s.yaml]\nsecretGenerator:\n- name: a\n  envs: [e.env]\n", "s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  a: ENC[AES256_GCM,data:x]\nsops:\n  mac: x\n", "e.env": "A=ENC[AES256_GCM,data:x]\nsops_version=3\nsops_mac=x\n"}, []string{"e.env:1: the file is encrypted with SOPS, which this version of Headway cannot read; kustomization.yaml:4:10 uses it", "s.yaml:1: the file is encrypted with SOPS, which this version of Headway cannot read; a kustomization uses it"}},
		"git-crypt":               {tree{k: "secretGenerator: [{name: a, files: [key]}]\n", "key": "\x00GITCRYPT\x00xyz"}, []string{"key:1: the file is encrypted with git-crypt"}},
		"lfs":                     {tree{k: "configMapGenerator: [{name: a, files: [key]}]\n", "key": "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"}, []string{"key:1: the file is kept in Git LFS"}},
		"submodule":               {tree{k: "resources: [vendor/base]\n", "vendor": "submodule", ".gitmodules": "[submodule \"v\"]\n\tpath = vendor\n\turl = https://me:hunter2@example.com/v.git\n"}, []string{`kustomization.yaml:1:13: resources[0]: "vendor/base" is in submodule of https://example.com/v.git`}},
		"template":                {tree{k: "resources: [t.yaml]\n", "t.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .x }}\n"}, []string{"t.yaml:4:9: cannot be read: this is an unrendered Helm template"}},
		"no match":                {tree{k: "resources: [a.yaml]\npatches:\n- path: p.yaml\n", "a.yaml": web, "p.yaml": "# c\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: wep}\n"}, []string{"p.yaml:2:1: the patch is for Deployment wep, which the kustomization does not have at that point"}},
		"no match, inline":        {tree{k: "resources: [a.yaml]\npatches:\n- patch: |-\n\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: wep}\n", "a.yaml": web}, []string{"kustomization.yaml:5:5: the patch is for Deployment wep"}},
		"operation":               {tree{k: "resources: [a.yaml]\npatches:\n- target: {kind: Deployment}\n  path: p.yaml\n", "a.yaml": web, "p.yaml": "- op: add\n  path: /spec/paused\n  value: true\n- op: remove\n  path: /spec/nothing\n"}, []string{"p.yaml:4:3: /spec/nothing: the object has nothing at this path, so remove cannot be done"}},
		"operations":              {tree{k: "resources: [a.yaml]\npatches:\n- target: {kind: Deployment}\n  path: p.yaml\n", "a.yaml": web, "p.yaml": "- {op: nonsense, path: /a}\n- {op: add, path: a}\n- {op: add, value: a}\n- {op: move, path: /a}\n"}, []string{"p.yaml:1:3: an operation has an op", "p.yaml:2:3: an operation has a path", "p.yaml:3:3: an operation has a path", "p.yaml:4:3: move has a from"}},
		"move of nothing":         {tree{k: "resources: [a.yaml]\npatches:\n- target: {kind: Deployment}\n  path: p.yaml\n", "a.yaml": web, "p.yaml": "- {op: move, from: /spec/none, path: /spec/x}\n"}, []string{"p.yaml:1:3: /spec/none: the object has nothing at this path, so move cannot be done"}},
		"test":                    {tree{k: "resources: [a.yaml]\npatches:\n- target: {kind: Deployment}\n  path: p.yaml\n", "a.yaml": web, "p.yaml": "- {op: test, path: /metadata/name, value: x}\n"}, []string{"p.yaml:1:3: /metadata/name: "}},
		"add below nothing":       {tree{k: "resources: [a.yaml]\npatches:\n- target: {kind: Deployment}\n  path: p.yaml\n", "a.yaml": web, "p.yaml": "- {op: add, path: /spec/none/x, value: x}\n"}, []string{"p.yaml:1:3: /spec/none/x: the object has nothing"}},
		"not quite JSON":          {tree{k: "resources: [a.yaml]\npatches:\n- target: {kind: Deployment}\n  patch: '[{op: remove, path: /spec}]'\n", "a.yaml": web}, []string{`kustomization.yaml:4:3: a patch that starts with "[" must be JSON`}},
		"two with a target":       {tree{k: "resources: [a.yaml]\npatches:\n- target: {kind: Deployment}\n  path: p.yaml\n", "a.yaml": web, "p.yaml": web + "---\n" + web}, []string{"p.yaml:11:1: a patch with a target is one document"}},
		"no expression":           {tree{k: "resources: [a.yaml]\npatches:\n- target: {name: 'a(b'}\n  patch: '[]'\n", "a.yaml": web}, []string{"kustomization.yaml:3:12: patches[0].target.name: is no regular expression: missing closing )"}},
		"literals":                {tree{k: "configMapGenerator:\n- name: a\n  behavior: add\n  literals: [hunter2, a=b, a=c]\n"}, []string{"kustomization.yaml:3:3: configMapGenerator[0].behavior: must be create, merge or replace", "kustomization.yaml:4:14: configMapGenerator[0].literals[0]: must be key=value", "kustomization.yaml:4:28: configMapGenerator[0].literals[2]: the key \"a\" is there already"}},
		"key twice in generator":  {tree{k: "secretGenerator:\n- name: a\n  files: [f, x/f]\n", "f": "hunter2", "x/f": "hunter2"}, []string{`kustomization.yaml:2:3: secretGenerator[0].name: the key "f" is there twice`}},
		"replicas of nothing":     {tree{k: "resources: [a.yaml]\nreplicas:\n- {name: wep, count: 1}\n", "a.yaml": web}, []string{"kustomization.yaml:3:4: replicas[0].name: no Deployment"}},
		"one namespace for two":   {tree{k: "resources: [a.yaml]\nnamespace: x\n", "a.yaml": config("a") + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n"}, []string{"a.yaml:8:1: metadata.namespace: with the kustomization's namespace this is the same ConfigMap as that from a.yaml:1:1"}},
		"key that is no text":     {tree{k: "resources: [a.yaml]\n", "a.yaml": config("b") + "---\n" + config("a") + "  1: x\n"}, []string{"a.yaml:8:1: the object cannot be written as JSON: a key that is a number"}},
		"patch without target":    {tree{k: "resources: [a.yaml]\npatches:\n- path: p.yaml\n", "a.yaml": web, "p.yaml": "- {op: remove, path: /x}\n"}, []string{"kustomization.yaml:3:3: patches[0]: a JSON patch needs a target"}},
		"patch of nothing":        {tree{k: "resources: [a.yaml]\npatches:\n- {}\n- path: p.yaml\n- path: q.yaml\n- {path: q.yaml, patch: x}\n", "a.yaml": web, "p.yaml": "a: b\n", "q.yaml": "text"}, []string{"kustomization.yaml:3:3: patches[0]: needs a patch", "kustomization.yaml:6:3: patches[3]: has both a patch and the path", "kustomization.yaml:6:18: a patch is a map", "p.yaml:1:1: a strategic merge patch names", "q.yaml:1:1: a patch is a map"}},
		"twice":                   {tree{k: "resources: [a.yaml, b.yaml]\n", "a.yaml": config("a"), "b.yaml": config("x") + "---\n" + config("a")}, []string{"b.yaml:8:1: metadata.name: ConfigMap a is in the kustomization already, from a.yaml:1:1"}},
		"generated twice":         {tree{k: "resources: [a.yaml]\nconfigMapGenerator:\n- name: a\n  literals: [a=b]\n", "a.yaml": config("a")}, []string{"kustomization.yaml:3:3: configMapGenerator[0].name: ConfigMap a is in the kustomization already"}},
		"merge into nothing":      {tree{k: "secretGenerator:\n- name: a\n  behavior: merge\n  literals: [a=hunter2]\n"}, []string{"kustomization.yaml:2:3: secretGenerator[0].name: there is no Secret a to merge into"}},
		"variable":                {tree{k: "resources: [a.yaml]\nvars:\n- name: X\n  objref: {kind: ConfigMap, name: none, apiVersion: v1}\n", "a.yaml": config("a")}, []string{"kustomization.yaml:3:3: vars[0]: the variable X refers to a field that no object has"}},
		"replacement":             {tree{k: "resources: [a.yaml]\nreplacements:\n- source: {kind: ConfigMap, name: none}\n  targets: [{select: {kind: ConfigMap}, fieldPaths: [data.a]}]\n", "a.yaml": config("a")}, []string{"kustomization.yaml:2:1: replacements: a replacement takes its value from ConfigMap none"}},
		"replacement, no field":   {tree{k: "resources: [a.yaml]\nreplacements:\n- source: {kind: ConfigMap, name: a, fieldPath: data.none}\n  targets: [{select: {kind: ConfigMap}, fieldPaths: [data.a]}]\n", "a.yaml": config("a")}, []string{"kustomization.yaml:2:1: replacements: no object that a replacement names has the field data.none"}},
		"no name":                 {tree{k: "resources: [a.yaml]\n", "a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  generateName: a-\n---\nkind: X\n---\n- a\n"}, []string{"a.yaml:3:1: metadata.name: missing", "a.yaml:6:1: metadata.name: missing", "a.yaml:8:1: must be a map"}},
		"removed version":         {tree{k: "resources: [a.yaml]\n", "a.yaml": strings.Replace(web, "apps/v1", "extensions/v1beta1", 1)}, []string{"a.yaml:1:1: apiVersion: apiVersion extensions/v1beta1 of Deployment was removed in Kubernetes 1.16: write apps/v1"}},
		"yes":                     {tree{k: "resources: [a.yaml]\n", "a.yaml": strings.Replace(web, "spec: {containers", "spec: {automountServiceAccountToken: yes, containers", 1)}, []string{"a.yaml:9:12: spec.template.spec.automountServiceAccountToken: must be true or false, not a string; kustomize takes yes"}},
		"declared by two units":   {tree{"a/" + k: "resources: [../base]\n", "b/" + k: "resources: [../base]\n", "base/" + k: "resources: [x.yaml]\n", "base/x.yaml": config("x")}, []string{"base/x.yaml:1:1: metadata.name: ConfigMap default/x (from the kustomization b) is declared already at base/x.yaml:1:1 (from the kustomization a): an object may stand in one place only"}},
		"component on its own":    {tree{"c/" + k: "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\nresource: x\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems, err := render.Render(c.files, render.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range problems {
				if i >= len(c.want) || !strings.Contains(p.String(), c.want[i]) {
					t.Errorf("got %s", p)
				}
				if strings.Contains(p.String(), "hunter2") {
					t.Errorf("a credential is told: %s", p)
				}
			}
			if len(problems) != len(c.want) {
				t.Errorf("%d problems, want %q", len(problems), c.want)
			}
		})
	}
}
