package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// there runs git on the forge's repository.
func (f *forge) there(c *cluster, args ...string) (string, error) {
	out, err := c.run(f.bare, "git", args...)
	return strings.TrimSpace(out), err
}

// The live ref and the notes are pushed to the forge under the cluster's name, and a
// cluster whose data dir was lost goes on from there.
func TestLiveRefIsPushedToTheForge(t *testing.T) {
	t.Parallel()
	const live = "refs/heads/headway/shop/live"
	c := prepareCluster(t)
	f := newForge(t, c.dir)
	netrc := filepath.Join(c.dir, "netrc")
	if err := os.WriteFile(netrc, []byte("machine 127.0.0.1 login git password forge-token-one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.args = append(c.args, "--repo", f.url, "--netrc", netrc, "--poll", "1s", "--cluster-name", "shop")
	c.write(map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: \"0\"}\n"})
	commit := c.commit("one")
	c.git("push", "--quiet", f.bare, "main")
	c.start()
	c.waitReady()
	c.healthy(commit)

	// inSync waits until the forge's live ref has told a line and has the commit's tree.
	inSync := func(line string) (tip string) {
		t.Helper()
		eventually(t, "the forge's live ref to tell "+line, func() error {
			log, err := f.there(c, "log", "--first-parent", "--format=%an|%s", live)
			if err != nil {
				return err
			}
			if !slices.Contains(strings.Split(log, "\n"), line) {
				return fmt.Errorf("it is\n%s", log)
			}
			diff, err := f.there(c, "diff", commit, live)
			if err == nil && diff != "" {
				err = fmt.Errorf("it differs:\n%s", diff)
			}
			if err == nil {
				tip, err = f.there(c, "rev-parse", live)
			}
			return err
		})
		return tip
	}
	drift := func(value string) string {
		t.Helper()
		c.kubectl("patch", "configmap", "a", "-p", `{"data":{"k":"`+value+`"}}`)
		return inSync("admin|drift: ConfigMap default/a data.k 0 → " + value + " [skip ci]")
	}
	inSync("Headway|applied: " + commit[:12] + " [skip ci]")
	drift("1")
	eventually(t, "the note at the forge", func() error {
		out, err := f.there(c, "notes", "--ref=headway/shop", "show", commit)
		if err == nil && !strings.Contains(out, commit) {
			err = fmt.Errorf("it says\n%s", out)
		}
		return err
	})
	if refs, err := f.there(c, "for-each-ref", "--format=%(refname)"); err != nil || strings.Contains(refs, "headway/main") {
		t.Errorf("the refs at the forge are %v\n%s", err, refs)
	}

	c.end(syscall.SIGTERM)
	tip, err := f.there(c, "rev-parse", live)
	if err != nil {
		t.Fatal(err)
	}
	// The data dir keeps the name.
	other := slices.Clone(c.args)
	other[slices.Index(other, "shop")] = "store"
	if out, err := c.run("", host.headway, other...); err == nil || !strings.Contains(out, "is the data dir of the cluster shop") {
		t.Errorf("another name: %v\n%s", err, out)
	}

	c.sweep() // the data dir is lost
	if _, err := os.Stat(c.data()); !os.IsNotExist(err) {
		t.Fatalf("the data dir: %v", err)
	}
	c.start()
	c.waitReady()
	c.healthy(commit)
	next := drift("2")
	if out, err := f.there(c, "merge-base", "--is-ancestor", tip, next); err != nil || next == tip {
		t.Errorf("the live ref went on at %s and not from %s: %v %s", next, tip, err, out)
	}
	inSync("admin|drift: ConfigMap default/a data.k 0 → 1 [skip ci]") // what was told before the loss
	out, err := c.headway("status")
	if err != nil || strings.Contains(out, "do not reach") {
		t.Errorf("status: %v\n%s", err, out)
	}
	if strings.Contains(c.out.String(), "forge-token") {
		t.Error("a token is in the log")
	}
}
