package git

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	first := w.commit("a", "1")
	w.git("tag", "-a", "-m", "x", "v1")
	w.git("branch", "team/a")
	second := w.commit("a", "2")
	r := bareOf(t, w)
	for name, want := range map[string]string{
		first: first, first[:7]: first, second[:12]: second, "main": second, "refs/heads/main": second, "team/a": first, "v1": first, "refs/tags/v1": first,
		"main~1": first, "main^": first, second[:7] + "~": first, "main~0": second, "v1^0": first, "refs/heads/main^1": first,
	} {
		if got, err := r.Find(ctx, name); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"", first[:6], "none", "HEAD", "main~2", "main^2", "~1", "main~x", "main^{tree}", "main^{/2}", "main@{1}", "main~1\n", "main" + strings.Repeat("^0", 60), "main:a", "main..v1", "-x", "a\nb", "1234567", "0000000000000000000000000000000000000000"} {
		if got, err := r.Find(ctx, name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %s %v", name, got, err)
		}
	}
}
