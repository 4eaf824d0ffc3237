package forge

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const aCommit = "6dcb09b5b57875f334f61aebed695e2e4193db5e"

// recorded is a request as it came over the wire.
type recorded struct {
	method, uri string
	header      http.Header
	body        map[string]any
}

// listen serves answers and records what is asked, in order.
func listen(t *testing.T, answer http.HandlerFunc) (*httptest.Server, func() []recorded) {
	t.Helper()
	got := make(chan recorded, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		rec := recorded{method: r.Method, uri: r.RequestURI, header: r.Header.Clone()}
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &rec.body); err != nil {
				t.Errorf("body %q: %v", raw, err)
			}
		}
		got <- rec
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv, func() []recorded {
		var all []recorded
		for len(got) > 0 {
			all = append(all, <-got)
		}
		return all
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each forge gets method, path, headers and body as it documents them:
// GitHub, REST API, "Create a commit status"; GitLab, Commits API, "Set the pipeline
// status of a commit"; Gitea, swagger, repoCreateStatus.
func TestRequestsAreAsTheForgesDocumentThem(t *testing.T) {
	long := strings.Repeat("ö", 300)
	in := Intent{
		Commit: aCommit, Ref: "refs/heads/main", Context: "headway/prod/apps/shop",
		State: Failure, Description: "failed: Deployment shop/web: image not found",
	}
	with := func(s State, description string) Intent {
		i := in
		i.State, i.Description = s, description
		return i
	}
	github := map[string]string{
		"Authorization": "Bearer t0ken", "Accept": "application/vnd.github+json", "X-Github-Api-Version": "2022-11-28",
		"Content-Type": "application/json", "User-Agent": "headway",
	}
	gitlab := map[string]string{"Private-Token": "t0ken", "Content-Type": "application/json", "Authorization": ""}
	gitea := map[string]string{"Authorization": "token t0ken", "Content-Type": "application/json"}
	for _, c := range []struct {
		name   string
		kind   Kind
		path   string
		in     Intent
		uri    string
		header map[string]string
		body   map[string]any
	}{
		{"github failure", GitHub, "acme/shop.git", in, "/api/v3/repos/acme/shop/statuses/" + aCommit, github, map[string]any{
			"state": "failure", "context": "headway/prod/apps/shop",
			"description": "failed: Deployment shop/web: image not found",
		}},
		{"github running", GitHub, "acme/shop", with(Running, long), "/api/v3/repos/acme/shop/statuses/" + aCommit, github, map[string]any{
			"state": "pending", "context": "headway/prod/apps/shop",
			"description": strings.Repeat("ö", 139) + "…",
		}},
		{"github superseded", GitHub, "acme/shop", with(Canceled, "x"), "/api/v3/repos/acme/shop/statuses/" + aCommit, github, map[string]any{
			"state": "error", "context": "headway/prod/apps/shop", "description": "x",
		}},
		{"gitlab nested", GitLab, "acme/team/sub/shop.git", in, "/api/v4/projects/acme%2Fteam%2Fsub%2Fshop/statuses/" + aCommit, gitlab, map[string]any{
			"state": "failed", "ref": "main", "name": "headway/prod/apps/shop",
			"description": "failed: Deployment shop/web: image not found",
		}},
		{"gitlab running", GitLab, "acme/shop", with(Running, "rolling out"), "/api/v4/projects/acme%2Fshop/statuses/" + aCommit, gitlab, map[string]any{
			"state": "running", "ref": "main", "name": "headway/prod/apps/shop", "description": "rolling out",
		}},
		{"gitlab superseded", GitLab, "acme/shop", with(Canceled, "x"), "/api/v4/projects/acme%2Fshop/statuses/" + aCommit, gitlab, map[string]any{
			"state": "canceled", "ref": "main", "name": "headway/prod/apps/shop", "description": "x",
		}},
		{"gitea success", Gitea, "acme/shop.git", with(Success, "applied and healthy"), "/api/v1/repos/acme/shop/statuses/" + aCommit, gitea, map[string]any{
			"state": "success", "context": "headway/prod/apps/shop", "description": "applied and healthy",
		}},
		{"gitea below a path", Gitea, "git/acme/shop.git", with(Pending, "waiting"), "/git/api/v1/repos/acme/shop/statuses/" + aCommit, gitea, map[string]any{
			"state": "pending", "context": "headway/prod/apps/shop", "description": "waiting",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv, asked := listen(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
			l, err := locate(srv.URL + "/" + c.path)
			if err != nil {
				t.Fatal(err)
			}
			e, err := endpointOf(c.kind, l, "")
			if err != nil {
				t.Fatal(err)
			}
			a, err := post(context.Background(), newClient(nil), e, c.in, "t0ken")
			if err != nil {
				t.Fatal(err)
			}
			if o, _ := a.judge(testTime); o != taken {
				t.Errorf("outcome %d", o)
			}
			all := asked()
			if len(all) != 1 {
				t.Fatalf("%d requests", len(all))
			}
			got := all[0]
			if got.method != http.MethodPost || got.uri != c.uri {
				t.Errorf("%s %s, want POST %s", got.method, got.uri, c.uri)
			}
			for name, want := range c.header {
				if got.header.Get(name) != want {
					t.Errorf("header %s: %q, want %q", name, got.header.Get(name), want)
				}
			}
			if len(got.body) != len(c.body) {
				t.Errorf("body %v, want %v", got.body, c.body)
			}
			for name, want := range c.body {
				if got.body[name] != want {
					t.Errorf("%s: %v, want %v", name, got.body[name], want)
				}
			}
		})
	}
}

func TestR14_TokenGoesToNoOtherHost(t *testing.T) {
	elsewhere, stolen := listen(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	for _, c := range []struct {
		name   string
		to     string
		status int
		want   outcome
		asked  int
	}{
		{"renamed on the same host", "/api/v1/repositories/7/statuses/" + aCommit, http.StatusTemporaryRedirect, taken, 2},
		{"moved for good on the same host", "/api/v1/repositories/7/statuses/" + aCommit, http.StatusPermanentRedirect, taken, 2},
		{"a redirect that makes a GET of it", "/api/v1/login", http.StatusFound, denied, 1},
		{"another host", elsewhere.URL + "/x", http.StatusTemporaryRedirect, denied, 1},
		{"a circle", "", http.StatusTemporaryRedirect, denied, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv, asked := listen(t, func(w http.ResponseWriter, r *http.Request) {
				if c.to != "" && r.URL.Path == c.to {
					w.WriteHeader(http.StatusCreated)
					return
				}
				to := c.to
				if to == "" {
					to = r.URL.Path
				}
				http.Redirect(w, r, to, c.status)
			})
			e := endpoint{kind: Gitea, base: srv.URL + "/api/v1", project: "acme/shop"}
			a, err := post(context.Background(), newClient(nil), e, Intent{Commit: aCommit, State: Success, Context: "x"}, "t0ken")
			if err != nil {
				t.Fatal(err)
			}
			o, _ := a.judge(testTime)
			if o != c.want {
				t.Errorf("outcome %d, want %d", o, c.want)
			}
			if o == denied && !strings.Contains(a.advice(o, e.base, "acme/shop", "/f"), "give the source its new URL") {
				t.Errorf("advice %q", a.advice(o, e.base, "acme/shop", "/f"))
			}
			all := asked()
			if len(all) != c.asked {
				t.Errorf("%d requests, want %d", len(all), c.asked)
			}
			if c.want == taken {
				if last := all[len(all)-1]; last.method != http.MethodPost || last.body["state"] != "success" || last.header.Get("Authorization") != "token t0ken" {
					t.Errorf("the redirect was followed with %+v", last)
				}
			}
		})
	}
	if all := stolen(); len(all) != 0 {
		t.Errorf("R14: the other host was sent %+v", all)
	}
}

func TestMessages(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"message":"Bad credentials","documentation_url":"https://docs.github.com/rest"}`, "Bad credentials"},
		{`{"message":"Validation Failed","errors":[{"resource":"Status","field":"description","message":"is too long"}]}`, "Validation Failed, description is too long"},
		{`{"message":{"target_url":["is blocked"]}}`, `{"target_url":["is blocked"]}`},
		{`{"error":"insufficient_scope","error_description":"The request requires higher privileges","scope":"api"}`, "insufficient_scope, The request requires higher privileges"},
		{"{\"message\":\"a\\n\\u001b[31mb\"}", "a [31mb"},
		{`{"message":"` + strings.Repeat("x", 500) + `"}`, strings.Repeat("x", 199) + "…"},
		{`<html>no JSON</html>`, ""},
		{``, ""},
	} {
		if got := message([]byte(c.body), "t0ken"); got != c.want {
			t.Errorf("%.60s: %q, want %q", c.body, got, c.want)
		}
	}
}

func TestR14_ForgeThatRepeatsTheToken(t *testing.T) {
	srv, _ := listen(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"message":"bad token `+strings.TrimPrefix(r.Header.Get("Authorization"), "token ")+`"}`)
	})
	a, err := post(context.Background(), newClient(nil), endpoint{kind: Gitea, base: srv.URL, project: "a/b"}, Intent{Commit: aCommit}, "t0ken")
	if err != nil {
		t.Fatal(err)
	}
	advice := a.advice(denied, srv.URL, "a/b", "/etc/headway/token")
	if strings.Contains(advice, "t0ken") || !strings.Contains(advice, "bad token (the token)") {
		t.Errorf("advice %q", advice)
	}
	// Where the message is cut, and written with the escapes of JSON.
	const token = "g/0123456789abcdef0123456789abcdef"
	for before := 150; before < 205; before++ {
		for _, written := range []string{token, strings.ReplaceAll(token, "/", `\/`)} {
			got := message([]byte(`{"message":"`+strings.Repeat("x", before)+written+` is bad"}`), token)
			if strings.Contains(got, token[:2]) {
				t.Errorf("half a token after %d characters: %q", before, got)
			}
		}
	}
}

func TestDetect(t *testing.T) {
	answers := func(path string, status int, header, value, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				http.Error(w, "<html>not here</html>", http.StatusNotFound)
				return
			}
			if header != "" {
				w.Header().Set(header, value)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   Kind
	}{
		{"gitea", answers("/api/v1/version", 200, "", "", `{"version":"1.22.1"}`), Gitea},
		{"forgejo", answers("/api/v1/version", 200, "", "", `{"version":"9.0.3+gitea-1.22.0"}`), Gitea},
		{"gitea that wants a sign-in", answers("/api/v1/version", 403, "", "", `{"message":"Only signed in user is allowed to call APIs."}`), Gitea},
		{"gitlab", answers("/api/v4/version", 401, "X-Gitlab-Meta", `{"version":"1"}`, `{"message":"401 Unauthorized"}`), GitLab},
		{"gitlab behind a proxy that drops headers", answers("/api/v4/version", 401, "", "", `{"message":"401 Unauthorized"}`), GitLab},
		{"github enterprise", answers("/api/v3/meta", 200, "X-GitHub-Enterprise-Version", "3.14.0", `{"installed_version":"3.14.0"}`), GitHub},
		{"github enterprise in private mode", answers("/api/v3/meta", 401, "X-GitHub-Request-Id", "1:2:3", `{"message":"Must authenticate"}`), GitHub},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv, asked := listen(t, c.answer)
			got, err := detect(context.Background(), newClient(nil), srv.URL)
			if err != nil || got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
			for _, r := range asked() {
				if r.method != http.MethodGet || r.header.Get("Authorization") != "" || r.header.Get("Private-Token") != "" {
					t.Errorf("the probe is not safe: %+v", r)
				}
			}
		})
	}
	srv, _ := listen(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	if _, err := detect(context.Background(), newClient(nil), srv.URL); err == nil || !strings.Contains(err.Error(), "--forge") || !strings.Contains(err.Error(), srv.URL) {
		t.Errorf("no forge: %v", err)
	}
	srv, _ = listen(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	_, err := detect(context.Background(), newClient(nil), srv.URL)
	if _, final := err.(unknownForge); err == nil || final {
		t.Errorf("a forge that is down: %v", err)
	}
	srv.Close()
	if _, err := detect(context.Background(), newClient(nil), srv.URL); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a forge that is away: %v", err)
	}
}
