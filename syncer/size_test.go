package syncer

import (
	"fmt"
	"strings"
	"testing"
)

// TestR2_AnObjectTooLargeForTheStore declares a ConfigMap that Kubernetes' validation
// finds good, for its values are small, and that no store takes for its keys.
func TestR2_AnObjectTooLargeForTheStore(t *testing.T) {
	w := newWorld(t)
	c1 := w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")})
	w.push(c1)
	b := w.get("configmaps", "default", "b").GetResourceVersion()
	keys := func(name string, n int) string {
		var b strings.Builder
		fmt.Fprintf(&b, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata:\n", name)
		for i := range n {
			fmt.Fprintf(&b, "  key-%s-%d: v\n", strings.Repeat("x", 200), i)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		file, text string
		want       string
	}{
		"made":    {"wide.yaml", keys("wide", 8000), "wide.yaml:1:1: the object has 1,"},
		"changed": {"a.yaml", keys("a", 8000), "a.yaml:1:1: the object has 1,"},
		"fits":    {"wide.yaml", keys("wide", 6000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "2"), c.file: c.text}
			commit := w.repo.add("c2-"+name, c1, files)
			v, err := w.s.Judge(t.Context(), Candidate{Commit: commit})
			if err != nil {
				t.Fatal(err)
			}
			if said := strings.Join(v.Lines(), "\n"); v.OK() != (c.want == "") || !strings.HasPrefix(said, c.want) {
				t.Errorf("got %q, want %q", said, c.want)
			}
			if v.OK() {
				return
			}
			w.push(commit)
			if st := w.status(); st.Applied != c1 || w.get("configmaps", "default", "b").GetResourceVersion() != b {
				t.Errorf("something changed: %+v", st)
			}
		})
	}
}
