package api_test

import (
	"strings"
	"testing"

	"headway.dev/headway/api"
)

func TestColumns(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		places map[string]string // field → line:column
	}{
		"yaml": {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: é\n  labels: {ü: a, app: b}\ndata:\n    a: b\n",
			map[string]string{"": "f.yaml:1:1", "metadata.name": "f.yaml:4:3", "metadata.labels.app": "f.yaml:5:18", "data.a": "f.yaml:7:5", "data": "f.yaml:6:1"}},
		"after a marker":  {"--- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n", map[string]string{"": "f.yaml:1:5", "metadata.name": "f.yaml:1:50"}},
		"indented":        {"  apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n", map[string]string{"": "f.yaml:1:3", "kind": "f.yaml:2:3"}},
		"byte order mark": {"\xef\xbb\xbfapiVersion: v1\r\nkind: ConfigMap\r\nmetadata: {name: a}\r\n", map[string]string{"": "f.yaml:1:1", "metadata.name": "f.yaml:3:12"}},
		"json":            {"{\"apiVersion\": \"v1\",\n \"kind\":\"ConfigMap\", \"metadata\" : {\n\t\"é\": 1, \"name\": \"a\"}}", map[string]string{"": "f.yaml:1:1", "apiVersion": "f.yaml:1:2", "kind": "f.yaml:2:2", "metadata": "f.yaml:2:22", "metadata.name": "f.yaml:3:10"}},
		"json stream":     {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}} {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`, map[string]string{"metadata.name": "f.yaml:1:51"}},
	} {
		docs, problems := api.Documents("f.yaml", []byte(c.text))
		if len(problems) > 0 || len(docs) == 0 {
			t.Fatalf("%s: %v", name, problems)
		}
		for field, want := range c.places {
			if got, found := docs[0].Place(field); got.String() != want || !found {
				t.Errorf("%s: %q stands at %s (%t), want %s", name, field, got, found, want)
			}
		}
	}
	docs, _ := api.Documents("f", []byte("{\"a\": 1} {\"a\":\n 1, \"b\": 2}"))
	if at, _ := docs[1].Place("a"); at.String() != "f:1:11" {
		t.Errorf("the second value's key stands at %s", at)
	}
	if at, found := docs[1].Place("b.c.d"); at.String() != "f:2:5" || found {
		t.Errorf("got %s %t", at, found)
	}
}

func TestUnrenderedTemplateIsSaid(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n"
	for text, want := range map[string]string{
		head + "  name: {{ .Release.Name }}\n":                                                                  "f.yaml:4:9: cannot be read: this is an unrendered Helm template",
		head + "  name: a\n{{- if .Values.x }}\ndata: {a: b}\n{{- end }}\n":                                     "f.yaml:5:1: cannot be read: this is an unrendered Helm template",
		head + "  name: a\n  labels:\n    {{- include \"x.labels\" . | nindent 4 }}\n":                          "f.yaml:6:5: cannot be read: this is an unrendered Helm template",
		"{{- if .Values.enabled }}\n" + head + "  name: x-{{ .Release.Name }}\n{{ end }}\n":                     "f.yaml:1:1: cannot be read: this is an unrendered Helm template",
		head + "  name: a\ndata:\n  b: {{ x\n":                                                                  "f.yaml:6:6: cannot be read: this is an unrendered Helm template",
		head + "  name: a\ndata:\n  # {{ x }}\n  b: |\n    {{ if }}\n  c: \"{{ x }}\"\n  d: '{{ y }}'\n e: f\n": "f.yaml:10: cannot be read: did not find expected",
		head + "  name: \"{{ x }}\"\n\tb: c\n":                                                                  "f.yaml:5: cannot be read: found",
		head + "  name: {a: b}: c\n":                                                                            "f.yaml:4: cannot be read: ",
	} {
		_, problems := decode(text)
		if len(problems) == 0 || !strings.HasPrefix(problems[0].String(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, problems, want)
		}
	}
	manifests, problems := decode(head + "  name: a\ndata:\n  a: '{{ .Title }}'\n  b: |\n    {{ range }}${VAR} $(VAR)\n  c: ${VAR}\n")
	if len(problems) > 0 || len(manifests) != 1 {
		t.Errorf("a template as a payload is refused: %v", problems)
	}
}

func TestProblemIsOneLine(t *testing.T) {
	p := api.Problem{Path: "a\n\x1b[31m\u202ex\xff.yaml", Line: 3, Column: 7, Field: "data[\x00]", Reason: "wrong\r\n\tthing: ünïcode 日本"}
	if want := `a\n\x1b[31m\u202ex\xff.yaml:3:7: data[\x00]: wrong\r\n\tthing: ünïcode 日本`; p.String() != want {
		t.Errorf("got  %s\nwant %s", p, want)
	}
}

func TestInto(t *testing.T) {
	var into struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	docs, _ := api.Documents("f", []byte("name: a\ntags: [b, c]\n"))
	if problems, read := docs[0].Into(&into); !read || len(problems) > 0 || into.Name != "a" || len(into.Tags) != 2 {
		t.Errorf("%v %+v", problems, into)
	}
	for text, want := range map[string]string{
		"nam: a\n":       `f:1:1: nam: unknown field: did you mean "name"?`,
		"name: 1\n":      "f:1:1: name: must be a string, not a number: put it in quotes",
		"tags: [1]":      "f:1:8: tags[0]: must be a string, not a number: put it in quotes",
		"- a\n":          "f:1:1: must be a map, not a list",
		"\n\nx:\n  y: z": "f:3:1: x: unknown field",
	} {
		docs, _ := api.Documents("f", []byte(text))
		if problems, _ := docs[0].Into(&into); len(problems) != 1 || problems[0].String() != want {
			t.Errorf("%q: %v, want %s", text, problems, want)
		}
	}
}

func TestDecodeObject(t *testing.T) {
	where := func(field string) api.Place {
		if field == "spec.replicas" {
			return api.Place{Path: "patch.yaml", Line: 9, Column: 2}
		}
		return api.Place{Path: "base.yaml", Line: 4, Column: 1}
	}
	object := func(replicas any) map[string]any {
		return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"replicas": replicas}}
	}
	_, problems := api.DecodeObject(object("x"), where, api.DecodeOptions{})
	if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), "patch.yaml:9:2: spec.replicas: must be a number") {
		t.Errorf("got %v", problems)
	}
	manifests, problems := api.DecodeObject(object(int64(-1)), where, api.DecodeOptions{DefaultNamespace: "x"})
	if len(problems) > 0 || len(manifests) != 1 || manifests[0].Path != "base.yaml" || manifests[0].Line != 4 || manifests[0].Object.GetNamespace() != "x" {
		t.Fatalf("got %v %v", manifests, problems)
	}
	for _, p := range manifests[0].Check() {
		if at := p.Path; p.Field == "spec.replicas" && at != "patch.yaml" || p.Field != "spec.replicas" && at != "base.yaml" {
			t.Errorf("got %s", p)
		}
	}
}
