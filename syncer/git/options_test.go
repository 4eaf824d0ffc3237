package git

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestPushOptions(t *testing.T) {
	var problems []string
	var seen []string
	h := startHost(t, func(c *Config) {
		c.Judge = func(_ context.Context, p Push, progress io.Writer) ([]string, error) {
			seen = append(seen, fmt.Sprint(p.Ref, " ", p.Options, " ", p.DryRun()))
			fmt.Fprintln(progress, "create Deployment default/web")
			return problems, nil
		}
		c.Follow = func(context.Context, string, io.Writer) error { t.Error("followed a dry run"); return nil }
	})
	before := snapshot(t, h.config.Dir)
	w := newWork(t)
	w.commit("a", "1")
	shows := func(want []string, args ...string) {
		t.Helper()
		out, err := w.try(append([]string{"push"}, args...)...)
		if err == nil {
			t.Errorf("accepted:\n%s", out)
		}
		for _, s := range want {
			if !strings.Contains(out, s) {
				t.Errorf("the push does not show %q:\n%s", s, out)
			}
		}
	}
	shows([]string{"remote: create Deployment default/web", "remote: headway: dry run: nothing changed  "}, "-o", "dry-run", h.url, "main", "main:other")
	shows([]string{"dry run: nothing changed"}, "-o", "dry-run", h.url, "main:other")
	problems = []string{"a.yaml:1: kind: unknown"}
	shows([]string{"a.yaml:1: kind: unknown", "dry run: nothing changed, and a push would be refused: 1 problem"}, "-o", "dry-run", "-o", "dry-run", h.url, "main")
	if want := []string{"refs/heads/main [dry-run] true", "refs/heads/main [dry-run dry-run] true"}; !slices.Equal(seen, want) {
		t.Errorf("judged %q", seen)
	}
	shows([]string{`unknown push option "dryrun"; known is: dry-run`}, "-o", "dryrun", h.url, "main")
	shows([]string{`unknown push option "ci.skip"`}, "-o", "dry-run", "-o", "ci.skip", h.url, "main")
	shows([]string{"a push option of 1001 bytes"}, "-o", strings.Repeat("x", 1001), h.url, "main")
	var many []string
	for range maxOptions + 1 {
		many = append(many, "-o", "dry-run")
	}
	shows([]string{"21 push options, at most 20"}, append(many, h.url, "main")...)
	if len(seen) != 2 {
		t.Errorf("judged %q", seen)
	}
	if after := snapshot(t, h.config.Dir); after != before {
		t.Errorf("the repository changed:\n%s", after)
	}
	if len(h.refs.keys) != 0 {
		t.Errorf("keys: %v", h.refs.keys)
	}
}

func TestHelloOfAnotherVersion(t *testing.T) {
	for _, hi := range []string{`{"hook":"pre-receive","push":"x"}`, `{"version":3}`} {
		var frame bytes.Buffer
		if err := writeFrame(&frame, frameHello, []byte(hi)); err != nil {
			t.Fatal(err)
		}
		if _, err := readHello(&frame); err == nil || !strings.Contains(err.Error(), "the server version 2") {
			t.Errorf("%s: %v", hi, err)
		}
	}
}
