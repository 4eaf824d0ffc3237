package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/syncer"
	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/render"
)

// planning is a server's half that answers plans, over a repository in a folder.
type planning struct {
	t    *testing.T
	work string // the work tree, whose branch main is followed
	st   *store.Store
	s    *syncer.Syncer
	url  string
	now  time.Time
}

func newPlanning(t *testing.T) *planning {
	p := &planning{t: t, work: filepath.Join(t.TempDir(), "app"), now: time.Now()}
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	if err := os.MkdirAll(p.work, 0o755); err != nil {
		t.Fatal(err)
	}
	p.git("init", "-q", "-b", "main")
	forge, err := git.OpenForge(t.Context(), git.ForgeConfig{URL: p.work, Dir: filepath.Join(t.TempDir(), "clone.git"), Cluster: "main"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(forge.Close)
	p.st = store.New(memory.New(), store.Options{Seal: make([]byte, store.SealKeyBytes)})
	cache := render.NewCache(0)
	p.s = syncer.New(syncer.Config{
		Store: p.st, Commits: &syncer.Checkout{Objects: forge.Repository, Keeper: forge.Repository, Cache: cache},
		Fetch: func(ctx context.Context, _ api.SourceSpec, _ time.Duration) (string, error) {
			return forge.Fetch(ctx, "main", 0)
		},
		Capacity: func(leaving map[types.UID]bool, asks []syncer.Ask) ([]syncer.Answer, bool) {
			return capacity(p.st, leaving, asks)
		},
		Now: func() time.Time { return p.now },
	})
	p.st.OnEvents(p.s.Handle)
	if err := p.st.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(newPlanner(p.s, forge.Repository, cache, func(ctx context.Context) (string, error) { return forge.Fetch(ctx, "main", 0) }))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *planning) git(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", p.work, "-c", "user.name=A", "-c", "user.email=a@x"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// write writes files; an empty text removes one.
func (p *planning) write(files map[string]string) {
	p.t.Helper()
	for name, text := range files {
		path := filepath.Join(p.work, name)
		var err error
		if text == "" {
			err = os.Remove(path)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *planning) commit(message string, files map[string]string) string {
	p.t.Helper()
	p.write(files)
	p.git("add", "-A")
	p.git("commit", "-q", "--allow-empty", "-m", message)
	return p.git("rev-parse", "HEAD")
}

// apply lets the syncer work until it has applied the newest commit.
func (p *planning) apply() {
	p.t.Helper()
	p.now = p.now.Add(time.Minute)
	for range 1000 {
		more, err := p.st.Step(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		if !p.s.Step(p.t.Context()) && !more {
			break
		}
	}
	if r := p.s.Status(); r.Applied != p.git("rev-parse", "main") {
		p.t.Fatalf("not applied: %+v", r)
	}
}

// plan is what headway plan prints, its notes and its exit status.
func (p *planning) plan(name, output string) (printed, notes string, code int) {
	p.t.Helper()
	var out, note bytes.Buffer
	err := func() error {
		preview, err := endpoint{http.DefaultClient, p.url}.plan(p.t.Context(), "", name, &note)
		if err != nil {
			return err
		}
		if err := printPlan(&out, preview, output); err != nil {
			return err
		}
		return planVerdict(preview)
	}()
	var coded codedError
	switch {
	case errors.As(err, &coded):
		return out.String(), note.String() + coded.Error(), coded.exitCode()
	case err != nil:
		return out.String(), note.String() + err.Error(), 1
	}
	return out.String(), note.String(), 0
}

func settings(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {k: %q}\n", name, value)
}

func TestPlan(t *testing.T) {
	p := newPlanning(t)
	if out, notes, code := p.plan("", ""); code != 1 || !strings.Contains(notes, "no") {
		t.Errorf("without a commit: %d %s %s", code, out, notes)
	}
	p.commit("first", map[string]string{"a.yaml": settings("a", "1"), "b.yaml": settings("b", "1"), ".gitignore": "out/\n"})
	p.apply()
	look := func(name string, want int, words ...string) {
		t.Helper()
		out, notes, code := p.plan(name, "")
		if code != want {
			t.Errorf("plan %s: exit %d, want %d: %s %s", name, code, want, out, notes)
		}
		for _, w := range words {
			if !strings.Contains(out+notes, w) {
				t.Errorf("plan %s: no %q in\n%s%s", name, w, out, notes)
			}
		}
	}
	look("", 0, "0 of 2 objects change")
	look("main", 1, "no branch, tag or commit in the repository of the cluster") // only what is followed is fetched
	look(p.git("rev-parse", "HEAD"), 0, "0 of 2 objects change")
	look(strings.Repeat("1", 40), 1, "no branch, tag or commit in the repository of the cluster")
	look("refs/heads/..", 1, "the server says: ")
	look(p.work, 0, "0 of 2 objects change")
	// What is not committed counts, and what git ignores does not.
	p.write(map[string]string{"a.yaml": settings("a", "2"), "new/c.yaml": settings("c", "1"), "out/d.yaml": settings("d", "1"), "b.yaml": ""})
	look(p.work, 2, "~ update ConfigMap default/a (a.yaml:1): data.k 1 → 2\n+ create ConfigMap default/c (new/c.yaml:1)\n- delete ConfigMap default/b: ", "3 of 3 objects change")
	if out, notes, code := p.plan(p.work, "json"); code != 2 || notes != "" || !strings.Contains(out, `"field": "data.k",`) || !strings.Contains(out, `"ok": true`) {
		t.Errorf("%d %s %s", code, out, notes)
	}
	p.write(map[string]string{"a.yaml": settings("a", "2") + "nope: 1\n"})
	look(p.work, 1, "a.yaml:5:1: nope: unknown field", "headway plan: this would be refused: 1 problem")
	// A commit that is not applied is judged by its hash, once it is fetched.
	c2 := p.commit("second", map[string]string{"a.yaml": settings("a", "3")})
	look("", 2, "data.k 1 → 3")
	look(c2, 2, "data.k 1 → 3")
	look(filepath.Join(p.work, "a.yaml"), 1, "is a file: give the folder")
	look("./nowhere", 1, "no such file")
	// Nothing of all this has changed anything.
	if r := p.s.Status(); r.Applied == c2 || len(r.Objects) != 2 {
		t.Errorf("%+v", r)
	}
}

// The trailers of the commit that is checked out count, unless it is applied.
func TestPlanReadsTheTrailersOfHead(t *testing.T) {
	p := newPlanning(t)
	files, gone := map[string]string{}, map[string]string{}
	for i := range 20 {
		files[fmt.Sprintf("c%d.yaml", i)] = settings(fmt.Sprintf("c%d", i), "1")
		if i > 0 {
			gone[fmt.Sprintf("c%d.yaml", i)] = ""
		}
	}
	p.commit("first\n\nAllow-Delete: all", files)
	p.apply()
	p.write(gone)
	if out, _, code := p.plan(p.work, ""); code != 1 || !strings.Contains(out, "would delete 19 objects") {
		t.Errorf("%d %s", code, out)
	}
	p.git("add", "-A")
	p.git("commit", "-q", "-m", "second\n\nAllow-Delete: 19")
	if out, notes, code := p.plan(p.work, ""); code != 2 || !strings.Contains(out, "19 of 20 objects change") {
		t.Errorf("%d %s %s", code, out, notes)
	}
}

func TestPlanOfAPlainFolder(t *testing.T) {
	p := newPlanning(t)
	p.commit("first", map[string]string{"a.yaml": settings("a", "1")})
	p.apply()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": settings("a", "1"), "big.bin": strings.Repeat("x", api.MaxFileBytes+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	out, notes, code := p.plan(dir, "")
	if code != 1 || !strings.Contains(notes, "is no git work tree") || !strings.Contains(out, "link.yaml") || strings.Contains(out, "root:") {
		t.Errorf("%d %s %s", code, out, notes)
	}
	if err := os.Remove(filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	if out, notes, code := p.plan(dir, ""); code != 0 {
		t.Errorf("%d %s %s", code, out, notes)
	}
}

// The whole way to the scheduler: a commit that has no room is warned about.
func TestPlanAsksTheScheduler(t *testing.T) {
	p := newPlanning(t)
	p.commit("first", map[string]string{"a.yaml": settings("a", "1")})
	p.apply()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("10")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"}}
	for _, obj := range []api.Object{node, lease} {
		if _, err := p.st.Commit(t.Context(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: obj}}}); err != nil {
			t.Fatal(err)
		}
	}
	for {
		if more, err := p.st.Step(t.Context()); err != nil || !more {
			break
		}
	}
	const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: web, image: web:1, resources: {requests: {cpu: 500m}}}
`
	p.write(map[string]string{"web.yaml": web})
	if out, _, code := p.plan(p.work, ""); code != 2 || !strings.Contains(out, "warning: web.yaml:1:1: Deployment default/web: 1 of 5 new pods fit on no node: 0/1 nodes are available: 1 Insufficient cpu. Add nodes") {
		t.Errorf("%d %s", code, out)
	}
	p.write(map[string]string{"web.yaml": strings.Replace(web, "500m", "3", 1)})
	if out, _, code := p.plan(p.work, ""); code != 2 || !strings.Contains(out, "its pods could run on no node even if it were empty: 0/1 nodes are available: 1 Insufficient cpu.") {
		t.Errorf("%d %s", code, out)
	}
}

func TestPlanRefusesWhatIsNoFolder(t *testing.T) {
	p := newPlanning(t)
	for _, tt := range []struct {
		method, query, body string
		status              int
	}{
		{http.MethodPost, "", "no tar at all, but long enough to be looked at as one" + strings.Repeat(".", 1000), http.StatusBadRequest},
		{http.MethodPost, "?head=xyz", "", http.StatusBadRequest},
		{http.MethodPost, "?" + strings.Repeat("trailer=a&", maxTrailers+1), "", http.StatusBadRequest},
		{http.MethodPut, "", "", http.StatusMethodNotAllowed},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, p.url+tt.query, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != tt.status {
			t.Errorf("%+.40v: %d %s %v", tt, resp.StatusCode, answer, err)
		}
	}
}
