package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const liveBranch = "refs/remotes/hosted/headway/main/live"

// fetchLive fetches the live ref of the hosted repository and returns its log from
// the oldest on: "author|subject" each.
func (c *cluster) fetchLive() ([]string, error) {
	if _, err := c.tryGit("fetch", "--quiet", c.remote(), "+refs/heads/headway/main/live:"+liveBranch); err != nil {
		return nil, err
	}
	out, err := c.tryGit("log", "--first-parent", "--reverse", "--format=%an|%s", liveBranch)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines, nil
}

// liveTells waits until the live ref has told this, and returns the commit.
func (c *cluster) liveTells(line string) string {
	c.t.Helper()
	var at string
	eventually(c.t, "the live ref to tell "+line, func() error {
		lines, err := c.fetchLive()
		if err != nil {
			return err
		}
		for i, l := range lines {
			if l == line {
				at = c.git("rev-list", "--first-parent", "--reverse", liveBranch)
				at = strings.Split(at, "\n")[i]
				return nil
			}
		}
		return fmt.Errorf("it is\n%s", strings.Join(lines, "\n"))
	})
	return at
}

// inSync waits until the live ref has the tree of a commit.
func (c *cluster) inSync(commit string) {
	c.t.Helper()
	eventually(c.t, "the live ref to have the tree of "+commit, func() error {
		if _, err := c.fetchLive(); err != nil {
			return err
		}
		if diff, err := c.tryGit("diff", commit, liveBranch); err != nil || diff != "" {
			return fmt.Errorf("%v %s", err, diff)
		}
		if out := c.git("log", "-1", "--format=%(trailers:key=Headway-Commit,valueonly)", liveBranch); strings.TrimSpace(out) != commit {
			return fmt.Errorf("it names commit %s", out)
		}
		return nil
	})
}

// What kubectl changes is put back, and told: in the live ref, with who did it and
// only the bytes that differ, and by the commands.
func TestDriftIsHealedAndTold(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.addProbe()
	c.start()
	c.waitReady()
	text := "# the team's page\n" + web("one", 2) + "# the end\n"
	first, _ := c.deploy("web", map[string]string{"web.yaml": text, "notes.txt": "not a manifest\n"})
	c.inSync(first)

	c.kubectl("scale", "deployment/web", "--replicas=3")
	at := c.liveTells("admin|drift: Deployment default/web spec.replicas 2 → 3")
	diff := c.git("diff", "-U0", first, at)
	contains(t, "the diff", diff, "\n-  replicas: 2\n+  replicas: 3")
	if n := strings.Count(diff, "\n+") + strings.Count(diff, "\n-"); n != 4 { // with the two headers
		t.Errorf("the diff is more than the drift:\n%s", diff)
	}
	message := c.git("log", "-1", "--format=%an <%ae>%n%B", at)
	contains(t, "the commit", message, "admin <admin@headway>", "Deployment default/web, declared in web.yaml:2",
		"Headway-Commit: "+first, "Headway-Event: drift", "Headway-Actor: admin (kubectl", "Headway-Object: Deployment default/web")
	c.liveTells("Headway|healed: Deployment default/web")
	c.inSync(first)
	if d := get[appsv1.Deployment](c, "deployment", "web"); *d.Spec.Replicas != 2 {
		t.Errorf("%d replicas", *d.Spec.Replicas)
	}
	out, err := c.headway("drift")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "headway drift", out, "Every declared object is as commit "+first[:10]+" says", "Deployment default/web", "web.yaml:2", "spec.replicas 2 → 3", "admin (kubectl", "healed")

	c.kubectl("delete", "deployment/web")
	c.liveTells("admin|drift: Deployment default/web deleted")
	eventually(t, "the deployment to be made again", func() error {
		_, err := c.tryKubectl("get", "deployment", "web")
		return err
	})
	c.inSync(first)
	events := c.kubectl("get", "events", "--field-selector", "reason=Drift")
	contains(t, "the events", events, "admin (kubectl", "spec.replicas 2 → 3; put back as web.yaml says", "deleted it")

	// Each line knows its commit.
	second, _ := c.deploy("more", map[string]string{"web.yaml": strings.Replace(text, "replicas: 2", "replicas: 1", 1)})
	c.inSync(second)
	out, err = c.headway("blame", "deployment/web:spec")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "headway blame", out, "spec.replicas", "web.yaml:7", second[:10], first[:10], "Ada  ")
	eventually(t, "one pod", func() error {
		if n := len(c.pods("app=web")); n != 1 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	pod := c.pods("app=web")[0].Name
	if out, err = c.headway("blame", "pod/"+pod+":spec.replicas"); err != nil {
		t.Fatal(err)
	}
	contains(t, "headway blame", out, "Pod default/"+pod+" was made from Deployment default/web", second[:10])
	if out, err = c.headway("diff", first[:8], second); err != nil {
		t.Fatal(err)
	}
	contains(t, "headway diff", out, "~ Deployment default/web (web.yaml:2)\n    spec.replicas 2 → 1\n")
	if out, err = c.headway("diff"); err != nil || !strings.HasPrefix(out, "No object differs between") {
		t.Errorf("headway diff: %v\n%s", err, out)
	}
}

// With drift: report the change stays, in the cluster and in the live ref, over a
// kill and over the next commit, until somebody ends it. No Secret's value is ever
// in git.
func TestDriftIsReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	files := map[string]string{
		".headway.yaml":                       "apiVersion: headway.dev/v1\nkind: Config\npaths:\n- {path: loose, drift: report}\n",
		"loose/a.yaml":                        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  mode: calm # at night\n  other: x\n",
		"loose/s.yaml":                        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  word: declared-word\n",
		"loose/kustomized/kustomization.yaml": "resources: [b.yaml]\nnamePrefix: k-\n",
		"loose/kustomized/b.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {x: \"1\"}\n",
	}
	first, _ := c.deploy("loose", files)
	c.inSync(first)
	c.kubectl("patch", "configmap", "a", "-p", `{"data":{"mode":"wild","more":"undeclared"}}`)
	at := c.liveTells("admin|drift: ConfigMap default/a data.mode calm → wild")
	if got := c.git("show", at+":loose/a.yaml"); got+"\n" != strings.Replace(files["loose/a.yaml"], "calm", "wild", 1) {
		t.Errorf("the file is\n%s", got)
	}
	c.git("cherry-pick", "-n", at) // to keep the change
	contains(t, "what was taken over", c.git("diff", "--cached", first), "+  mode: wild # at night")
	c.git("reset", "--quiet", "--hard", first)
	c.kubectl("patch", "secret", "s", "-p", `{"stringData":{"word":"changed-word"}}`)
	at = c.liveTells("admin|drift: Secret default/s data.word differs")
	if diff := c.git("diff", "--stat", first, at); !strings.Contains(diff, "loose/s.yaml") {
		t.Errorf("the Secret's file does not say that it differs:\n%s", diff)
	}
	c.kubectl("patch", "configmap", "k-b", "-p", `{"data":{"x":"2"}}`)
	at = c.liveTells("admin|drift: ConfigMap default/k-b data.x 1 → 2")
	contains(t, "the kustomization", c.git("diff", first, at, "--", "loose/kustomized"), "headway-live.yaml")

	// A kill loses nothing.
	c.end(syscall.SIGKILL)
	c.start()
	c.waitReady()
	var report struct {
		Objects []struct {
			Name, Why string
			Healed    *string
			By        struct{ User string }
		}
	}
	read := func() {
		t.Helper()
		out, err := c.headway("drift", "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		report.Objects = nil
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if len(report.Objects) != 3 {
		t.Errorf("drift: %+v", report.Objects)
	}
	for _, o := range report.Objects {
		if o.Healed != nil || o.By.User != "admin" || o.Why != "drift: report" {
			t.Errorf("drift: %+v", o)
		}
	}

	// A commit changes what it changes, and leaves the rest.
	second, _ := c.deploy("other", map[string]string{"loose/a.yaml": strings.Replace(files["loose/a.yaml"], "other: x", "other: z", 1)})
	at = c.liveTells("Headway|applied: " + second[:12])
	if m := get[corev1.ConfigMap](c, "configmap", "a"); m.Data["mode"] != "wild" || m.Data["other"] != "z" || m.Data["more"] != "undeclared" {
		t.Errorf("data %v", m.Data)
	}
	if parents := strings.Fields(c.git("log", "-1", "--format=%P", at)); len(parents) != 2 || parents[1] != second {
		t.Errorf("parents %v", parents)
	}
	eventually(t, "the live ref to show the drift on the new commit", func() error {
		if _, err := c.fetchLive(); err != nil {
			return err
		}
		if text := c.git("show", liveBranch+":loose/a.yaml"); !strings.Contains(text, "mode: wild # at night") || !strings.Contains(text, "other: z") {
			return fmt.Errorf("it is\n%s", text)
		}
		return nil
	})
	c.kubectl("patch", "configmap", "a", "-p", `{"data":{"mode":"calm"}}`)
	c.liveTells("admin|healed: ConfigMap default/a")

	// No value in any object of the repository, packed or not.
	repository := c.data() + "/git/main.git"
	list := `for o in $(git cat-file --batch-all-objects --batch-check='%(objectname)'); do git cat-file -p $o; done`
	cmd := exec.Command("sh", "-c", list)
	cmd.Dir = repository
	all, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.500s", err, all)
	}
	for _, value := range []string{"changed-word", "Y2hhbmdlZC13b3Jk"} {
		if strings.Contains(string(all), value) {
			t.Errorf("the repository has the Secret's value %s", value)
		}
	}
	contains(t, "the repository", string(all), "declared-word", "drift: Secret default/s data.word differs")
}

// TestR4_LiveRefSurvivesKills kills the server around each drift: every one is told
// in the end, and the ref ends in sync.
func TestR4_LiveRefSurvivesKills(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first, _ := c.deploy("a", map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: \"0\"}\n"})
	c.inSync(first)
	for i := range 3 {
		c.kubectl("patch", "configmap", "a", "-p", fmt.Sprintf(`{"data":{"k":"value-%d"}}`, i+1))
		c.end(syscall.SIGKILL)
		c.start()
		c.waitReady()
		c.liveTells(fmt.Sprintf("admin|drift: ConfigMap default/a data.k 0 → value-%d", i+1))
		c.inSync(first)
	}
	if out := c.git("fsck", "--no-dangling"); strings.Contains(out, "error") {
		t.Errorf("fsck: %s", out)
	}
}
