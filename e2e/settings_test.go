package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"headway.dev/headway/syncer"
)

const settings = "apiVersion: headway.dev/v1\nkind: Config\n"

// report is what headway status says.
func (c *cluster) report() syncer.Report {
	c.t.Helper()
	out, _ := c.headway("status", "-o", "json")
	var r syncer.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	return r
}

// Once the applied commit asks for it, only what somebody has signed who may is
// taken. When all keys are lost, an operator lets one commit pass.
func TestPushesAreSigned(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, name := range []string{"ada", "eve"} {
		if out, err := c.run(c.dir, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", filepath.Join(c.dir, name)); err != nil {
			t.Fatalf("ssh-keygen (scripts/install-deps installs it): %v %s", err, out)
		}
	}
	public := func(name string) string {
		data, err := os.ReadFile(filepath.Join(c.dir, name+".pub"))
		if err != nil {
			t.Fatal(err)
		}
		return name + "@example.org " + string(data)
	}
	signs := func(name string) {
		c.git("config", "gpg.format", "ssh")
		c.git("config", "commit.gpgsign", fmt.Sprint(name != ""))
		c.git("config", "user.signingkey", filepath.Join(c.dir, name))
	}
	refused := func(want ...string) {
		t.Helper()
		out, err := c.push("--force")
		if err == nil {
			t.Fatalf("the push was taken:\n%s", out)
		}
		contains(t, "the refusal", out, want...)
	}
	c.deploy("first", map[string]string{"a.yaml": configs("a", 0, 1)})
	asks, _ := c.deploy("from here on", map[string]string{".headway.yaml": settings + "allowedSigners: {ssh: keys}\n", "keys": public("ada")})

	c.write(map[string]string{"a.yaml": configs("a", 0, 2)})
	unsigned := c.commit("not signed")
	refused("1 commit is not signed by anybody whom the applied commit "+asks[:12]+" allows", "commit "+unsigned, `"not signed" by Ada <ada@example.org>): it is not signed`, "headway sync --allow-unsigned "+unsigned)
	signs("eve")
	c.git("commit", "--quiet", "--amend", "--no-edit", "-S")
	refused("commit " + c.git("rev-parse", "HEAD"))
	signs("ada")
	c.git("commit", "--quiet", "--amend", "--no-edit", "-S")
	signed, printed := c.deploy("signed, too", map[string]string{"a.yaml": configs("a", 0, 3)})
	contains(t, "the push", printed, "2 of 3 objects change")

	// ada's key is lost.
	signs("")
	c.write(map[string]string{"keys": public("eve")})
	way := c.commit("a new key")
	refused("commit " + way)
	if out, err := c.headway("sync", "--allow-unsigned", way); err == nil {
		t.Errorf("allowed without a reason: %s", out)
	}
	out, err := c.headway("sync", "--allow-unsigned", way, "--why", "ada's laptop is lost")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "sync", out, "allowed  commit "+way+", once, although not signed: by admin at ", ": ada's laptop is lost")
	if out, err := c.push(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.healthy(way)
	if r := c.report(); r.Used == nil || r.Used.Commit != way || r.Used.By != "admin" || r.Used.Why != "ada's laptop is lost" || r.Allowed != nil {
		t.Errorf("used %+v, allowed %+v", r.Used, r.Allowed)
	}
	contains(t, "the log", c.out.String(), "commit applied as an operator allowed", "ada's laptop is lost")
	if out, err := c.headway("log", "-n", "1", "--verbose"); err != nil {
		t.Error(err)
	} else {
		contains(t, "the receipt", out, "allowed: {unsigned: true, by: admin, why: \"ada's laptop is lost\", at: ")
	}
	signs("eve")
	last, _ := c.deploy("eve's", map[string]string{"b.yaml": configs("b", 0, 1)})
	if r := c.report(); r.Applied != last || r.Used != nil {
		t.Errorf("applied %s, used %+v", r.Applied, r.Used)
	}

	// Back to a commit in the past, by force.
	c.git("reset", "--quiet", "--hard", signed)
	refused("headway sync --allow-rewind " + signed)
	if out, err := c.headway("sync", "--allow-rewind", signed, "--allow-unsigned", signed, "--why", "back to ada"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := c.push("--force"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.healthy(signed)
	if n := c.configMaps("set=b"); n != 0 {
		t.Errorf("%d ConfigMaps of the commit that was left", n)
	}
}

// While the cluster is paused, commits are judged and wait, and what is changed by
// hand stays.
func TestPause(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first, _ := c.deploy("one", map[string]string{"a.yaml": configs("a", 0, 2)})
	out, err := c.headway("pause", "--for", "2h", "--why", "the database moves")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "pause", out, "The cluster is paused until ", " by admin: the database moves.")
	value := func() string {
		return c.kubectl("get", "configmap", "a-00000", "-o", "jsonpath={.data.value}")
	}
	c.kubectl("patch", "configmap", "a-00000", "--type=merge", "-p", `{"data":{"value":"by hand"}}`)

	c.write(map[string]string{"c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\nnope: 1\n"})
	c.commit("bad")
	if out, err := c.push(); err == nil || !strings.Contains(out, "c.yaml:4:1: nope: unknown field") {
		t.Errorf("a bad commit: %v %s", err, out)
	}
	c.git("reset", "--quiet", "--hard", first)
	c.write(map[string]string{"b.yaml": configs("b", 0, 1)})
	second := c.commit("two")
	printed, err := c.push()
	if err != nil {
		t.Fatal(printed)
	}
	contains(t, "the push", printed, "1 of 3 objects change", "this cluster is paused until ", "by admin: the database moves; the commit is applied then", "accepted: this cluster is paused until")
	eventually(t, "the status to name the commit that waits", func() error {
		if r := c.report(); r.Pause == nil || r.Applied != first || r.Head != second || !strings.Contains(r.Reason, "waits: the cluster is paused until") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	// A look that was asked for, after all the above: still nothing is applied.
	if out, err := c.headway("sync"); err == nil || !strings.Contains(out, "paused   until") {
		t.Errorf("sync: %v %s", err, out)
	}
	if got, n := value(), c.configMaps("set=b"); got != "by hand" || n != 0 {
		t.Errorf("while paused: %q, and %d new objects", got, n)
	}
	// It outlives the process.
	c.end(syscall.SIGKILL)
	c.start()
	c.waitReady()
	if r := c.report(); r.Pause == nil || r.Applied != first || value() != "by hand" {
		t.Errorf("after a start: %+v", r)
	}
	if out, err := c.headway("pause", "--end", "-o", "json"); err != nil || !strings.Contains(out, `"why": "the database moves"`) {
		t.Fatalf("%v: %s", err, out)
	}
	c.healthy(second)
	eventually(t, "what was changed by hand to be put back", func() error {
		if got := value(); got != "0" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	if r := c.report(); r.Pause != nil || r.Applied != second {
		t.Errorf("after the pause: %+v", r)
	}
}
