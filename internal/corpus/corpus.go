// Package corpus finds the folder of real manifests for tests. The folder is not part
// of this repository: its README says what is in it.
package corpus

import (
	"os"
	"path/filepath"
	"testing"
)

// Dir is the folder: $HEADWAY_CORPUS, or ../shared/corpus beside the repository. Where
// there is none the test is skipped, and fails in CI.
func Dir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("HEADWAY_CORPUS")
	if dir == "" {
		dir = filepath.Join(root(t), "../shared/corpus")
	}
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the corpus is missing: %v", err)
		}
		t.Skipf("the corpus is not here, set HEADWAY_CORPUS: %v", err)
	}
	return dir
}

// root is the repository's root: a test runs in the folder of its package.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test's folder")
	return ""
}
