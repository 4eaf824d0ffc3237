package forge

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const secret = "It's a Secret to Everybody" // GitHub's example

// hook is a Webhook with what it woke.
type hook struct {
	*Webhook
	log  *lockedBuffer
	file string

	mu    sync.Mutex
	woken []string
}

func newHook(t *testing.T, secrets string, sources ...Source) *hook {
	t.Helper()
	if sources == nil {
		sources = []Source{
			{"main", "git@github.com:acme/shop.git", "main"},
			{"tags", "https://gitlab.acme.example/team/sub/shop", "refs/tags/v1"},
			{"lab", "ssh://git@gitlab.acme.example:2222/team/sub/shop.git", "main"},
			{"tea", "https://robot:pa55@git.acme.example/acme/shop", "refs/heads/main"},
			{"hosted", "", "main"},
		}
	}
	h := &hook{log: &lockedBuffer{}, file: writeFile(t, secrets)}
	w, err := NewWebhook(WebhookConfig{
		SecretFile: h.file,
		Sources:    func() []Source { return sources },
		Wake: func(source string, e Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.woken = append(h.woken, source+" "+e.Ref)
		},
		Log: slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Webhook = w
	t.Cleanup(func() {
		w.Close()
		for _, hidden := range []string{secret, "pa55"} {
			if strings.Contains(h.log.String(), hidden) {
				t.Errorf("R14: %q in the log: %s", hidden, h.log)
			}
		}
	})
	return h
}

func (h *hook) wakes() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.woken, ", ")
}

// delivery is a request as a forge makes it.
func delivery(path, contentType, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func (h *hook) send(r *http.Request) (int, string) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	if rec.Code == http.StatusNoContent {
		return rec.Code, rec.Header().Get("X-Headway-Reason")
	}
	return rec.Code, strings.TrimSpace(rec.Body.String())
}

func hexSign(key, content string) string {
	return hex.EncodeToString(sign([]byte(key), []byte(content)))
}

// github, gitlab and gitea are deliveries of each with everything right.
func github(event, body string) *http.Request {
	return delivery("/webhook", "application/json", body, "X-GitHub-Event", event, "X-GitHub-Delivery", "1", "X-Hub-Signature-256", "sha256="+hexSign(secret, body))
}

func gitlab(event, body string) *http.Request {
	return delivery("/webhook/gitlab", "application/json", body, "X-Gitlab-Event", event, "X-Gitlab-Token", secret)
}

// Gitea sends GitHub's headers too.
func gitea(event, body string) *http.Request {
	sum := hexSign(secret, body)
	return delivery("/webhook", "application/json", body, "X-Gitea-Event", event, "X-Gitea-Signature", sum,
		"X-Gogs-Event", event, "X-Gogs-Signature", sum, "X-GitHub-Event", event, "X-Hub-Signature-256", "sha256="+sum)
}

func TestGitHubsExampleSignature(t *testing.T) {
	if got := hexSign(secret, "Hello, World!"); got != "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17" {
		t.Error(got)
	}
}

func TestDeliveries(t *testing.T) {
	push, ping := testdata(t, "github-push.json"), testdata(t, "github-ping.json")
	labPush, labTag, teaPush := testdata(t, "gitlab-push.json"), testdata(t, "gitlab-tag.json"), testdata(t, "gitea-push.json")
	form := url.Values{"payload": {push}}.Encode()
	teaForm := url.Values{"payload": {teaPush}}.Encode()
	own := func(s, ref string) string { return strings.ReplaceAll(s, "refs/heads/main", ref) }
	for _, c := range []struct {
		name   string
		r      *http.Request
		status int
		why    string
		wakes  string
	}{
		{"github push", github("push", push), 202, "", "main refs/heads/main"},
		{"github push as a form", delivery("/webhook/github", "application/x-www-form-urlencoded", form, "X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+hexSign(secret, form)), 202, "", "main refs/heads/main"},
		{"json with a charset", delivery("/webhook/", "application/json; charset=utf-8", push, "X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+hexSign(secret, push)), 202, "", "main refs/heads/main"},
		{"github ping", github("ping", ping), 200, `pong: source "main" follows`, ""},
		{"github ping of an organization", github("ping", `{"zen":"x","hook_id":1}`), 200, "pong", ""},
		{"github ping of another", github("ping", strings.ReplaceAll(ping, "Acme/Shop", "acme/else")), 200, "no source follows", ""},
		{"github issue", github("issues", `{"action":"opened"}`), 204, `"issues" is of no interest`, ""},
		{"github other branch", github("push", own(push, "refs/heads/fix")), 204, "no source follows", ""},
		{"github tag of the branch's name", github("push", own(push, "refs/tags/main")), 204, "no source follows", ""},
		{"github other repository", github("push", strings.ReplaceAll(push, "Acme/Shop", "acme/else")), 204, "no source follows", ""},
		{"our live ref", github("push", own(push, "refs/heads/headway/main/live")), 204, "headway itself", ""},
		{"our notes", gitea("push", own(teaPush, "refs/notes/headway/main")), 204, "headway itself", ""},
		{"gitlab push", gitlab("Push Hook", labPush), 202, "", "lab refs/heads/main"},
		{"gitlab tag", gitlab("Tag Push Hook", labTag), 202, "", "tags refs/tags/v1"},
		{"gitlab system hook", gitlab("System Hook", labPush), 202, "", "lab refs/heads/main"},
		{"gitlab system hook of something else", gitlab("System Hook", `{"event_name":"user_create","email":"x"}`), 204, `"user_create" is of no interest`, ""},
		{"gitlab pipeline", gitlab("Pipeline Hook", `{}`), 204, "of no interest", ""},
		{"gitea push", gitea("push", teaPush), 202, "", "tea refs/heads/main"},
		{"forgejo push", delivery("/webhook/forgejo", "application/json", teaPush, "X-Forgejo-Event", "push", "X-Forgejo-Signature", hexSign(secret, teaPush)), 202, "", "tea refs/heads/main"},
		{"gitea push as a form", delivery("/webhook/gitea", "application/x-www-form-urlencoded", teaForm, "X-Gitea-Event", "push", "X-Gitea-Signature", hexSign(secret, teaPush)), 202, "", "tea refs/heads/main"},
		{"gitea release", gitea("release", `{}`), 204, "of no interest", ""},

		{"no signature", delivery("/webhook", "application/json", push, "X-GitHub-Event", "push"), 401, "no signature", ""},
		{"old signature only", delivery("/webhook", "application/json", push, "X-GitHub-Event", "push", "X-Hub-Signature", "sha1=ab"), 401, "X-Hub-Signature-256 is needed", ""},
		{"signature of another secret", delivery("/webhook", "application/json", push, "X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+hexSign("other", push)), 401, "does not fit", ""},
		{"signature of another body", delivery("/webhook", "application/json", push+" ", "X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+hexSign(secret, push)), 401, "does not fit", ""},
		{"signature cut", delivery("/webhook", "application/json", push, "X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+hexSign(secret, push)[:62]), 401, "not a SHA-256", ""},
		{"signature empty", delivery("/webhook", "application/json", push, "X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="), 401, "no signature", ""},
		{"signature in the wrong form", delivery("/webhook", "application/json", push, "X-GitHub-Event", "push", "X-Hub-Signature-256", hexSign(secret, push)), 401, "no signature", ""},
		{"ping with a wrong secret", delivery("/webhook", "application/json", ping, "X-GitHub-Event", "ping", "X-Hub-Signature-256", "sha256="+hexSign("other", ping)), 401, "does not fit", ""},
		{"gitlab no token", delivery("/webhook", "application/json", labPush, "X-Gitlab-Event", "Push Hook"), 401, "no X-Gitlab-Token", ""},
		{"gitlab other token", delivery("/webhook", "application/json", labPush, "X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", secret+"x"), 401, "does not fit", ""},
		{"gitlab with github's signature", delivery("/webhook/gitlab", "application/json", labPush, "X-Gitlab-Event", "Push Hook", "X-Hub-Signature-256", "sha256="+hexSign(secret, labPush)), 401, "no X-Gitlab-Token", ""},
		{"a bad forgejo signature is not saved by a good one", delivery("/webhook", "application/json", teaPush, "X-Forgejo-Event", "push", "X-Forgejo-Signature", hexSign("other", teaPush), "X-Gitea-Signature", hexSign(secret, teaPush)), 401, "does not fit", ""},

		{"broken json", github("push", push[:100]), 400, "ends too early", ""},
		{"form without a payload", delivery("/webhook", "application/x-www-form-urlencoded", "a=b", "X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+hexSign(secret, "a=b")), 400, "no field payload", ""},
		{"content type", delivery("/webhook", "text/plain", push, "X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+hexSign(secret, push)), 415, "application/json", ""},
		{"no forge", delivery("/webhook", "application/json", push), 404, "which forge", ""},
		{"other path", delivery("/webhook/bitbucket", "application/json", push), 404, "/webhook/gitlab", ""},
		{"get", httptest.NewRequest(http.MethodGet, "/webhook", nil), 405, "posts", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHook(t, secret+"\n")
			status, why := h.send(c.r)
			if status != c.status || !strings.Contains(why, c.why) {
				t.Errorf("%d %q, want %d %q", status, why, c.status, c.why)
			}
			if got := h.wakes(); got != c.wakes {
				t.Errorf("woke %q, want %q", got, c.wakes)
			}
		})
	}
}

// GitLab's signing tokens, after standardwebhooks.com.
func TestGitLabSigningToken(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	token := "whsec_" + base64.StdEncoding.EncodeToString(key)
	body := testdata(t, "gitlab-push.json")
	signed := func(key []byte, body string) string {
		return "v1," + base64.StdEncoding.EncodeToString(sign(key, []byte("id.1700000000."+body)))
	}
	good, other := signed(key, body), signed([]byte("other"), body)
	for _, c := range []struct {
		name, secrets, signature, token string
		status                          int
	}{
		{"good", token, good, "", 202},
		{"one of several", "old\n" + token, other + " v2,xx " + good, "", 202},
		{"a wrong one", token, other, "", 401},
		{"of another body", token, signed(key, body+" "), "", 401},
		{"not saved by a good token", secret + "\n" + token, other, secret, 401},
		{"without a signing token in the file", secret, good, secret, 401},
		{"nonsense", token, "nonsense", "", 401},
		{"a signing token that is none", "whsec_???", good, "", 503},
	} {
		h := newHook(t, c.secrets)
		r := delivery("/webhook", "application/json", body, "X-Gitlab-Event", "Push Hook", "webhook-id", "id", "webhook-timestamp", "1700000000", "webhook-signature", c.signature)
		if c.token != "" {
			r.Header.Set("X-Gitlab-Token", c.token)
		}
		if status, why := h.send(r); status != c.status {
			t.Errorf("%s: %d %q", c.name, status, why)
		}
	}
}

func TestSecretsCanBeReplaced(t *testing.T) {
	h := newHook(t, "old\n")
	body := testdata(t, "github-push.json")
	if status, _ := h.send(github("push", body)); status != 401 {
		t.Errorf("before: %d", status)
	}
	if err := os.WriteFile(h.file, []byte("old\n"+secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, why := h.send(github("push", body)); status != 202 {
		t.Errorf("after: %d %s", status, why)
	}
	for what, change := range map[string]func(file string) error{
		"empty": func(file string) error { return os.WriteFile(file, []byte("\n"), 0o600) },
		"gone":  os.Remove,
	} {
		h = newHook(t, "old\n")
		if err := change(h.file); err != nil {
			t.Fatal(err)
		}
		status, why := h.send(github("push", body))
		if status != 503 || strings.Contains(why, h.file) || !strings.Contains(h.log.String(), h.file) {
			t.Errorf("%s: %d %q; %s", what, status, why, h.log)
		}
	}
	// An empty secret is no secret.
	r := delivery("/webhook", "application/json", body, "X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+hexSign("", body))
	if status, _ := h.send(r); status != 503 {
		t.Errorf("an empty secret: %d", status)
	}
}

// endless is a body that never ends, and counts what was read of it.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func TestBodyIsBounded(t *testing.T) {
	h := newHook(t, secret)
	body := &endless{}
	r := httptest.NewRequest(http.MethodPost, "/webhook", body)
	r.ContentLength = -1
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Gitlab-Event", "Push Hook")
	r.Header.Set("X-Gitlab-Token", secret)
	if status, why := h.send(r); status != 413 || !strings.Contains(why, "5 MiB") {
		t.Errorf("%d %q", status, why)
	}
	if body.read > 2*maxDelivery {
		t.Errorf("%d bytes were read", body.read)
	}
	// Without the token, or when it says that it is too large, nothing is read.
	for name, change := range map[string]func(*http.Request){
		"stranger": func(r *http.Request) { r.Header.Del("X-Gitlab-Token") },
		"declared": func(r *http.Request) { r.ContentLength = maxDelivery + 1 },
	} {
		body.read = 0
		r := r.Clone(r.Context())
		r.Body = io.NopCloser(body)
		change(r)
		if status, _ := h.send(r); status != 401 && status != 413 || body.read > 0 {
			t.Errorf("%s: %d, %d bytes were read", name, status, body.read)
		}
	}
}

// A push of 5 MiB of commits, over a real connection.
func TestLargeDelivery(t *testing.T) {
	h := newHook(t, secret)
	srv := httptest.NewServer(h)
	defer srv.Close()
	filler := `"commits":["` + strings.Repeat("x", 4<<20) + `"],`
	body := strings.Replace(testdata(t, "github-push.json"), `"ref"`, filler+`"ref"`, 1)
	r, err := http.NewRequest(http.MethodPost, srv.URL+"/webhook", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", "push")
	r.Header.Set("X-Hub-Signature-256", "sha256="+hexSign(secret, body))
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 202 || h.wakes() != "main refs/heads/main" {
		t.Errorf("%d, woke %q", res.StatusCode, h.wakes())
	}
}

// blocked is a body that comes only when it is let.
type blocked struct {
	entered chan struct{}
	let     chan struct{}
}

func (b *blocked) Read([]byte) (int, error) {
	b.entered <- struct{}{}
	<-b.let
	return 0, io.EOF
}

func TestDeliveriesAtOnceAreBounded(t *testing.T) {
	h := newHook(t, secret)
	b := &blocked{entered: make(chan struct{}), let: make(chan struct{})}
	var all sync.WaitGroup
	for range maxDeliveries {
		all.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/webhook/github", b)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Hub-Signature-256", "sha256=ab")
			h.send(r)
		})
		<-b.entered
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, github("push", testdata(t, "github-push.json")))
	if rec.Code != 503 || rec.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
	close(b.let)
	all.Wait()
	if status, why := h.send(github("push", testdata(t, "github-push.json"))); status != 202 {
		t.Errorf("afterwards: %d %s", status, why)
	}
}

// However many deliveries come, a source is woken at most once a second, at once for
// the first and not later than a second after the last. A replay does no more.
func TestWakesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHook(t, secret)
		push, lab := testdata(t, "github-push.json"), testdata(t, "gitlab-push.json")
		for range 100 {
			if status, why := h.send(github("push", push)); status != 202 {
				t.Fatalf("%d %s", status, why)
			}
		}
		if got := h.wakes(); got != "main refs/heads/main" {
			t.Errorf("at once: %s", got)
		}
		h.send(gitlab("Push Hook", lab)) // another source is not held up
		if got := h.wakes(); got != "main refs/heads/main, lab refs/heads/main" {
			t.Errorf("at once: %s", got)
		}
		time.Sleep(wakePause)
		synctest.Wait()
		if got := h.wakes(); got != "main refs/heads/main, lab refs/heads/main, main refs/heads/main" {
			t.Errorf("after a second: %s", got)
		}
		time.Sleep(time.Hour)
		if n := strings.Count(h.wakes(), "main refs"); n != 2 {
			t.Errorf("after an hour: %s", h.wakes())
		}
		for range 100 { // ten seconds of a push every tenth of a second
			h.send(github("push", push))
			time.Sleep(wakePause / 10)
		}
		time.Sleep(time.Hour)
		if n := strings.Count(h.wakes(), "main refs"); n < 12 || n > 13 {
			t.Errorf("%d wakes in ten seconds", n-2)
		}
		h.waker.mu.Lock()
		if n := len(h.waker.sources); n != 0 {
			t.Errorf("%d sources are remembered", n)
		}
		h.waker.mu.Unlock()
		h.send(github("push", push))
		h.send(github("push", push))
		n := len(h.wakes())
		h.Close()
		time.Sleep(time.Hour)
		h.send(github("push", push))
		if len(h.wakes()) != n {
			t.Errorf("woken after Close: %s", h.wakes())
		}
	})
}

// A flood of forged deliveries does not fill the log.
func TestRefusalsAreLoggedSparingly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHook(t, secret)
		for range 1000 {
			h.send(delivery("/webhook", "application/json", "{}", "X-GitHub-Event", "push"))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(scoldPause)
		h.send(delivery("/webhook", "application/json", "{}", "X-GitHub-Event", "push"))
		if n := strings.Count(h.log.String(), "WARN"); n != 2 || !strings.Contains(h.log.String(), "others=999") {
			t.Errorf("%d lines: %s", n, h.log)
		}
	})
}

func TestReasonsFitIntoHeaders(t *testing.T) {
	h := newHook(t, secret)
	body := strings.ReplaceAll(testdata(t, "github-push.json"), "refs/heads/main", "refs/heads/ümläut")
	status, why := h.send(github("push", body))
	if status != 204 || strings.ContainsFunc(why, func(r rune) bool { return r > '~' || r < ' ' }) {
		t.Errorf("%d %q", status, why)
	}
}

func TestWebhookConfig(t *testing.T) {
	if _, err := NewWebhook(WebhookConfig{}); err == nil {
		t.Error("nothing is enough")
	}
}

// Whatever a stranger sends, nobody is woken and nothing but a refusal comes back.
func FuzzWebhook(f *testing.F) {
	f.Add("/webhook", "application/json", "X-GitHub-Event", "push", "sha256=00", []byte(`{"ref":"refs/heads/main"}`))
	f.Add("/webhook/gitea", "application/x-www-form-urlencoded", "X-Gitea-Event", "push", "sha256="+strings.Repeat("0", 64), []byte("payload=%7b%7d"))
	f.Add("/webhook/gitlab", "application/json", "Webhook-Signature", "v1,AAAA v1,", "x", []byte("{}"))
	file := f.TempDir() + "/secret"
	if err := os.WriteFile(file, []byte(secret+"\nwhsec_AAAA\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path, contentType, name, value, signature string, body []byte) {
		w, err := NewWebhook(WebhookConfig{
			SecretFile: file,
			Sources:    func() []Source { return []Source{{"main", "https://x/a/b", "main"}} },
			Wake:       func(string, Event) { t.Error("woken") },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		r := httptest.NewRequest(http.MethodPost, "/webhook", bytes.NewReader(body))
		r.URL.Path = path
		r.Header.Set("Content-Type", contentType)
		r.Header[http.CanonicalHeaderKey(name)] = []string{value}
		r.Header.Set("X-Hub-Signature-256", signature)
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		if rec.Code < 400 {
			t.Errorf("%d %s", rec.Code, fmt.Sprint(rec.Header()))
		}
	})
}
