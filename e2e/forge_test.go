package e2e

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// forge is a git server over http that asks for a token.
type forge struct {
	bare  string
	url   string
	token atomic.Pointer[string]
	asked atomic.Int64
}

func newForge(t *testing.T, dir string) *forge {
	t.Helper()
	f := &forge{bare: filepath.Join(dir, "forge", "app.git")}
	if out, err := exec.Command("git", "init", "--quiet", "--bare", "--initial-branch=main", f.bare).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, setting := range [][2]string{{"receive.denyDeleteCurrent", "ignore"}, {"http.receivepack", "true"}} {
		if out, err := exec.Command("git", "-C", f.bare, "config", setting[0], setting[1]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(filepath.Dir(f.bare)), "GIT_HTTP_EXPORT_ALL=1"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		if _, password, ok := r.BasicAuth(); !ok || password != *f.token.Load() {
			w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.url = server.URL + "/forge/app.git"
	f.accept("forge-token-one")
	return f
}

func (f *forge) accept(token string) { f.token.Store(&token) }

// A repository on a forge is followed with a token. What goes wrong there is told
// in the status, and deletes nothing.
func TestR3_ForgeIsFollowed(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	f := newForge(t, c.dir)
	netrc := filepath.Join(c.dir, "netrc")
	if err := os.WriteFile(netrc, []byte("machine 127.0.0.1 login git password forge-token-one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.args = append(c.args, "--repo", f.url, "--netrc", netrc, "--poll", "1s", "--path", "deploy")
	publish := func(message string, files map[string]string) string {
		t.Helper()
		c.write(files)
		commit := c.commit(message)
		c.git("push", "--quiet", f.bare, "main")
		return commit
	}
	publish("one", map[string]string{"deploy/web.yaml": web("one", 1)})
	c.addProbe()
	c.start()
	c.waitReady()
	c.healthy(c.git("rev-parse", "HEAD"))
	c.answers("one", 1)

	c.healthy(publish("two", map[string]string{"deploy/web.yaml": web("two", 1)}))
	c.answers("two", 1)
	before, alive := get[appsv1.Deployment](c, "deployment", "web"), c.lives("app=web", 1)

	// says waits until the status tells a trouble, and looks that nothing is gone.
	says := func(trouble string, wanted ...string) {
		t.Helper()
		eventually(t, "the status to tell: "+trouble, func() error {
			out, _ := c.headway("status")
			for _, w := range wanted {
				if !strings.Contains(out, w) {
					return fmt.Errorf("it does not say %q:\n%s", w, out)
				}
			}
			return nil
		})
		// Two more looks of the cluster at the forge.
		asked := f.asked.Load()
		eventually(t, "more polls", func() error {
			if f.asked.Load() < asked+2 {
				return fmt.Errorf("asked %d times", f.asked.Load()-asked)
			}
			return nil
		})
		if after := get[appsv1.Deployment](c, "deployment", "web"); after.UID != before.UID || after.Generation != before.Generation {
			t.Errorf("%s: the Deployment is another", trouble)
		}
		c.same(trouble, "app=web", alive)
		if out, _ := c.headway("status"); strings.Contains(out, "forge-token") {
			t.Errorf("%s: the status shows a token:\n%s", trouble, out)
		}
	}
	// mended waits until the cluster has seen that the trouble is over, which also
	// ends the longer waits between its looks.
	mended := func() {
		t.Helper()
		eventually(t, "the trouble to be over", func() error {
			if out, _ := c.headway("status", "-o", "json"); strings.Contains(out, `"reason"`) {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
	}
	f.accept("forge-token-two")
	says("the token is wrong", "authentication failed")
	f.accept("forge-token-one")
	mended()

	c.git("push", "--quiet", f.bare, ":main", "main:other")
	says("the ref is gone", "no such ref", "refs/heads/other")
	c.git("push", "--quiet", f.bare, "main")
	mended()

	c.git("mv", "deploy", "elsewhere")
	publish("no path", nil)
	says("the path is gone", "deploy")

	c.git("mv", "elsewhere", "deploy")
	c.healthy(publish("three", map[string]string{"deploy/web.yaml": web("three", 1)}))
	c.answers("three", 1)
	if strings.Contains(c.out.String(), "forge-token") {
		t.Error("a token is in the log")
	}
}
