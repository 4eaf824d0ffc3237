package syncer

import (
	"encoding/json"
	"strings"
	"testing"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
)

// shownOf is what a record of this live object shows.
func shownOf(t *testing.T, m *api.Manifest, obj api.Object) Shown {
	t.Helper()
	s := Shown{Manifest: m}
	if raw := liveObject(m, obj); raw != nil {
		if err := json.Unmarshal(raw, &s.Live); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// liveFiles gives the files of the live ref for one commit with these files, and
// what cannot be written.
func liveFiles(t *testing.T, files map[string]string, shown ...Shown) (changed map[string]string, unwritten []api.Problem) {
	t.Helper()
	r := newRemote(t)
	commit := r.commit("ada", files)
	forge := openForge(t, r)
	if _, err := forge.Fetch(t.Context(), "refs/heads/main", 0); err != nil {
		t.Fatal(err)
	}
	c := &Checkout{Objects: forge.Repository, Unwritten: func(p []api.Problem) { unwritten = append(unwritten, p...) }}
	edits, err := c.LiveEdits(t.Context(), commit, shown)
	if err != nil {
		t.Fatal(err)
	}
	changed = map[string]string{}
	for _, e := range edits {
		changed[e.Path] = string(e.Content)
	}
	return changed, unwritten
}

// TestR14_DriftOfASecretReachesTheLiveRef: of its values and annotations, only that
// they differ.
func TestR14_DriftOfASecretReachesTheLiveRef(t *testing.T) {
	text := `apiVersion: v1
kind: Secret
metadata:
  name: s
  labels: {app: web, gone: x, kept: "1"}
  annotations:
    note: declared-note
    other: declared-other
type: Opaque
immutable: false
stringData:
  k: declared-value
`
	m := manifests(t, "s.yaml", text)[0]
	secret := born(m).(*corev1.Secret)
	yes := true
	secret.Labels = map[string]string{"app": "db", "kept": "1", "undeclared": "live-label"}
	secret.Annotations = map[string]string{"note": "live-note", "other": "declared-other", "undeclared": "live-annotation"}
	secret.Type, secret.Immutable = "example.org/other", &yes
	secret.Data["k"] = []byte("live-value")
	shown := shownOf(t, m, secret)
	changed, unwritten := liveFiles(t, map[string]string{"s.yaml": text}, shown)
	want := `apiVersion: v1
kind: Secret
metadata:
  name: s
  labels: {app: db, kept: "1"}
  annotations:
    note: "<differs>" # differs; the values of Secrets are not written
    other: declared-other
type: example.org/other
immutable: true
stringData:
  k: "<differs>" # differs; the values of Secrets are not written
`
	if len(unwritten) > 0 || changed["s.yaml"] != want {
		t.Errorf("%v, got\n%s", unwritten, changed["s.yaml"])
	}
	raw, err := json.Marshal(shown.Live)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"live-value", "live-note", "live-label", "live-annotation", "declared-note", "declared-value", "bGl2ZS12YWx1ZQ"} {
		if strings.Contains(string(raw), v) {
			t.Errorf("the record holds %s: %s", v, raw)
		}
	}
	// In sync, nothing of it is drift; nor is it in a record of an earlier version.
	for _, live := range []map[string]any{shownOf(t, m, born(m)).Live, {"data": map[string]any{"k": "same"}}} {
		if changed, unwritten := liveFiles(t, map[string]string{"s.yaml": text}, Shown{Manifest: m, Live: live}); len(changed)+len(unwritten) > 0 {
			t.Errorf("%v: %v %v", live, changed, unwritten)
		}
	}
}

func TestWhatIsTooLargeForTheLiveRefIsSaid(t *testing.T) {
	files := map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")}
	large := manifests(t, "a.yaml", files["a.yaml"])[0]
	small := manifests(t, "b.yaml", files["b.yaml"])[0]
	a, b := born(large).(*corev1.ConfigMap), born(small).(*corev1.ConfigMap)
	a.Data["k"], b.Data["k"] = strings.Repeat("x", api.MaxDriftLive), "2"
	changed, unwritten := liveFiles(t, files, shownOf(t, large, a), shownOf(t, small, b))
	if len(unwritten) != 1 || unwritten[0].String() != "a.yaml:1:1: the live values of ConfigMap default/a cannot be written: the live object has more than 262,144 bytes" {
		t.Errorf("unwritten %v", unwritten)
	}
	if len(changed) != 1 || !strings.Contains(changed["b.yaml"], `"2"`) {
		t.Errorf("files %v", changed)
	}
	if changed, unwritten := liveFiles(t, files, shownOf(t, large, a)); len(changed) > 0 || len(unwritten) != 1 {
		t.Errorf("alone: %v %v", changed, unwritten)
	}
}
