package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reports writes each text to a file and gives the paths.
func reports(t *testing.T, texts ...string) []string {
	t.Helper()
	var paths []string
	for i, text := range texts {
		path := filepath.Join(t.TempDir(), string(rune('a'+i))+".json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func TestTable(t *testing.T) {
	first := `[{"SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "run", "State": "passed"},
		{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "stop", "State": "timedout", "Failure": {"Message": "a | b\n  c"}},
		{"ContainerHierarchyTexts": ["[sig-apps] Job"], "LeafNodeType": "It", "LeafNodeText": "two nodes", "State": "skipped", "Failure": {"Message": "needs 2"}},
		{"ContainerHierarchyTexts": ["[sig-apps] Job"], "LeafNodeType": "It", "LeafNodeText": "filtered", "State": "skipped"},
		{"ContainerHierarchyTexts": ["[sig-apps] Job"], "LeafNodeType": "It", "LeafNodeText": "again", "State": "failed"}]}]`
	second := `[{"SpecReports": [
		{"ContainerHierarchyTexts": ["[sig-apps] Job"], "LeafNodeType": "It", "LeafNodeText": "again", "State": "passed"}]}]`
	var out strings.Builder
	if err := table(&out, reports(t, first, second)); err != nil {
		t.Fatal(err)
	}
	want := `| group | passed | failed | not run |
|---|---|---|---|
| sig-apps | 1 | 0 | 1 |
| sig-node | 1 | 1 | 0 |

| spec | result | why |
|---|---|---|
| [sig-apps] Job two nodes | not run | needs 2 |
| [sig-node] Pods stop | failed | timedout: a \| b c |
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTableOfNothing(t *testing.T) {
	for name, text := range map[string]string{"no spec": `[{"SpecReports": []}]`, "no report": "Running Suite"} {
		if err := table(&strings.Builder{}, reports(t, text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
