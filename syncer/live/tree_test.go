package live_test

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/live"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// changedIn decodes a tree's file, finds an object by its key and edits a copy.
func changedIn[T api.Object](t testing.TB, f files, units []string, name string, edit func(T)) api.Object {
	t.Helper()
	all := f.declares(t, units...)
	for _, m := range all {
		if key(m) == name {
			obj := m.Object.DeepCopyObject().(T)
			edit(obj)
			return obj
		}
	}
	t.Fatalf("%s is not declared", name)
	return nil
}

const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata:\n  mode: fast # as ordered\n  # the file\n  app.conf: |\n    a=1\n    b=2\n"

func TestTreeOfPlainFiles(t *testing.T) {
	f := files{
		"web/deployment.yaml": "# The shop.\n" + web,
		"all.yaml":            "# about\n---\n" + config + "---\napiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(strings.ReplaceAll(config, "settings", "one")), "\n", "\n  ") + "\n- {apiVersion: v1, kind: ServiceAccount, metadata: {name: two}}\n",
		"last.json":           `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "last"}, "data": {"a": "b", "c": "d"}}` + "\n",
	}
	deployment := changedIn(t, f, nil, "Deployment default/web", func(d *appsv1.Deployment) {
		d.Spec.Replicas = new(int32(5))
		d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": quantity("2"), "memory": quantity("2")}
		d.Spec.Template.Spec.Containers[0].Ports = d.Spec.Template.Spec.Containers[0].Ports[:1]
		d.Spec.Template.Spec.NodeSelector["zone"] = "b"
		d.Labels["undeclared"] = "x"
	})
	settings := func(name string) api.Object {
		return changedIn(t, f, nil, "ConfigMap default/"+name, func(c *corev1.ConfigMap) {
			c.Data["mode"] = "slow"
			c.Data["app.conf"] = "a=1\nb=3\n"
			c.Data["more"] = "x"
		})
	}
	for name, tt := range map[string]struct {
		live map[string]api.Object
		diff string // lines of the files that changed
	}{
		"nothing": {nil, ""},
		"a deployment": {map[string]api.Object{"Deployment default/web": deployment}, `
web/deployment.yaml
-  replicas: 3
+  replicas: 5
-      nodeSelector: {disk: ssd}
+      nodeSelector: {disk: ssd, zone: b}
-        resources: {limits: {cpu: 1000m, memory: 1}}
+        resources: {limits: {cpu: "2", memory: 2}}
-        - {containerPort: 53, protocol: UDP}
`},
		"one of several in a file, an item of a list": {map[string]api.Object{"ConfigMap default/settings": settings("settings"), "ConfigMap default/one": settings("one")}, `
all.yaml
-  mode: fast # as ordered
+  mode: slow # as ordered
-    b=2
+    b=3
-    mode: fast # as ordered
+    mode: slow # as ordered
-      b=2
+      b=3
`},
		"deleted": {map[string]api.Object{"ConfigMap default/one": nil, "Deployment default/web": nil}, `
all.yaml
-- apiVersion: v1
-  kind: ConfigMap
-  metadata: {name: one}
-  data:
-    mode: fast # as ordered
-    # the file
-    app.conf: |
-      a=1
-      b=2
web/deployment.yaml is gone
`},
		"a list deleted, another document changed": {map[string]api.Object{"ConfigMap default/one": nil, "ServiceAccount default/two": nil, "ConfigMap default/settings": settings("settings")}, `
all.yaml
-  mode: fast # as ordered
+  mode: slow # as ordered
-    b=2
----
-apiVersion: v1
-kind: List
-items:
-- apiVersion: v1
-  kind: ConfigMap
-  metadata: {name: one}
-  data:
-    mode: fast # as ordered
-    # the file
-    app.conf: |
-      a=1
-      b=2
-- {apiVersion: v1, kind: ServiceAccount, metadata: {name: two}}
+    b=3
`},
		"JSON": {map[string]api.Object{"ConfigMap default/last": changedIn(t, f, nil, "ConfigMap default/last", func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "x\"y"} })}, `
last.json
-{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "last"}, "data": {"a": "b", "c": "d"}}
+{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "last"}, "data": {"a": "x\"y"}}
`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := diffOf(f, written(t, f, nil, tt.live)); got != strings.TrimPrefix(tt.diff, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, tt.diff)
			}
		})
	}
}

// diffOf shows the lines that changed, those that went before those that came.
func diffOf(f files, changed map[string][]byte) string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(changed)) {
		if changed[path] == nil {
			b.WriteString(path + " is gone\n")
			continue
		}
		b.WriteString(path + "\n")
		old, now := strings.SplitAfter(f[path], "\n"), strings.SplitAfter(string(changed[path]), "\n")
		// The longest common subsequence, by the book.
		best := make([][]int, len(old)+1)
		for i := range best {
			best[i] = make([]int, len(now)+1)
		}
		for i := len(old) - 1; i >= 0; i-- {
			for j := len(now) - 1; j >= 0; j-- {
				if best[i][j] = max(best[i+1][j], best[i][j+1]); old[i] == now[j] {
					best[i][j] = best[i+1][j+1] + 1
				}
			}
		}
		plus := ""
		for i, j := 0, 0; i < len(old) || j < len(now); {
			switch {
			case i < len(old) && j < len(now) && old[i] == now[j]:
				b.WriteString(plus)
				plus = ""
				i, j = i+1, j+1
			case i < len(old) && (j == len(now) || best[i+1][j] >= best[i][j+1]):
				b.WriteString("-" + old[i])
				i++
			default:
				plus += "+" + now[j]
				j++
			}
		}
		b.WriteString(plus)
	}
	return b.String()
}

// TestR14_TreeOfSecrets writes drifted Secrets and looks for their values.
func TestR14_TreeOfSecrets(t *testing.T) {
	f := files{
		"s.yaml": `apiVersion: v1
kind: Secret
metadata:
  name: db
  annotations: {note: written}
data:
  password: d3JpdHRlbg==
  old: "d3JpdHRlbg==" # not mine
  both: d3JpdHRlbg==
  more: |
    d3JpdHRlbg==
  gone: d3JpdHRlbg==
stringData:
  token: written
  both: written
  again: <differs>
  gone: written
`,
		"s.json": `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "js"}, "data": {"a": "d3JpdHRlbg=="}}`,
	}
	const is = "really live"
	changed := written(t, f, nil, map[string]api.Object{
		"Secret default/db": changedIn(t, f, nil, "Secret default/db", func(s *corev1.Secret) {
			for k := range s.Data {
				s.Data[k] = []byte(is)
			}
			delete(s.Data, "gone")
			s.Data["undeclared"] = []byte(is)
			s.Annotations["note"] = is
		}),
		"Secret default/js": changedIn(t, f, nil, "Secret default/js", func(s *corev1.Secret) { s.Data["a"] = []byte(is) }),
	})
	want := `s.json
-{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "js"}, "data": {"a": "d3JpdHRlbg=="}}+{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "js"}, "data": {"a": "PGRpZmZlcnM+"}}s.yaml
-  annotations: {note: written}
+  annotations: {note: "<differs>"}
-  password: d3JpdHRlbg==
-  old: "d3JpdHRlbg==" # not mine
+  password: PGRpZmZlcnM+ # differs; the values of Secrets are not written
+  old: "PGRpZmZlcnM+" # not mine
-  more: |
-    d3JpdHRlbg==
-  gone: d3JpdHRlbg==
+  more: |- # differs; the values of Secrets are not written
+    PGRpZmZlcnM+
-  token: written
-  both: written
-  again: <differs>
-  gone: written
+  token: "<differs>" # differs; the values of Secrets are not written
+  both: "<differs>" # differs; the values of Secrets are not written
+  again: "<differs again>" # differs; the values of Secrets are not written
`
	if got := diffOf(f, changed); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for path, data := range changed {
		for _, m := range manifests(t, path, string(data)) {
			for k, v := range m.Object.(*corev1.Secret).Data {
				if !live.IsMarker(v) {
					t.Errorf("%s: %s is %q", path, k, v)
				}
			}
		}
		for _, secret := range []string{is, base64.StdEncoding.EncodeToString([]byte(is))} {
			if strings.Contains(string(data), secret) {
				t.Errorf("%s tells a live value", path)
			}
		}
	}
}

// TestTreeWritesWhatItCan names the drifts that cannot be written, and no value,
// and writes the others.
func TestTreeWritesWhatItCan(t *testing.T) {
	f := files{"a.yaml": config + "---\n" + strings.ReplaceAll(config, "settings", "other"), "b.yaml": strings.ReplaceAll(config, "settings", "b"), "c.yaml": strings.ReplaceAll(config, "settings", "c"), "d.yaml": strings.ReplaceAll(config, "settings", "d")}
	all := f.declares(t)
	var drifts []*live.Drift
	for _, m := range all {
		obj := m.Object.DeepCopyObject().(*corev1.ConfigMap)
		obj.Data["mode"] = "livevalue"
		drifts = append(drifts, compare(t, m, obj))
	}
	// The applied commit is another than the manifests are from.
	f["a.yaml"] = strings.Replace(f["a.yaml"], "  mode: fast # as ordered\n", "", 1)
	f["b.yaml"] = "a: [livevalue\n"
	delete(f, "c.yaml")
	changed, problems, err := live.Tree(f, drifts)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
		if strings.Contains(p.String(), "livevalue") {
			t.Errorf("tells a value: %s", p)
		}
	}
	want := []string{
		"a.yaml:1: the live values of ConfigMap default/settings cannot be written: it does not declare data.mode there as the manifest does",
		"b.yaml:1: the live values of ConfigMap default/b cannot be written: cannot be read: ",
		"c.yaml:1: the live values of ConfigMap default/c cannot be written: the applied commit has no such file",
	}
	if len(got) != len(want) {
		t.Fatalf("problems %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got  %s\nwant %s…", got[i], want[i])
		}
	}
	if names := slices.Sorted(maps.Keys(changed)); !slices.Equal(names, []string{"a.yaml", "d.yaml"}) || strings.Count(string(changed["a.yaml"]), "livevalue") != 1 {
		t.Errorf("changed %v:\n%s", names, changed["a.yaml"])
	}
}

// TestTreeOfAFileWithoutALineEnd writes what is live of a file that ends inside a
// block text, and ends as it did.
func TestTreeOfAFileWithoutALineEnd(t *testing.T) {
	f := files{"a.yaml": strings.TrimSuffix(config, "\n")}
	for what, tt := range map[string]struct {
		edit func(*corev1.ConfigMap)
		want string
	}{
		"all is gone":      {func(c *corev1.ConfigMap) { c.Data = nil }, strings.Split(config, "data:\n")[0]},
		"the text is gone": {func(c *corev1.ConfigMap) { delete(c.Data, "app.conf") }, strings.Split(config, "  # the file")[0]},
		"another text":     {func(c *corev1.ConfigMap) { c.Data["app.conf"] = "a=3\n" }, strings.Split(config, "    a=1")[0] + "    a=3"},
		"without an end":   {func(c *corev1.ConfigMap) { c.Data["app.conf"] = "a=3" }, strings.Split(config, "|")[0] + "|-\n    a=3"},
		"another value":    {func(c *corev1.ConfigMap) { c.Data["mode"] = "slow" }, strings.ReplaceAll(f["a.yaml"], "fast", "slow")},
	} {
		const name = "ConfigMap default/settings"
		changed := written(t, f, nil, map[string]api.Object{name: changedIn(t, f, nil, name, tt.edit)})
		if got := strings.TrimSuffix(string(changed["a.yaml"]), "\n"); got != strings.TrimSuffix(tt.want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", what, got, tt.want)
		}
	}
}

// TestTreeOfWhatMeansNothing writes a value that holds nulls, and ports that ask to be
// given a number: the manifest has neither.
func TestTreeOfWhatMeansNothing(t *testing.T) {
	f := files{
		"rs.yaml":      "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: rs}\nspec:\n  selector:\n    matchLabels: {a: b}\n  template:\n    metadata:\n      creationTimestamp: null\n      labels: {a: b}\n    spec:\n      nodeSelector: null\n      containers:\n      - {name: c, image: i, command: null}\n",
		"service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n  clusterIP: \"\"\n  ports:\n  - {name: a, port: 80, nodePort: 0}\n  - {name: b, port: 81}\n",
	}
	written(t, f, nil, map[string]api.Object{
		"ReplicaSet default/rs": changedIn(t, f, nil, "ReplicaSet default/rs", func(r *appsv1.ReplicaSet) { r.Spec.Template = corev1.PodTemplateSpec{} }),
		"Service default/s":     changedIn(t, f, nil, "Service default/s", func(s *corev1.Service) { slices.Reverse(s.Spec.Ports) }),
	})
}

// broken is a tree that cannot be read now.
type broken struct{ files }

func (broken) Read(string) ([]byte, error) { return nil, errors.New("disk") }

func TestTreeThatCannotBeReadIsAnError(t *testing.T) {
	f := files{"a.yaml": config}
	all := f.declares(t)
	for _, unit := range []string{"", "."} {
		all[0].Unit = unit
		d := compare(t, all[0], nil)
		if changed, _, err := live.Tree(broken{f}, []*live.Drift{d}); err == nil || errors.Is(err, fs.ErrNotExist) || changed != nil {
			t.Errorf("%v, %v", changed, err)
		}
	}
}
