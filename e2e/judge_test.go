package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// plan runs headway plan and returns its exit status.
func (c *cluster) plan(args ...string) (string, int) {
	c.t.Helper()
	out, err := c.headway(append([]string{"plan"}, args...)...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, 0
	case errors.As(err, &exit):
		return out, exit.ExitCode()
	}
	c.t.Fatal(err)
	return "", 0
}

// A commit is judged before it lands: a dry run and a plan say what it would
// change; what would break or destroy too much is refused by name, and let through
// by a trailer.
func TestJudging(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.addProbe()
	c.start()
	c.waitReady()
	many := configs("many", 0, 12)
	c.deploy("first", map[string]string{"web.yaml": web("one", 2), "many.yaml": many})
	uid := get[appsv1.Deployment](c, "deployment", "web").UID
	refused := func(what string, words ...string) {
		t.Helper()
		out, err := c.push()
		if err == nil {
			t.Fatalf("%s was accepted:\n%s", what, out)
		}
		contains(t, what, out, append(words, "refused, nothing changed")...)
	}
	amend := func(message string) {
		t.Helper()
		c.git("commit", "--quiet", "--amend", "-m", message)
	}

	// What would change, without a push: of the work tree, of the dry run, of a branch.
	const change = "~ update Deployment default/web (web.yaml:1): spec.replicas 2 → 3"
	if out, code := c.plan(); code != 0 || !strings.Contains(out, "0 of 13 objects change") {
		t.Errorf("plan of the newest commit: %d\n%s", code, out)
	}
	c.write(map[string]string{"web.yaml": web("one", 3)})
	if out, code := c.plan(c.work); code != 2 || !strings.Contains(out, change) || !strings.Contains(out, "1 of 13 objects change") {
		t.Errorf("plan of the work tree: %d\n%s", code, out)
	}
	commit := c.commit("more")
	out, err := c.push("-o", "dry-run")
	if err == nil {
		t.Error("a dry run was accepted")
	}
	contains(t, "the dry run", out, change, "1 of 13 objects change", "dry run: nothing changed")
	if out, err := c.push("-o", "dryrun"); err == nil || !strings.Contains(out, "unknown push option") {
		t.Errorf("an unknown option: %v\n%s", err, out)
	}
	c.git("push", "--quiet", c.remote(), "main:feature")
	out, code := c.plan("feature", "-o", "json")
	var preview struct {
		Commit  string
		OK      bool
		Update  int
		Changes []struct{ Verb, Kind, Name string }
	}
	if err := json.Unmarshal([]byte(out), &preview); err != nil || code != 2 || preview.Commit != commit || !preview.OK || preview.Update != 1 || len(preview.Changes) != 1 || preview.Changes[0].Name != "web" {
		t.Errorf("plan of a branch: %d %v\n%s", code, err, out)
	}
	if n := *get[appsv1.Deployment](c, "deployment", "web").Spec.Replicas; n != 2 {
		t.Errorf("something was changed: %d replicas", n)
	}
	printed, err := c.push()
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	contains(t, "the push", printed, change, "1 of 13 objects change", "healthy")

	// A Secret that is nowhere.
	broken := web("one", 3) + "            - name: PASSWORD\n              valueFrom:\n                secretKeyRef: {name: db, key: password}\n"
	c.write(map[string]string{"web.yaml": broken})
	if out, code := c.plan(c.work); code != 1 || !strings.Contains(out, "web.yaml:24:32: spec.template.spec.containers[0].env[1].valueFrom.secretKeyRef.name: Secret default/db is neither in this commit nor in the cluster") {
		t.Errorf("plan of a missing Secret: %d\n%s", code, out)
	}
	c.commit("password")
	refused("a missing Secret", "Secret default/db is neither in this commit nor in the cluster: declare it")
	c.kubectl("create", "secret", "generic", "db", "--from-literal=user=x")
	refused("a missing key", `Secret default/db has no key "password"`)
	c.git("reset", "--quiet", "--hard", commit)

	// Too many deletions, then with the trailer that the refusal names.
	c.write(map[string]string{"many.yaml": ""})
	c.commit("gone")
	words := []string{"Allow-Delete: 12"}
	for i := range 12 {
		words = append(words, fmt.Sprintf("ConfigMap default/many-%05d would be deleted", i))
	}
	refused("a mass deletion", words...)
	amend("gone\n\nAllow-Delete: 12")
	if out, err := c.push(); err != nil || !strings.Contains(out, "12 of 13 objects change") {
		t.Fatalf("%v\n%s", err, out)
	}

	// What cannot be changed in place, then with its trailer.
	c.write(map[string]string{"web.yaml": strings.ReplaceAll(web("one", 1), "{app: web}", "{app: other}")})
	c.commit("another selector")
	refused("an immutable field", "web.yaml:7:3: spec.selector", "field is immutable", "Replace: Deployment/default/web")
	amend("another selector\n\nReplace: Deployment/default/web")
	if out, err := c.push(); err != nil || !strings.Contains(out, "± replace Deployment default/web (web.yaml:1)") {
		t.Fatalf("%v\n%s", err, out)
	}
	d := get[appsv1.Deployment](c, "deployment", "web")
	if d.UID == uid || d.Spec.Selector.MatchLabels["app"] != "other" {
		t.Errorf("not replaced: %+v", d)
	}

	// No room.
	large := strings.ReplaceAll(web("one", 2), "{app: web}", "{app: other}") + "          resources: {requests: {cpu: \"1000\"}}\n"
	c.write(map[string]string{"web.yaml": large})
	if out, code := c.plan(c.work); code != 2 || !strings.Contains(out, "warning: web.yaml:1:1: Deployment default/web: its pods could run on no node even if it were empty: 0/1 nodes are available: 1 Insufficient cpu.") {
		t.Errorf("plan of a commit that has no room: %d\n%s", code, out)
	}
}
