package syncer

import (
	"slices"
	"strings"
	"testing"
)

// TestR3_AFileThatIsNoManifestAnyMoreDeletesNothing: neither of a push, nor on a
// forge, where nothing but the syncer can refuse it.
func TestR3_AFileThatIsNoManifestAnyMoreDeletesNothing(t *testing.T) {
	r := newRemote(t)
	first := r.commit("ada", map[string]string{
		"deploy/a.yaml": configMap("a", "1"), "deploy/two.yaml": configMap("b", "1") + "---\n" + configMap("c", "1"),
		"deploy/d.json":                  `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}}`,
		"deploy/dir/e.yaml":              configMap("e", "1"),
		"deploy/unit/kustomization.yaml": "resources: [f.yaml, g.yaml]\n",
		"deploy/unit/f.yaml":             configMap("f", "1"),
		"deploy/unit/g.yaml":             configMap("g", "1"),
		"deploy/values.yaml":             "never: a manifest\n",
		"deploy/h.yaml":                  configMap("h", "1"),
		"deploy/i.yaml":                  configMap("i", "1"),
	})
	w := forged(t, r)
	w.settle()
	if st := w.status(); st.Applied != first || st.Objects != 9 {
		t.Fatalf("status %+v", st)
	}
	const mend = ": mend it, or delete it if what it declared is to go"
	bad := r.commit("bob", map[string]string{
		"deploy/a.yaml":                 "{not yaml",
		"deploy/two.yaml":               "# all of it commented out\n",
		"deploy/d.json":                 "{broken",
		"deploy/dir/kustomization.yaml": "resources: [other.yaml]\n", "deploy/dir/other.yaml": configMap("o", "1"),
		"deploy/unit/kustomization.yaml": "resources: [g.yaml]\n", // this is meant
		"deploy/h.yaml":                  "",                      // and so is this
	})
	w.poll()
	st := w.status()
	want := []string{
		"deploy/a.yaml:1: cannot be read: did not find expected ',' or '}': mend it, or leave the file out with an ignore pattern",
		"deploy/d.json: the applied commit declares ConfigMap default/d here, and now the file is no manifest: it cannot be read, and no line has an apiVersion or a kind" + mend,
		"deploy/dir/e.yaml: the applied commit declares ConfigMap default/e here, and now the file is not named by the kustomization of the folder deploy/dir, so it is no manifest" + mend,
		"deploy/two.yaml: the applied commit declares ConfigMap default/b and 1 object more here, and now the file is no manifest: no document has an apiVersion or a kind" + mend,
	}
	if st.Applied != first || st.Refused != bad || !slices.Equal(st.Problems, want) {
		t.Fatalf("status %+v\nproblems\n%s", st, strings.Join(st.Problems, "\n"))
	}
	if problems, _ := judgePushed(t, w, r, bad); problems != strings.Join(want, "\n") {
		t.Errorf("a push of it: %q", problems)
	}
	// Mended, with what was meant.
	good := r.commit("bob", map[string]string{
		"deploy/a.yaml": configMap("a", "1"), "deploy/two.yaml": configMap("b", "1"), "deploy/d.json": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}}`,
		"deploy/dir/kustomization.yaml": "resources: [other.yaml, e.yaml]\n",
	})
	w.poll()
	if st := w.status(); st.Applied != good || w.get("configmaps", "default", "f") != nil || w.get("configmaps", "default", "h") != nil || w.get("configmaps", "default", "c") != nil || w.get("configmaps", "default", "e") == nil {
		t.Fatalf("status %+v", st)
	}
	// Whoever says so may leave the file.
	last := r.message("x\n\nAllow-Delete: ConfigMap/default/i\n", map[string]string{"deploy/i.yaml": "# gone\n"})
	w.poll()
	if st := w.status(); st.Applied != last || w.get("configmaps", "default", "i") != nil {
		t.Errorf("status %+v", st)
	}
}
