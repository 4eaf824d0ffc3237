package git

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestGatewayTakesOnlySmartGitWithAToken(t *testing.T) {
	h := startHost(t, nil)
	for _, c := range []struct {
		method, path, password, kind string
		want                         int
	}{
		{"GET", "/main.git/info/refs?service=git-upload-pack", token, "", 200},
		{"GET", "/main.git/info/refs?service=git-receive-pack", token, "", 200},
		{"GET", "/main.git/info/refs?service=git-upload-pack", "", "", 401},
		{"GET", "/main.git/info/refs?service=git-upload-pack", token + "x", "", 401},
		{"GET", "/main.git/info/refs?service=git-upload-pack", token[1:], "", 401},
		{"GET", "/main.git/info/refs", token, "", 404},
		{"GET", "/main.git/info/refs?service=git-shell", token, "", 404},
		{"GET", "/main.git/HEAD", token, "", 404},
		{"GET", "/main.git/config", token, "", 404},
		{"GET", "/main.git/objects/info/packs", token, "", 404},
		{"GET", "/other.git/info/refs?service=git-upload-pack", token, "", 404},
		{"GET", "/main.git/../main.git/config", token, "", 404},
		{"POST", "/main.git/info/refs?service=git-upload-pack", token, "", 405},
		{"GET", "/main.git/git-receive-pack", token, "", 405},
		{"POST", "/main.git/git-receive-pack", token, "text/plain", 415},
		{"POST", "/main.git/git-receive-pack", "", "application/x-git-receive-pack-request", 401},
		{"POST", "/main.git/git-upload-archive", token, "application/x-git-upload-archive-request", 404},
	} {
		r, err := http.NewRequest(c.method, h.web.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.password != "" {
			r.SetBasicAuth("x", c.password)
		}
		r.Header.Set("Content-Type", c.kind)
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != c.want {
			t.Errorf("%s %s: %s, want %d: %v", c.method, c.path, res.Status, c.want, err)
		}
		if bytes.Contains(body, []byte(token)) {
			t.Errorf("%s %s shows the token", c.method, c.path)
		}
		if c.want == 401 && res.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s %s: no challenge", c.method, c.path)
		}
	}
}

// Git compresses what it says when it fetches much.
func TestGatewayGzip(t *testing.T) {
	h := startHost(t, nil)
	w := newWork(t)
	commit := w.commit("a", "1")
	w.git("push", h.url, "main")
	line := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	fmt.Fprint(z, line("want "+commit+" ofs-delta\n")+"0000"+line("done\n"))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest("POST", h.web.URL+"/main.git/git-upload-pack", io.MultiReader(&body)) // chunked
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("x", token)
	r.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	r.Header.Set("Content-Encoding", "gzip")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || !bytes.HasPrefix(answer, []byte("0008NAK\nPACK")) {
		t.Errorf("%s %q %v", res.Status, answer[:min(len(answer), 100)], err)
	}
}

// idle waits until no git program runs for a request.
func (h *host) idle(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() { h.busy.Wait(); close(done) }()
	receive(t, done, "end of the requests")
	if len(h.pushes) != 0 || len(h.moving) != 0 || len(h.running) != 0 || len(h.pushing) != 0 || len(h.following) != 0 {
		t.Errorf("left: %v %v %v", h.pushes, h.moving, h.running)
	}
}

// half sends the beginning of a push and returns its connection.
func half(t *testing.T, h *host) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.web.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	line := noHash + " 1234567890123456789012345678901234567890 refs/heads/main\x00report-status"
	fmt.Fprintf(conn, "POST /main.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDpzM2NyZXQtdG9rZW4tb2YtdGhlLXRlc3Q=\r\n"+
		"Content-Type: application/x-git-receive-pack-request\r\nTransfer-Encoding: chunked\r\n\r\n")
	fmt.Fprintf(conn, "%x\r\n%04x%s0000PACK\x00\x00\x00\x02\r\n", len(line)+16, len(line)+4, line)
	return conn
}

func TestClientLeavesInTheMiddleOfThePack(t *testing.T) {
	h := startHost(t, nil)
	before := snapshot(t, h.config.Dir)
	conn := half(t, h)
	until(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.running) == 1 })
	conn.Close()
	h.idle(t)
	if after := snapshot(t, h.config.Dir); after != before {
		t.Errorf("the repository changed:\n%s", after)
	}
}

func TestClientThatSendsNothingMore(t *testing.T) {
	h := startHost(t, func(c *Config) { c.Patience = 100 * time.Millisecond })
	conn := half(t, h)
	defer conn.Close()
	done := make(chan string, 1)
	go func() {
		answer, _ := io.ReadAll(conn) // until the server closes it, however
		done <- string(answer)
	}()
	if answer := receive(t, done, "end of the connection"); strings.Contains(answer, "ok refs/heads/main") {
		t.Errorf("%s", answer)
	}
	h.idle(t)
}

// until waits for a condition that nothing signals.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it did not come to that")
		}
	}
}

// startPush begins a push that can be killed with all its programs.
func startPush(t *testing.T, w *work, args ...string) (kill func()) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"push"}, args...)...)
	cmd.Dir, cmd.Env = w.dir, cleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		signal(cmd, syscall.SIGKILL)
		_ = cmd.Wait()
	}
}

func TestClientLeavesWhileItIsJudged(t *testing.T) {
	judging, resume := make(chan struct{}), make(chan struct{})
	h := startHost(t, func(c *Config) {
		c.Judge = func(ctx context.Context, _ Push, w io.Writer) ([]string, error) {
			close(judging)
			<-resume
			for range 1000 { // more than any pipe holds
				fmt.Fprintln(w, strings.Repeat("x", 1000))
			}
			return nil, ctx.Err()
		}
	})
	w := newWork(t)
	commit := w.commit("a", "1")
	kill := startPush(t, w, h.url, "main")
	receive(t, judging, "judgement")
	kill()
	close(resume)
	h.idle(t)
	if got, err := h.Resolve(context.Background(), "refs/heads/main"); err != nil || got != commit || h.refs.get("refs/heads/main") != commit {
		t.Errorf("bare %s, key %s: %v", got, h.refs.get("refs/heads/main"), err)
	}
}

func TestClientLeavesWhileItWatches(t *testing.T) {
	watching, ended := make(chan struct{}), make(chan error, 1)
	h := startHost(t, func(c *Config) {
		c.Follow = func(ctx context.Context, _ string, w io.Writer) error {
			fmt.Fprintln(w, "waiting")
			close(watching)
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}
	})
	w := newWork(t)
	commit := w.commit("a", "1")
	kill := startPush(t, w, h.url, "main")
	receive(t, watching, "rollout")
	kill()
	receive(t, ended, "end of the rollout's watch")
	h.idle(t)
	if got, err := h.Resolve(context.Background(), "refs/heads/main"); err != nil || got != commit {
		t.Errorf("at %s: %v", got, err)
	}
}

// R13: those who watch something stuck do not keep anybody from pushing.
func TestR13_WatchersDoNotBlockPushes(t *testing.T) {
	watching := make(chan struct{}, maxPushing+1)
	h := startHost(t, func(c *Config) {
		c.Follows = func(ref string) bool { return ref != "refs/heads/fix" }
		c.Follow = func(ctx context.Context, _ string, _ io.Writer) error {
			watching <- struct{}{}
			<-ctx.Done()
			return nil
		}
	})
	w := newWork(t)
	w.commit("a", "1")
	for i := range maxPushing + 1 {
		kill := startPush(t, w, h.url, fmt.Sprintf("main:b%d", i))
		defer kill()
		receive(t, watching, "rollout")
	}
	w.git("push", h.url, "main:fix")
}

func TestRunEndsWhileSomebodyWatches(t *testing.T) {
	watching := make(chan struct{})
	h := startHost(t, func(c *Config) {
		c.Follow = func(ctx context.Context, _ string, _ io.Writer) error {
			close(watching)
			<-ctx.Done()
			return nil
		}
	})
	w := newWork(t)
	w.commit("a", "1")
	done := make(chan error, 1)
	go func() {
		_, err := w.try("push", h.url, "main")
		done <- err
	}()
	receive(t, watching, "rollout")
	h.stop()
	if err := receive(t, done, "end of the push"); err != nil {
		t.Errorf("the accepted push ended with %v", err)
	}
	res, err := http.Get(h.web.URL)
	if err == nil {
		res.Body.Close()
	}
}
