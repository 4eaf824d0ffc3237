package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headway.dev/headway/api"
)

const root = "../.."

// realUsage is the corpus' count, which is not part of the repository.
func realUsage(t *testing.T) usage {
	t.Helper()
	u, err := readUsage(corpus(root))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		t.Skipf("the corpus is not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestR12_RealPodFieldsAreInTheTable: every field that real repositories use has
// a verdict, their mistakes as well.
func TestR12_RealPodFieldsAreInTheTable(t *testing.T) {
	u := realUsage(t)
	known := map[string]api.Verdict{}
	for _, f := range api.PodFields() {
		known[f.Path] = f.Rule.Verdict
	}
	if len(u.PodFields) < 300 {
		t.Errorf("only %d fields", len(u.PodFields))
	}
	for _, path := range u.PodFields {
		if known[path] == "" {
			t.Errorf("%s has no verdict", path)
		}
	}
}

// TestR12_Share says how much of real repositories runs, and that the document
// says the same.
func TestR12_Share(t *testing.T) {
	s := shareOf(realUsage(t))
	t.Logf("pod fields: %d of %d directories, %s", s.PodFields, s.Directories, percent(s.PodFields, s.Directories))
	t.Logf("kinds as well: %d of %d directories, %s", s.Complete, s.Directories, percent(s.Complete, s.Directories))
	t.Logf("kinds alone: %d of %d directories, %s; with allowStored %d, %s", s.Kinds, s.Directories, percent(s.Kinds, s.Directories), s.Allowed, percent(s.Allowed, s.Directories))
	var written share
	data, err := os.ReadFile(filepath.Join(root, shareFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &written); err != nil {
		t.Fatal(err)
	}
	if written != s {
		t.Errorf("%s says %+v, the table gives %+v: run scripts/generate", shareFile, written, s)
	}
	if s.Complete == 0 || s.Complete > s.PodFields || s.PodFields > s.Directories || s.Complete > s.Kinds || s.Kinds > s.Allowed || s.Allowed > s.Directories {
		t.Errorf("impossible numbers: %+v", s)
	}
}

func TestShareOf(t *testing.T) {
	var u usage
	if err := json.Unmarshal([]byte(`{
		"pod_fields": ["spec.containers[].image", "spec.runtimeClassName", "spec.nonsense", "spec.containers[].ports[].name"],
		"workload_dirs": [
			{"kinds": ["Deployment", "ServiceAccount"], "pod_fields": [0, 3]},
			{"kinds": ["Deployment", "PodTemplate"], "pod_fields": [0]},
			{"kinds": ["Pod", "Certificate (CRD cert-manager.io)"], "pod_fields": [0]},
			{"kinds": ["Pod", "ClusterRole"], "pod_fields": [0, 1]},
			{"kinds": ["Deployment", "Ingress", "Role", "RuntimeClass"], "pod_fields": [0]},
			{"kinds": ["Pod", "TokenReview"], "pod_fields": [0]},
			{"kinds": ["Pod", "Nonsense"], "pod_fields": [0]},
			{"kinds": ["Pod"], "pod_fields": [2]}]}`), &u); err != nil {
		t.Fatal(err)
	}
	if got, want := shareOf(u), (share{Directories: 8, PodFields: 6, Complete: 1, Kinds: 3, Allowed: 6}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestDocumentIsUpToDate needs no corpus: the document is made from what is in the
// repository.
func TestDocumentIsUpToDate(t *testing.T) {
	want, err := document(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, documentFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is out of date: run scripts/generate", documentFile)
	}
	for _, text := range []string{"| apps/v1 | Deployment | acted | | |", "| apps/v1 | StatefulSet | acted | | |", "| networking.k8s.io/v1 | Ingress | stored | needed | requests are not routed by their host and path", "| node.k8s.io/v1 | RuntimeClass | refused | needed |", "| IngressClass | `spec` |", "| `spec.runtimeClassName` | refused | every container runs in runc", "`spec.template.spec` | acted | a pod's fields have a list of their own"} {
		if !strings.Contains(strings.ReplaceAll(strings.ReplaceAll(string(want), "|  |", "| |"), "|  |", "| |"), text) {
			t.Errorf("the document does not say %q", text)
		}
	}
}

// Without the corpus the document is generated the same, from the numbers kept.
func TestGenerateWithoutTheCorpus(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join(root, shareFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, shareFile), kept, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := generate(dir, filepath.Join(dir, "nowhere")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, documentFile))
	if err != nil {
		t.Fatal(err)
	}
	want, err := document(root)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("another document without the corpus: %v", err)
	}
}
