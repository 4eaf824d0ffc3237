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

// team is a repository of its own, elsewhere, and a working clone of it.
type team struct {
	c    *cluster
	bare string
	work string
}

func newTeam(c *cluster, name string) *team {
	c.t.Helper()
	t := &team{c: c, bare: filepath.Join(c.dir, name+".git"), work: filepath.Join(c.dir, name)}
	for _, args := range [][]string{{"init", "--quiet", "--bare", "--initial-branch=main", t.bare}, {"init", "--quiet", "--initial-branch=main", t.work}} {
		if _, err := c.run("", "git", args...); err != nil {
			c.t.Fatal(err)
		}
	}
	return t
}

// publish makes a commit with these files and no others, and pushes it.
func (t *team) publish(message string, files map[string]string) string {
	t.c.t.Helper()
	git := func(args ...string) string {
		out, err := t.c.run(t.work, "git", args...)
		if err != nil {
			t.c.t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	git("rm", "-r", "-q", "--ignore-unmatch", ".")
	for name, content := range files {
		if err := os.MkdirAll(t.work, 0o755); err != nil {
			t.c.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(t.work, name), []byte(content), 0o644); err != nil {
			t.c.t.Fatal(err)
		}
	}
	git("add", "-A")
	git("commit", "--quiet", "--allow-empty", "-m", message)
	git("push", "--quiet", t.bare, "main")
	return git("rev-parse", "HEAD")
}

func settingsIn(namespace, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  namespace: %s\n  labels: {set: team}\ndata:\n  value: %q\n", namespace, value)
}

// of is what headway status says of one source.
func (c *cluster) of(source string, args ...string) (syncer.Report, error) {
	c.t.Helper()
	out, err := c.headway(append([]string{"status", "--source", source, "-o", "json"}, args...)...)
	var r syncer.Report
	if bad := json.Unmarshal([]byte(out[:strings.LastIndex(out, "}")+1]), &r); bad != nil {
		return r, fmt.Errorf("%v: %s", bad, out)
	}
	return r, err
}

// A team follows its own repository into its own namespace, beside the main source:
// added, applied, healed, refused, across a kill, and removed with and without what it
// made.
func TestFurtherSource(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	team := newTeam(c, "team")
	naming := settings + "sources:\n- name: team\n  repository: " + team.bare + "\n  namespaces: [team]\n  pollInterval: 1s\n"
	main := map[string]string{
		".headway.yaml": naming, "a.yaml": configs("a", 0, 1),
		"space.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n",
	}
	_, printed := c.deploy("follow the team", main)
	contains(t, "the push", printed, "+ create Source team: followed from now on")

	applied := func(commit string) {
		t.Helper()
		eventually(t, "the team's commit to be healthy", func() error {
			r, err := c.of("team")
			if err == nil && (r.Applied != commit || r.State != syncer.Healthy) {
				err = fmt.Errorf("%+v", r)
			}
			return err
		})
	}
	value := func() string {
		return c.kubectl("get", "-n", "team", "configmap", "settings", "-o", "jsonpath={.data.value}")
	}
	one := team.publish("one", map[string]string{"settings.yaml": settingsIn("team", "one")})
	applied(one)
	if got := value(); got != "one" {
		t.Errorf("value %q", got)
	}
	out, err := c.headway("status")
	if err != nil {
		t.Error(err)
	}
	contains(t, "status", out, "SOURCE", "team", one[:10], team.bare)
	if out, err = c.headway("log", "--source", "team"); err != nil {
		t.Error(err)
	}
	contains(t, "the team's log", out, one[:10])

	// What kubectl changes is put back, and told in the team's repository.
	c.kubectl("patch", "-n", "team", "configmap", "settings", "--type=merge", "-p", `{"data":{"value":"hand"}}`)
	eventually(t, "the drift to be told", func() error {
		out, err := c.run(team.bare, "git", "log", "--format=%s", "headway/main.team/live")
		if err == nil && !strings.Contains(out, `drift: ConfigMap team/settings data.value one → hand`) {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	eventually(t, "it to be put back", func() error {
		if got := value(); got != "one" {
			return fmt.Errorf("value %q", got)
		}
		return nil
	})
	if out, err = c.headway("drift", "--source", "team"); err != nil {
		t.Error(err)
	}
	contains(t, "the team's drift", out, "ConfigMap team/settings", "healed")
	eventually(t, "the note", func() error {
		out, err := c.run(team.bare, "git", "notes", "--ref=refs/notes/headway/main.team", "show", one)
		if err == nil && !strings.Contains(out, "source: team\n") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})

	// Its clone can be read from the server, too.
	far := strings.Replace(c.remote(), "/main.git", "/team.git", 1)
	if out, err := c.run(c.dir, "git", "ls-remote", far); err != nil || !strings.Contains(out, "refs/notes/headway/main.team") {
		t.Errorf("%v: %s", err, out)
	}

	// Nothing outside of its namespace.
	bad := team.publish("outside", map[string]string{"settings.yaml": settingsIn("team", "two"), "more.yaml": settingsIn("default", "two")})
	eventually(t, "the commit to be refused", func() error {
		r, _ := c.of("team")
		if r.Refused != bad {
			return fmt.Errorf("%+v", r)
		}
		contains(t, "the refusal", strings.Join(r.Problems, "\n"), "more.yaml:5:3: metadata.namespace: source team may not write to namespace default")
		return nil
	})
	if got := value(); got != "one" {
		t.Errorf("a refused commit changed the value to %q", got)
	}

	// Killed, and the team goes on.
	c.end(syscall.SIGKILL)
	two := team.publish("two", map[string]string{"settings.yaml": settingsIn("team", "two")})
	c.start()
	c.waitReady()
	applied(two)

	// A pause of the team's source is the team's alone.
	if out, err := c.headway("pause", "--source", "team", "--for", "1h", "--why", "a test"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	three := team.publish("three", map[string]string{"settings.yaml": settingsIn("team", "three")})
	eventually(t, "the team's commit to wait", func() error {
		if r, _ := c.of("team"); r.Head != three || r.Pause == nil || r.Applied != two {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	c.deploy("main goes on", map[string]string{"a.yaml": configs("a", 0, 2)})
	if out, err := c.headway("pause", "--source", "team", "--end"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := c.headway("sync", "--source", "team", "--timeout", patience.String()); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	applied(three)

	// Removed without a word, what it made stays and is nobody's.
	_, printed = c.deploy("no team", map[string]string{".headway.yaml": settings})
	contains(t, "the push", printed, "- delete Source team: followed no longer; what it declared (1 object) stays and is nobody's", "Allow-Delete: Source/team")
	if got := value(); got != "three" {
		t.Errorf("value %q", got)
	}
	if source := c.kubectl("get", "-n", "team", "configmap", "settings", "-o", `jsonpath={.metadata.annotations}`); strings.Contains(source, "headway.dev/") {
		t.Errorf("it is declared still: %s", source)
	}
	if out, err := c.headway("status", "--source", "team"); err == nil || !strings.Contains(out, `no source "team" is followed`) {
		t.Errorf("%v: %s", err, out)
	}

	// And with one, it goes.
	c.deploy("the team again", map[string]string{".headway.yaml": naming})
	applied(three)
	c.write(map[string]string{".headway.yaml": settings})
	last := c.commit("no team\n\nAllow-Delete: Source/team")
	if out, err := c.push(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.healthy(last)
	if out := c.kubectl("get", "-n", "team", "configmap", "-l", "set=team", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Errorf("it is there still: %s", out)
	}
}
