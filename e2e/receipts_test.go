package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// auditTrail is what anybody sees in a plain clone that fetches the notes.
func (c *cluster) auditTrail(remote string) string {
	c.t.Helper()
	dir, err := os.MkdirTemp(c.dir, "clone")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, args := range [][]string{{"clone", "--quiet", remote, dir}, {"-C", dir, "fetch", "--quiet", "origin", "refs/notes/*:refs/notes/*"}} {
		if out, err := c.run("", "git", args...); err != nil {
			c.t.Fatalf("%v\n%s", err, out)
		}
	}
	out, err := c.run(dir, "git", "log", "--notes=headway/*")
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// noteOf is the note in what git log prints of one commit.
func noteOf(trail, commit string) string {
	_, rest, _ := strings.Cut("\n"+trail, "\ncommit "+commit)
	rest, _, _ = strings.Cut(rest, "\ncommit ")
	_, note, _ := strings.Cut(rest, "Notes (headway/")
	return note
}

// says waits until the note of a commit has all of some lines.
func (c *cluster) says(remote, commit string, wanted ...string) {
	c.t.Helper()
	eventually(c.t, "the note of "+commit, func() error {
		note := noteOf(c.auditTrail(remote), commit)
		for _, w := range wanted {
			if !strings.Contains(note, w) {
				return fmt.Errorf("it does not say %q:\n%s", w, note)
			}
		}
		return nil
	})
}

// Each commit gets a note that says what became of it, which any clone can fetch,
// and which headway log and headway at read.
func TestReceipts(t *testing.T) {
	t.Parallel()
	c := probing(t)
	one, _ := c.deploy("one", map[string]string{"web.yaml": web("one", 2)})
	c.says(c.remote(), one, "headway-receipt: 1", "result: Healthy", "created: 1", "{verb: create, object: Deployment default/web}",
		"- object: Deployment default/web", "state: Healthy", "container: web, image: \""+probeName+"\", digest: ", "@sha256:", "seconds: ")
	two, _ := c.deploy("two", map[string]string{"web.yaml": web("two", 2), "a.yaml": configs("a", 0, 1)})
	c.git("revert", "--no-edit", "HEAD")
	back := c.git("rev-parse", "HEAD")
	if out, err := c.push(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.healthy(back)
	c.says(c.remote(), two, "result: Healthy", "created: 1", "updated: 1")
	c.says(c.remote(), back, "result: Healthy", "updated: 1", "deleted: 1", "{verb: delete, object: ConfigMap default/a-00000}")

	out, err := c.headway("log")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, line)
	}
	if len(lines) != 4 || !strings.HasPrefix(lines[1], back[:10]) || !strings.HasPrefix(lines[2], two[:10]) || !strings.HasPrefix(lines[3], one[:10]) || strings.Count(out, "Healthy") != 3 {
		t.Errorf("headway log:\n%s", out)
	}
	out, err = c.headway("log", "-n", "1", "--verbose")
	contains(t, "headway log --verbose", out, "commit "+back, "    result: Healthy")
	if err != nil {
		t.Error(err)
	}
	var log []struct {
		Commit  string `json:"commit"`
		Receipt struct {
			Applied string `json:"applied"`
		} `json:"receipt"`
	}
	out, err = c.headway("log", "-o", "json")
	if err != nil || json.Unmarshal([]byte(out), &log) != nil || len(log) != 3 || log[0].Commit != back {
		t.Fatalf("%v\n%s", err, out)
	}
	// What ran at the time when the second one was applied.
	out, err = c.headway("at", log[1].Receipt.Applied)
	contains(t, "headway at TIME", out, two, "ConfigMap default/a-00000", "a.yaml:2", "web: "+probeName+" = ", "@sha256:")
	if err != nil {
		t.Error(err)
	}
	out, err = c.headway("at", one[:8])
	if contains(t, "headway at COMMIT", out, one, "web.yaml:1"); err != nil || strings.Contains(out, "ConfigMap") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := c.headway("at", "10d ago"); err == nil || !strings.Contains(out, "the first commit that there is a receipt of") {
		t.Errorf("before the first: %v\n%s", err, out)
	}
	if out, err := c.push("+main:refs/notes/headway/main"); err == nil || !strings.Contains(out, "Headway alone writes this ref") {
		t.Errorf("anybody may write receipts: %v\n%s", err, out)
	}
}

// What a Job's receipt says counts for a cluster that is made anew from a clone.
func TestR3_DoneJobsSurviveAReset(t *testing.T) {
	t.Parallel()
	old := probing(t)
	files := map[string]string{"job.yaml": job("migrate", "", "exit", "0"), "web.yaml": web("one", 1)}
	one, _ := old.deploy("one", files)
	old.says(old.remote(), one, "result: Healthy", "done:", "name: migrate", "outcome: Complete")
	mirror := filepath.Join(old.dir, "mirror.git")
	if out, err := old.run("", "git", "clone", "--quiet", "--mirror", old.remote(), mirror); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	old.end(syscall.SIGTERM)
	if out, err := old.headway("reset", "--yes", "--containerd", host.socket); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := probing(t)
	if out, err := c.run("", "git", "-C", mirror, "push", c.remote(), "refs/notes/headway/main:refs/notes/restore/main", "main"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.healthy(one)
	if out := c.kubectl("get", "jobs", "-A", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Errorf("it ran again: %s", out)
	}
	c.says(c.remote(), one, "created: 1", "{verb: create, object: Deployment default/web}", "name: migrate", "outcome: Complete")
	// A changed manifest runs.
	if out, err := c.run("", "git", "clone", "--quiet", c.remote(), c.work); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	two, _ := c.deploy("two", map[string]string{"job.yaml": job("migrate", "", "exit", "0") + "\n", "extra.yaml": job("extra", "", "exit", "0")})
	c.says(c.remote(), two, "{verb: create, object: Job default/extra}", "name: extra")
	if out := c.kubectl("get", "jobs", "-A", "-o", "name"); strings.TrimSpace(out) != "job.batch/extra" {
		t.Errorf("the Jobs are %q", out)
	}
}

// statusAPI is the part of GitHub's API that takes commit statuses.
type statusAPI struct {
	url string
	mu  sync.Mutex
	got map[string][]string // by commit: "state description"
}

func newStatusAPI(t *testing.T, token string) *statusAPI {
	s := &statusAPI{got: map[string][]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status struct{ State, Description, Context string }
		body, err := io.ReadAll(r.Body)
		commit, ok := strings.CutPrefix(r.URL.Path, "/repos/forge/app/statuses/")
		if err != nil || json.Unmarshal(body, &status) != nil || !ok || r.Method != http.MethodPost ||
			r.Header.Get("Authorization") != "Bearer "+token || status.Context != "headway/main/deploy" {
			t.Errorf("%s %s %v %s", r.Method, r.URL.Path, r.Header, body)
			http.Error(w, "{}", http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got[commit] = append(s.got[commit], status.State+" "+status.Description)
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// states waits for the last status of a commit, and gives the states that it had.
func (s *statusAPI) states(t *testing.T, commit, last string) []string {
	t.Helper()
	var states []string
	eventually(t, "the status of "+commit, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		all := s.got[commit]
		if len(all) == 0 || !strings.HasPrefix(all[len(all)-1], last) {
			return fmt.Errorf("they are %q", all)
		}
		states = nil
		for _, a := range all {
			state, _, _ := strings.Cut(a, " ")
			states = append(states, state)
		}
		return nil
	})
	return slices.Compact(states)
}

// deliver sends a webhook of GitHub, and returns the answer.
func (c *cluster) deliver(f *forge, secret, ref, commit string) string {
	c.t.Helper()
	ca, err := os.ReadFile(filepath.Join(c.data(), "ca.crt"))
	if err != nil {
		c.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	body := fmt.Appendf(nil, `{"ref":%q,"after":%q,"repository":{"clone_url":%q}}`, ref, commit, f.url)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	req, err := http.NewRequest(http.MethodPost, "https://"+c.listen+"/webhook", bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-GitHub-Event", "push")
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.Status
}

// A forge wakes the cluster by a webhook, is told by commit statuses how it goes,
// and gets the receipts; a new cluster goes on from them.
func TestForgeIsToldAndTells(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	f := newForge(t, c.dir)
	api := newStatusAPI(t, "status-token")
	file := func(name, content string) string {
		t.Helper()
		path := filepath.Join(c.dir, name)
		if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	args := []string{"--repo", f.url, "--path", "deploy", "--poll", "1000h", "--netrc", file("netrc", "machine 127.0.0.1 login git password forge-token-one"),
		"--forge", "github", "--forge-api", api.url, "--forge-token", file("token", "status-token"), "--webhook-secret", file("secret", "hush-hush")}
	c.args = append(c.args, args...)
	publish := func(message string, files map[string]string) string {
		t.Helper()
		c.write(files)
		commit := c.commit(message)
		c.git("push", "--quiet", f.bare, "main")
		return commit
	}
	one := publish("one", map[string]string{"deploy/web.yaml": web("one", 1), "deploy/job.yaml": job("migrate", "", "exit", "0")})
	c.addProbe()
	c.start()
	c.waitReady()
	c.healthy(one)
	if got := api.states(t, one, "success"); !slices.Equal(got, []string{"pending", "success"}) {
		t.Errorf("statuses of the first %q", got)
	}
	// Nothing but a webhook makes the cluster look before the year is over.
	two := publish("two", map[string]string{"deploy/web.yaml": web("two", 1)})
	for want, try := range map[string][3]string{
		"401": {"wrong", "refs/heads/main", two}, "204": {"hush-hush", "refs/heads/other", two},
	} {
		if got := c.deliver(f, try[0], try[1], try[2]); !strings.HasPrefix(got, want) {
			t.Errorf("delivery %q: %s", try, got)
		}
	}
	if got := c.deliver(f, "hush-hush", "refs/heads/main", two); !strings.HasPrefix(got, "202") {
		t.Fatalf("delivery: %s", got)
	}
	c.healthy(two)
	c.answers("two", 1)
	if got := api.states(t, two, "success"); !slices.Equal(got, []string{"pending", "success"}) {
		t.Errorf("statuses of the second %q", got)
	}
	// A refused commit has a failure with the reason, and a note.
	three := publish("three", map[string]string{"deploy/web.yaml": strings.Replace(web("three", 1), "replicas:", "replica:", 1)})
	c.deliver(f, "hush-hush", "refs/heads/main", three)
	if got := api.states(t, three, "failure refused, nothing was changed: deploy/web.yaml:6:"); !slices.Equal(got, []string{"failure"}) {
		t.Errorf("statuses of the refused one %q", got)
	}
	c.says(f.bare, three, "result: Refused", "problems:", "deploy/web.yaml:6:")
	c.says(f.bare, two, "result: Healthy", "updated: 1", "name: migrate", "outcome: Complete")
	if out, err := c.headway("log"); err != nil {
		t.Error(err)
	} else {
		contains(t, "headway log", out, three[:10], "Refused", "deploy/web.yaml:6:", two[:10], "Healthy")
	}
	// What is written back can be read here, too, whatever the forge allows.
	printed, err := c.headway("remote")
	if err != nil {
		t.Fatal(err)
	}
	here := regexp.MustCompile(`https://git:\S+`).FindString(printed)
	setting := regexp.MustCompile(`http\.https://\S+\.sslCAInfo`).FindString(printed)
	c.git("-c", setting+"="+filepath.Join(c.data(), "ca.crt"), "fetch", "--quiet", here, "refs/heads/headway/*:refs/remotes/here/*", "refs/notes/*:refs/notes/here/*")
	contains(t, "the notes read here", c.git("log", "--notes=here/headway/main", two), "result: Healthy")
	if diff := c.git("diff", two, "refs/remotes/here/main/live"); diff != "" {
		t.Errorf("the live ref read here differs:\n%s", diff)
	}
	if out, err := c.tryGit("-c", setting+"="+filepath.Join(c.data(), "ca.crt"), "push", here, "main"); err == nil {
		t.Errorf("pushed to a clone of the forge:\n%s", out)
	}
	// While the forge is away the waits grow; a webhook ends them.
	f.accept("another")
	c.deliver(f, "hush-hush", "refs/heads/main", three)
	eventually(t, "the failed look", func() error {
		if out, _ := c.headway("status"); !strings.Contains(out, "authentication failed") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	f.accept("forge-token-one")
	four := publish("four", map[string]string{"deploy/web.yaml": web("four", 1)})
	c.deliver(f, "hush-hush", "refs/heads/main", four)
	c.healthy(four)
	c.says(f.bare, four, "result: Healthy")
	for _, secret := range []string{"forge-token", "status-token", "hush-hush"} {
		if strings.Contains(c.out.String(), secret+"-") || strings.Contains(c.out.String(), "\""+secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
	// A new cluster with the same repository: the Job has run.
	c.end(syscall.SIGTERM)
	if out, err := c.headway("reset", "--yes", "--containerd", host.socket); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.addProbe()
	c.start()
	c.waitReady()
	c.healthy(four)
	if out := c.kubectl("get", "jobs", "-A", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Errorf("it ran again: %s", out)
	}
	if out, err := c.headway("log"); err != nil {
		t.Error(err)
	} else {
		contains(t, "headway log of the new cluster", out, three[:10], "Refused", two[:10], "Healthy")
	}
}

// Flags that have no meaning for a hosted repository are refused by name.
func TestForgeFlagsNeedARepository(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	for _, flag := range []string{"--forge-token", "--forge-api"} {
		out, err := c.run("", host.headway, append(slices.Clone(c.args), flag, "/nowhere")...)
		if err == nil || !strings.Contains(out, flag+" is for --repo") {
			t.Errorf("%s: %v\n%s", flag, err, out)
		}
	}
}
