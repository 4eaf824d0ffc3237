package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// configs are n ConfigMaps in one file.
func configs(prefix string, from, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s-%05d\n  labels: {set: %s}\ndata:\n  value: %q\n", prefix, from+i, prefix, fmt.Sprint(i))
	}
	return b.String()
}

// Pushes of 1, 99, 100 and 10,000 new objects and of 20 MB are taken, applied and
// told of.
func TestPushSizes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, n := range []int{1, 99, 100, 10_000} {
		set := fmt.Sprintf("s%d", n)
		files := map[string]string{}
		for at := 0; at < n; at += 1000 {
			files[fmt.Sprintf("%s/%05d.yaml", set, at)] = configs(set, at, min(1000, n-at))
		}
		_, printed := c.deploy(set, files)
		plan := map[int]string{1: "1 object", 99: "99 objects", 100: "100 objects", 10_000: "10,000 objects"}[n]
		contains(t, "the push of "+set, printed, "plan: "+plan+" to create", "healthy: commit")
		if got := c.configMaps("set=" + set); got != n {
			t.Errorf("%d ConfigMaps of %d", got, n)
		}
	}

	// Files that are no manifests, which cannot be compressed.
	for i := range 20 {
		data := make([]byte, 1<<20)
		rand.Read(data)
		path := filepath.Join(c.work, "assets", fmt.Sprintf("%d.bin", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, printed := c.deploy("assets", map[string]string{"last.yaml": configs("last", 0, 1)})
	contains(t, "the push of 20 MB", printed, "1 object to create", "healthy: commit")

	_, printed = c.deploy("gone\n\nAllow-Delete: 199", map[string]string{
		"s100/00000.yaml": "", "s99/00000.yaml": "",
	})
	contains(t, "the removal", printed, "199 to delete")
	eventually(t, "the ConfigMaps to be gone", func() error {
		if n := c.configMaps("set in (s99,s100)"); n != 0 {
			return fmt.Errorf("%d left", n)
		}
		return nil
	})
	if n := c.configMaps("set=s10000"); n != 10_000 {
		t.Errorf("%d ConfigMaps of 10000 after a removal of others", n)
	}
}

// configMaps counts them, page by page.
func (c *cluster) configMaps(selector string) int {
	c.t.Helper()
	n, next := 0, ""
	for {
		list, err := c.client().CoreV1().ConfigMaps("default").List(context.Background(), metav1.ListOptions{LabelSelector: selector, Limit: 500, Continue: next})
		if err != nil {
			c.t.Fatal(err)
		}
		n += len(list.Items)
		if next = list.Continue; next == "" {
			return n
		}
	}
}

// A client that is killed while it watches the rollout changes nothing.
func TestKilledClientChangesNothing(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.write(map[string]string{"web.yaml": strings.Replace(web("one", 2), "replicas: 2", "replicas: 2\n  minReadySeconds: 3", 1)})
	commit := c.commit("one")

	cmd := exec.Command("git", "-C", c.work, "push", c.remote(), "main")
	cmd.Env = append(os.Environ(), "HOME="+c.dir, "GIT_TERMINAL_PROMPT=0")
	out := &signalled{word: []byte("to create"), seen: make(chan struct{})}
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	select {
	case <-out.seen:
	case err := <-gone:
		t.Fatalf("the push ended early: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; err == nil {
		t.Error("the push was over before it was killed: the test shows nothing")
	}
	c.healthy(commit)
	c.answers("one", 2)
	if got := c.git("ls-remote", c.remote(), "refs/heads/main"); !strings.HasPrefix(got, commit) {
		t.Errorf("main is %s", got)
	}
}

// signalled closes seen when a word has been written.
type signalled struct {
	word []byte
	seen chan struct{}
	buf  bytes.Buffer
	over bool
}

func (s *signalled) Write(p []byte) (int, error) {
	s.buf.Write(p)
	if !s.over && bytes.Contains(s.buf.Bytes(), s.word) {
		s.over = true
		close(s.seen)
	}
	return len(p), nil
}

// History that was pushed cannot be rewritten; the refusal names both commits.
func TestR1_RewoundBranchIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first, _ := c.deploy("one", map[string]string{"a.yaml": configs("a", 0, 1)})
	second, _ := c.deploy("two", map[string]string{"b.yaml": configs("b", 0, 1)})
	c.git("reset", "--quiet", "--hard", first)
	for _, step := range []string{"rewound", "rewritten"} {
		if step == "rewritten" {
			c.write(map[string]string{"c.yaml": configs("c", 0, 1)})
			c.commit("another second")
		}
		out, err := c.push("--force")
		if err == nil {
			t.Fatalf("%s: the push was taken:\n%s", step, out)
		}
		contains(t, "the refusal", out, second, c.git("rev-parse", "HEAD"))
		if got := c.git("ls-remote", c.remote(), "refs/heads/main"); !strings.HasPrefix(got, second) {
			t.Errorf("%s: main is %s", step, got)
		}
		if n := c.configMaps("set in (a,b)"); n != 2 {
			t.Errorf("%s: %d ConfigMaps", step, n)
		}
	}
}
