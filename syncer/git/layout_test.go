package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The hooks work wherever the keeper lies.
func TestHookScript(t *testing.T) {
	keeper, err := keeperPath()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "it's a path", strings.Repeat("long", 40)} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		there := filepath.Join(dir, "headway-keeper")
		if err := os.Link(keeper, there); err != nil {
			t.Fatal(err)
		}
		h := startHost(t, func(c *Config) {
			c.Keeper = there
			c.Dir = filepath.Join(dir, "main.git")
		})
		w := newWork(t)
		commit := w.commit("a", name)
		w.git("push", h.url, "main")
		if got := h.refs.get("refs/heads/main"); got != commit {
			t.Errorf("%s: the key is at %q", name, got)
		}
		h.stop()
	}
}
