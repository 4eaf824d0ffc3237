package syncer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// changesOf is what a commit would change, a line for each object.
func changesOf(t *testing.T, w *world, commit string) (string, Preview) {
	t.Helper()
	v, err := w.s.Judge(t.Context(), Candidate{Commit: commit})
	if err != nil || !v.OK() {
		t.Fatalf("%v %v", v.Lines(), err)
	}
	var lines []string
	p := v.Preview()
	for _, c := range p.Changes {
		lines = append(lines, c.String())
	}
	return strings.Join(lines, "\n"), p
}

func TestChangesAreDescribed(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, tt := range map[string]struct {
		before, after string
		edit          func(*world)
		want          string
	}{
		"a new object":               {configMap("b", "1"), configMap("a", "1"), nil, "+ create ConfigMap default/a (a.yaml:1)"},
		"a value":                    {configMap("a", "1"), configMap("a", "2"), nil, `~ update ConfigMap default/a (a.yaml:1): data.k 1 → 2`},
		"odd texts":                  {configMap("a", ""), configMap("a", "x y"), nil, `~ update ConfigMap default/a (a.yaml:1): data.k "" → "x y"`},
		"long texts":                 {configMap("a", long), configMap("a", "a\nb\nc\n"), nil, `~ update ConfigMap default/a (a.yaml:1): data.k "` + long[:60] + `"… → (3 lines)`},
		"what a terminal would obey": {configMap("a", "1"), configMap("a", "\x1b[2J"), nil, `~ update ConfigMap default/a (a.yaml:1): data.k 1 → \x1b[2J`},
		"names of keys":              {configMap("a", "1"), edit(configMap("a", "1"), "{k:", "{my.file: x, k:"), nil, "~ update ConfigMap default/a (a.yaml:1): data[my.file] none → x"},
		"what goes":                  {edit(configMap("a", "1"), "{k:", "{l: x, k:"), configMap("a", "1"), nil, "~ update ConfigMap default/a (a.yaml:1): data.l x → none"},
		"many fields": {configMap("a", "1"), edit(configMap("a", "1"), "{k: \"1\"}", "{a: x, b: x, c: x, d: x, e: x, f: x}"), nil,
			"~ update ConfigMap default/a (a.yaml:1): data.a none → x, data.b none → x, data.c none → x, data.d none → x, data.e none → x, and 2 more"},
		"only the form": {app, edit(app, "{name: web}\nspec", "{name: web, labels: {}}\nspec"), nil, "~ update Deployment default/web (a.yaml:1): changed in form only"},
		"items of lists": {app, edit(app, "        ports:\n        - {containerPort: 80}\n", "        args: [a, b]\n        env: [{name: A, value: x}]\n        ports: [{containerPort: 81}]\n"), nil,
			"~ update Deployment default/web (a.yaml:1): spec.template.spec.containers[web].args[0] none → a, spec.template.spec.containers[web].args[1] none → b, spec.template.spec.containers[web].env[A].name none → A, spec.template.spec.containers[web].env[A].value none → x, spec.template.spec.containers[web].ports[0].containerPort 80 → 81"},
		"the type of a strategy": {app, edit(app, "  replicas: 3\n", "  replicas: 3\n  strategy: {type: Recreate}\n"), nil,
			"~ update Deployment default/web (a.yaml:1): spec.strategy.rollingUpdate.maxSurge 25% → none, spec.strategy.rollingUpdate.maxUnavailable 25% → none, spec.strategy.type RollingUpdate → Recreate"},
		"a secret": {secret("a", "hunter2"), secret("a", "swordfish") + "immutable: true\n", nil, "~ update Secret default/a (a.yaml:1): data.k differs, immutable differs"},
		"an adoption": {configMap("b", "1"), configMap("a", "1"), func(w *world) {
			w.write(store.Create, &corev1.ConfigMap{ObjectMeta: metaOf("default", "a", nil), Data: map[string]string{"k": "0"}})
		}, "~ update ConfigMap default/a (a.yaml:1): adopted: it existed and was not declared before; data.k 0 → 1"},
		"a deletion": {configMap("a", "1") + "---\n" + configMap("b", "1"), configMap("a", "1"), nil, "- delete ConfigMap default/b: no longer declared: its manifest was a.yaml in commit c10000000000"},
		"one that is made when another is gone": {configMap("a", "1"), configMap("a", "1"), func(w *world) {
			w.change("configmaps", "default", "a", func(o api.Object) {
				at := metav1.NewTime(w.now)
				o.SetDeletionTimestamp(&at)
				o.SetFinalizers([]string{"x/y"})
			})
		}, "± replace ConfigMap default/a (a.yaml:1): is being deleted, and made again when it is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.push(w.repo.add("c1", "", map[string]string{"a.yaml": tt.before, "z.yaml": configMap("z", "1")}))
			if tt.edit != nil {
				tt.edit(w)
				w.settle()
			}
			c2 := w.repo.add("c2", "c1", map[string]string{"a.yaml": tt.after, "z.yaml": configMap("z", "1")})
			got, _ := changesOf(t, w, c2)
			if lines := strings.Split(got, "\n"); lines[0] != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// The JSON says the same, and prints the same after a way over the wire.
func TestPreviewAsJSON(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1"), "web.yaml": app, "old.yaml": configMap("old", "1")}))
	_, p := changesOf(t, w, w.repo.add("c2", "c1", map[string]string{"a.yaml": configMap("a", "two words"), "web.yaml": edit(app, "replicas: 3", "replicas: 2"), "n.yaml": namespaceFile("ns")}))
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Preview
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	var a, b strings.Builder
	if err := p.Write(&a); err != nil {
		t.Fatal(err)
	}
	if err := back.Write(&b); err != nil || a.String() != b.String() {
		t.Errorf("%v\n%s\n%s", err, a.String(), b.String())
	}
	want := `+ create Namespace ns (n.yaml:1)
~ update ConfigMap default/a (a.yaml:1): data.k 1 → "two words"
~ update Deployment default/web (web.yaml:1): spec.replicas 3 → 2
- delete ConfigMap default/old: no longer declared: its manifest was old.yaml in commit c10000000000
4 of 4 objects change
`
	if a.String() != want {
		t.Errorf("got\n%s\nwant\n%s", a.String(), want)
	}
	if !strings.Contains(string(data), `{"verb":"update","apiVersion":"apps/v1","kind":"Deployment","namespace":"default","name":"web","path":"web.yaml","line":1,"reason":"changed: spec.replicas","fields":[{"field":"spec.replicas","old":3,"new":2}]}`) {
		t.Errorf("%s", data)
	}
	if p.Create != 1 || p.Update != 2 || p.Delete != 1 || p.Objects != 3 || !p.OK {
		t.Errorf("%+v", p)
	}
}

func TestR14_APlanShowsNoSecret(t *testing.T) {
	w := newWorld(t)
	noted := func(value string) string {
		return edit(secret("s", value), "{name: s}", fmt.Sprintf("{name: s, annotations: {last: %q}}", value)) + fmt.Sprintf("type: %s\n", value)
	}
	w.push(w.repo.add("c1", "", map[string]string{"s.yaml": secret("s", "hunter2"), "t.yaml": secret("t", "hunter3")}))
	c2 := w.repo.say(w.repo.add("c2", "c1", map[string]string{"s.yaml": noted("swordfish"), "u.yaml": secret("u", "trustno1")}), "Replace: Secret/default/s")
	text, p := changesOf(t, w, c2)
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "± replace Secret default/s") || !strings.Contains(text, "data.k differs") {
		t.Errorf("%s", text)
	}
	for _, value := range []string{"hunter", "aHVudGVy", "swordfish", "c3dvcmRmaXNo", "trustno1", "dHJ1c3Rubz"} {
		if strings.Contains(text+string(data), value) {
			t.Errorf("%q stands in\n%s\n%s", value, text, data)
		}
	}
}
