package api_test

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func decode(text string) ([]api.Manifest, []api.Problem) {
	return api.DecodeFile("f.yaml", []byte(text), api.DecodeOptions{DefaultNamespace: "default"})
}

func TestDecodesEveryForm(t *testing.T) {
	config := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n"
	}
	for name, c := range map[string]struct {
		text string
		want []string // kind namespace/name@line
	}{
		"one":                  {config("a"), []string{"ConfigMap default/a@1"}},
		"several":              {config("a") + "---\n" + config("b") + "--- # comment\n# more\n\n" + config("c"), []string{"ConfigMap default/a@1", "ConfigMap default/b@6", "ConfigMap default/c@13"}},
		"empty documents":      {"---\n---\n# nothing\n---\n" + config("a") + "---\n", []string{"ConfigMap default/a@5"}},
		"nothing":              {"# nothing at all\n", nil},
		"empty":                {"", nil},
		"null":                 {"null\n---\n~\n", nil},
		"document end":         {config("a") + "...\n---\n" + config("b"), []string{"ConfigMap default/a@1", "ConfigMap default/b@7"}},
		"content after marker": {"--- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n--- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n", []string{"ConfigMap default/a@1", "ConfigMap default/b@2"}},
		"crlf":                 {strings.ReplaceAll(config("a")+"---\n"+config("b"), "\n", "\r\n"), []string{"ConfigMap default/a@1", "ConfigMap default/b@6"}},
		"byte order mark":      {"\xef\xbb\xbf" + config("a"), []string{"ConfigMap default/a@1"}},
		"json":                 {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, []string{"ConfigMap default/a@1"}},
		"json stream":          {"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n\n{\n\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"b\"}}", []string{"ConfigMap default/a@1", "Namespace /b@3"}},
		"flow":                 {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: x}}", []string{"ConfigMap x/a@1"}},
		"list":                 {"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: b}\n", []string{"ConfigMap default/a@4", "Namespace /b@7"}},
		"typed list":           {"apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n", []string{"ConfigMap default/a@4", "ConfigMap default/b@5"}},
		"empty list":           {"apiVersion: v1\nkind: List\nitems: []\n", nil},
		"list without items":   {"apiVersion: v1\nkind: List\n", nil},
		"marker in a value":    {config("a") + "data:\n  b: |\n    ---\n    ...\n", []string{"ConfigMap default/a@1"}},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, problems := decode(c.text)
			for _, p := range problems {
				t.Error(p)
			}
			var got []string
			for _, m := range manifests {
				got = append(got, fmt.Sprintf("%s %s/%s@%d", m.Kind.Kind, m.Object.GetNamespace(), m.Object.GetName(), m.Line))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestYAML11 pins the reading that Kubernetes has: octal modes, yes and no.
func TestYAML11(t *testing.T) {
	manifests, problems := decode(`apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  automountServiceAccountToken: yes
  hostNetwork: no
  terminationGracePeriodSeconds: 010
  activeDeadlineSeconds: 1_0
  containers:
  - {name: c, image: i, stdin: on}
  volumes:
  - name: v
    configMap: {name: c, defaultMode: 0644}
`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	spec := manifests[0].Object.(*corev1.Pod).Spec
	if !*spec.AutomountServiceAccountToken || spec.HostNetwork || *spec.TerminationGracePeriodSeconds != 8 || *spec.ActiveDeadlineSeconds != 10 || !spec.Containers[0].Stdin || *spec.Volumes[0].ConfigMap.DefaultMode != 0o644 {
		t.Errorf("got %+v", spec)
	}
}

func TestMergeKeysAndAnchors(t *testing.T) {
	manifests, problems := decode(`apiVersion: v1
kind: ConfigMap
metadata:
  name: a
  labels: &labels
    app: web
    tier: front
  annotations:
    <<: *labels
    tier: back
data:
  same: &labels x
  other: *labels
`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	m := manifests[0].Object.(*corev1.ConfigMap)
	if want := map[string]string{"app": "web", "tier": "back"}; !reflect.DeepEqual(m.Annotations, want) {
		t.Errorf("annotations %v, want %v", m.Annotations, want)
	}
	if m.Data["other"] != "x" {
		t.Errorf("data %v", m.Data)
	}
	for field, want := range map[string]int{"metadata.annotations[app]": 6, "metadata.annotations[tier]": 10, "data.other": 13, "data.none": 11, "spec": 1, "": 1} {
		if got := manifests[0].Place(field).Line; got != want {
			t.Errorf("line of %q is %d, want %d", field, got, want)
		}
	}
	_, problems = decode("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: &l {app: web}\n  annotations:\n    app: x\n    <<: *l\n")
	if len(problems) != 1 || problems[0].String() != `f.yaml:8:5: metadata.annotations.app: key already set in line 7; put "<<" before it` {
		t.Errorf("got %v", problems)
	}
}

// TestR2_EveryProblemIsNamed is R2's "names every problem".
func TestR2_EveryProblemIsNamed(t *testing.T) {
	_, problems := decode(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  name: web2
spec:
  replicas: "3"
  replica: 3
  selector: {matchLabels: {app: 1}}
  template:
    spec:
      containers:
      - name: c
        imagee: x
        ports: {}
        resources: {limits: {memory: 1Gx}}
---
kind: Pod
---
apiVersion: v1
kind: ConfigMap
metadata: [
---
apiVersion: v1
kind: Secret
metadata: {name: s}
data: {key: "%%%"}
---
- a list
`)
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	want := []string{
		"f.yaml:5:3: metadata.name: key already set in line 4",
		`f.yaml:8:3: spec.replica: unknown field: did you mean "replicas"?`,
		"f.yaml:7:3: spec.replicas: must be a number, not a string: remove the quotes",
		"f.yaml:9:28: spec.selector.matchLabels[app]: must be a string, not a number: put it in quotes",
		`f.yaml:14:9: spec.template.spec.containers[0].imagee: unknown field: did you mean "image"?`,
		"f.yaml:15:9: spec.template.spec.containers[0].ports: must be a list, not a map",
		"f.yaml:16:30: spec.template.spec.containers[0].resources.limits[memory]: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
		"f.yaml:18:1: apiVersion: missing: every document names its apiVersion and its kind",
		"f.yaml:22: cannot be read: did not find expected node content",
		"f.yaml:27:8: data[key]: must be base64: illegal base64 data at input byte 0",
		"f.yaml:29:1: must be a map with apiVersion, kind and metadata, not a list",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestKindsThatAreNotHere(t *testing.T) {
	for doc, want := range map[string]string{
		"apiVersion: v1\nkind: PodTemplate":                         "f.yaml:2:1: kind: PodTemplate is not supported by this version of Headway: nothing is made from it: write the template in a Deployment",
		"apiVersion: v1\nkind: PodTemplateList":                     "f.yaml:2:1: kind: PodTemplate is not supported by this version of Headway: nothing is made from it: write the template in a Deployment",
		"apiVersion: extensions/v1beta1\nkind: Deployment":          "f.yaml:1:1: apiVersion: apiVersion extensions/v1beta1 of Deployment was removed in Kubernetes 1.16: write apps/v1",
		"apiVersion: extensions/v1beta1\nkind: Ingress":             "f.yaml:1:1: apiVersion: apiVersion extensions/v1beta1 of Ingress was removed in Kubernetes 1.22: write networking.k8s.io/v1",
		"apiVersion: batch/v1beta1\nkind: CronJob":                  "f.yaml:1:1: apiVersion: apiVersion batch/v1beta1 of CronJob was removed in Kubernetes 1.25: write batch/v1",
		"apiVersion: v1\nkind: Deployment":                          `f.yaml:2:1: kind: no matches for kind "Deployment" in version "v1": write apiVersion apps/v1`,
		"apiVersion: app/v1\nkind: Deployment":                      `f.yaml:1:1: apiVersion: no matches for kind "Deployment" in version "app/v1": write apiVersion apps/v1`,
		"apiVersion: apps/v1\nkind: Deploymnet":                     `f.yaml:2:1: kind: no matches for kind "Deploymnet" in version "apps/v1": did you mean Deployment?`,
		"apiVersion: v1\nkind: pod":                                 `f.yaml:2:1: kind: no matches for kind "pod" in version "v1": did you mean Pod?`,
		"apiVersion: cert-manager.io/v1\nkind: Certificate":         "f.yaml:2:1: kind: Certificate (cert-manager.io/v1) is not supported by this version of Headway: it has no custom kinds",
		"apiVersion: example.org/v1\nkind: Deployment":              "f.yaml:2:1: kind: Deployment (example.org/v1) is not supported by this version of Headway: it has no custom kinds (Kubernetes' own Deployment is written with apiVersion apps/v1)",
		"apiVersion: headway.dev/v1\nkind: Deployment":              `f.yaml:2:1: kind: no matches for kind "Deployment" in version "headway.dev/v1"`,
		"apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler": `f.yaml:2:1: kind: no matches for kind "HorizontalPodAutoscaler" in version "autoscaling/v1": write apiVersion autoscaling/v2, and targetCPUUtilizationPercentage: N as metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: N}}}]`,
		"apiVersion: node.k8s.io/v1\nkind: RuntimeClass":            "f.yaml:2:1: kind: RuntimeClass is not supported by this version of Headway: every container runs in runc",
		"apiVersion: v1\nkind: Node\nmetadata: {name: n}":           "f.yaml:2:1: kind: Node is made by the cluster and cannot be declared in a repository",
		"apiVersion: headway.dev/v1\nkind: Source":                  "f.yaml:2:1: kind: Source is made by the cluster and cannot be declared in a repository",
		"apiVersion: v1\nkind: 7":                                   "f.yaml:2:1: kind: must be a string, not a number",
		"apiVersion: v1\nkind: List\nitem: []":                      "f.yaml:3:1: item: unknown field",
		"apiVersion: v1\nkind: List\nitems:\n- kind: ConfigMap":     "f.yaml:4:3: apiVersion: missing: every document names its apiVersion and its kind",
		"apiVersion: v1\nkind: List\nitems:\n- {}\n- 3":             "f.yaml:4:3: kind: missing: every document names its apiVersion and its kind",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: *no}":    "f.yaml:3:18: cannot be read: there is no such anchor; text that starts with \"*\" must be in quotes",
	} {
		_, problems := decode(doc)
		if len(problems) == 0 || problems[0].String() != want {
			t.Errorf("%s\n got %v\nwant %s", doc, problems, want)
		}
	}
}

func TestWhatTheClusterWritesIsIgnored(t *testing.T) {
	manifests, problems := decode(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  uid: abc
  resourceVersion: "7"
  creationTimestamp: null
  managedFields: [{manager: x}]
spec:
  replicas: 0
  paused: false
  selector: {matchLabels: {app: a}}
  template:
    metadata: {creationTimestamp: null, labels: {app: a}}
    spec: {containers: [{name: c, image: i, env: null, resources: {}}]}
status: {replicas: 3, nonsense: 7}
`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	m := manifests[0]
	var warned []string
	for _, w := range m.Warnings {
		warned = append(warned, fmt.Sprintf("%d %s", w.Line, w.Field))
	}
	if want := []string{"16 status", "8 metadata.managedFields", "6 metadata.resourceVersion", "5 metadata.uid"}; !slices.Equal(warned, want) {
		t.Errorf("warnings %v, want %v", warned, want)
	}
	d := m.Object.(*appsv1.Deployment)
	if d.UID != "" || d.ResourceVersion != "" || d.Status.Replicas != 0 || d.ManagedFields != nil {
		t.Errorf("object %+v", d.ObjectMeta)
	}
	want := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"replicas": int64(0), "paused": false, "selector": map[string]any{"matchLabels": map[string]any{"app": "a"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "a"}},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i", "resources": map[string]any{}}}}}},
	}
	if !reflect.DeepEqual(m.Declared, want) {
		t.Errorf("declared\n%v\nwant\n%v", m.Declared, want)
	}
}

func TestStringDataIsFolded(t *testing.T) {
	manifests, problems := decode("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  a: eA==\n  b: eQ==\nstringData:\n  b: two\n  c:\n")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	m := manifests[0]
	s := m.Object.(*corev1.Secret)
	if want := map[string][]byte{"a": []byte("x"), "b": []byte("two"), "c": {}}; !reflect.DeepEqual(s.Data, want) || s.StringData != nil {
		t.Errorf("data %q, stringData %v", s.Data, s.StringData)
	}
	if want := map[string]any{"a": "eA==", "b": base64.StdEncoding.EncodeToString([]byte("two")), "c": ""}; !reflect.DeepEqual(m.Declared["data"], want) || m.Declared["stringData"] != nil {
		t.Errorf("declared %v", m.Declared)
	}
	for field, want := range map[string]int{"data[a]": 5, "data[b]": 6, "data[c]": 9, "data": 4} {
		if got := m.Place(field).Line; got != want {
			t.Errorf("line of %s is %d, want %d", field, got, want)
		}
	}
}

func TestHash(t *testing.T) {
	hash := func(text string) string {
		t.Helper()
		manifests, problems := decode(text)
		if len(problems) > 0 || len(manifests) != 1 {
			t.Fatal(problems)
		}
		return manifests[0].Hash
	}
	a := hash("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1', y: '2'}\n")
	if b := hash("# comment\nkind: ConfigMap\ndata:\n  y: \"2\"\n  x: \"1\"\nmetadata:\n  name: a\napiVersion: v1\n"); a != b {
		t.Error("the hash depends on order or layout")
	}
	if b := hash("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1', y: '3'}\n"); a == b || len(a) != 64 {
		t.Error("the hash does not depend on the content")
	}
}

func TestBounds(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 8 {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", 'b'+i, 'b'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i)
	}
	var list strings.Builder
	list.WriteString("apiVersion: v1\nkind: ConfigMapList\nitems:\n")
	for range api.MaxDocuments + 1 {
		list.WriteString("- {}\n")
	}
	for name, c := range map[string]struct{ text, want string }{
		"size":      {strings.Repeat("#", api.MaxFileBytes+1), "at most 8388608"},
		"documents": {strings.Repeat("---\n", api.MaxDocuments+1), "at most 10000"},
		"depth":     {"apiVersion: v1\nkind: ConfigMap\nx: " + strings.Repeat("[", 300) + strings.Repeat("]", 300), "deeper than 200"},
		"json":      {`{"apiVersion": ` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}", "deeper than 200"},
		"aliases":   {"apiVersion: v1\nkind: ConfigMap\n" + bomb, "excessive aliasing"},
		"objects":   {list.String(), "more than 10000 objects"},
		"problems":  {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n" + strings.Repeat("---\nx: y\n", 5000), "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := decode(c.text)
			if len(problems) == 0 || len(problems) > 1000 || !strings.Contains(problems[len(problems)-1].Reason, c.want) {
				t.Errorf("%d problems, the last %v", len(problems), problems[max(0, len(problems)-1):])
			}
		})
	}
}

// TestR14_NoSecretInAProblem spoils a Secret in every way and looks for its value
// in what is said.
func TestR14_NoSecretInAProblem(t *testing.T) {
	const secret = "hunter2verysecret"
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	const head = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
	for _, body := range []string{
		"stringData: {a: {b: " + secret + "}}",
		"stringData: [" + secret + "]",
		"stringData: " + secret,
		"stringData:\n  a: " + secret + "\n  a: " + secret,
		"stringData:\n  a: {{ " + secret + " }}",
		"stringData:\n  a: {{ " + secret + " }}: x",
		"stringData:\n  a: *" + secret[:3] + "\n  b: " + secret,
		"stringData:\n  a: \"" + secret,
		"stringData:\n  a: '" + secret + "\n b: c",
		"stringData:\n  a: " + secret + ": b",
		"stringData:\n  a/b: " + secret,
		"data: {a: " + secret + "!}",
		"data: {a: [" + encoded + "]}",
		"type: kubernetes.io/dockerconfigjson\ndata: {.dockerconfigjson: " + encoded + "}",
		"type: kubernetes.io/tls\nstringData: {tls.crt: " + secret + "}",
		"type: kubernetes.io/basic-auth\nstringData: {x: " + secret + "}",
		"stringData: {a: " + secret + "}\nimmutable: " + "maybe",
	} {
		manifests, problems := decode(head + body)
		for _, m := range manifests {
			problems = append(problems, m.Check()...)
		}
		if len(problems) == 0 {
			t.Errorf("accepted:\n%s", body)
		}
		for _, p := range problems {
			if strings.Contains(p.String(), secret) || strings.Contains(p.String(), encoded) {
				t.Errorf("the secret is told: %s", p)
			}
		}
	}
}

func FuzzDecodeFile(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n{}",
		`{"apiVersion":"v1","kind":"List","items":[{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{}]}}]}`,
		"apiVersion: v1\nkind: Secret\nstringData: {a: &a b, <<: {c: *a}}",
		"a: &a [*a]\n? [x]\n: y\n", "%YAML 1.2\n---\nx: !!binary aaa\n...\n", "{\"a\":1}{\"a\":", "\t- x", "a: 0o7\nb: 1e999\nc: .nan\n",
		"apiVersion: batch/v1\nkind: CronJob\nspec: {schedule: '* * *', jobTemplate: {spec: {template: {spec: {}}}}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		manifests, problems := api.DecodeFile("f", data, api.DecodeOptions{DefaultNamespace: "default"})
		lines := len(regexp.MustCompile("[\n\r\u0085\u2028\u2029]").FindAllString(string(data), -1)) + 1 // what YAML takes for the end of a line
		for _, m := range manifests {
			if m.Line < 1 || m.Line > lines || m.Place("metadata.name").Line < 1 || m.Place("metadata.name").Line > lines {
				t.Errorf("line %d of %d", m.Line, lines)
			}
			if !reflect.DeepEqual(api.ManifestHash(m.Declared), m.Hash) {
				t.Error("unstable hash")
			}
			problems = append(problems, m.Check()...)
		}
		for _, p := range problems {
			if p.Path != "f" || p.Reason == "" || p.Line < 0 || p.Line > lines {
				t.Errorf("problem %+v in %d lines", p, lines)
			}
		}
		api.Declares(data)
	})
}
