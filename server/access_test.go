package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/server/certs"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
)

func TestWhoIsLetIn(t *testing.T) {
	ours := prometheus.NewRegistry()
	ours.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "headway_test_total"}))
	f := start(t, 0, func(c *Config) { c.Metrics = ours })
	now := time.Now()
	admin, err := f.ca.Admin("admin", now)
	must(t, err)
	node, err := f.ca.Node("n1", now)
	must(t, err)
	server, err := f.ca.Server(nil, now)
	must(t, err)
	old, err := f.ca.Admin("admin", now.Add(-2*365*24*time.Hour))
	must(t, err)
	other := store.New(memory.New(), store.Options{Seal: []byte(strings.Repeat("s", store.SealKeyBytes))})
	must(t, other.Load(context.Background()))
	foreign, err := certs.Ensure(context.Background(), other, now)
	must(t, err)
	stranger, err := foreign.Admin("admin", now)
	must(t, err)

	for _, c := range []struct {
		who  string
		pair certs.Pair
		path string
		code int
		says string
	}{
		{"an administrator", admin, "/api/v1/pods", http.StatusOK, "PodList"},
		{"an administrator", admin, "/metrics", http.StatusOK, "apiserver_request_total"},
		{"an administrator", admin, "/metrics", http.StatusOK, "headway_test_total"},
		{"an administrator", admin, "/nothing", http.StatusNotFound, ""},
		{"a node", node, "/api/v1/secrets", http.StatusForbidden, "no Role or ClusterRole"},
		{"a node", node, "/livez", http.StatusOK, "ok"},
		{"a server", server, "/api/v1/secrets", http.StatusForbidden, "no Role or ClusterRole"},
		{"an administrator of another cluster", stranger, "/api/v1/pods", http.StatusUnauthorized, "signed by unknown authority"},
		{"an administrator whose time is over", old, "/api/v1/pods", http.StatusUnauthorized, "certificate has expired"},
		{"nobody", certs.Pair{}, "/api/v1/pods", http.StatusUnauthorized, "Unauthorized"},
		{"nobody", certs.Pair{}, "/version", http.StatusUnauthorized, "Unauthorized"},
		{"nobody", certs.Pair{}, "/metrics", http.StatusUnauthorized, "Unauthorized"},
		{"nobody", certs.Pair{}, "/openapi/v2", http.StatusUnauthorized, "Unauthorized"},
		{"nobody", certs.Pair{}, "/livez", http.StatusOK, "ok"},
		{"nobody", certs.Pair{}, "/readyz", http.StatusOK, "ok"},
		{"nobody", certs.Pair{}, "/healthz", http.StatusOK, "ok"},
		{"an administrator of another cluster", stranger, "/livez", http.StatusUnauthorized, "signed by unknown authority"},
		{"an administrator of another cluster", stranger, "/git/main.git", http.StatusUnauthorized, "signed by unknown authority"},
		{"nobody", certs.Pair{}, "/livez/../api/v1/pods", http.StatusUnauthorized, "Unauthorized"},
	} {
		t.Run(c.who+" "+c.path, func(t *testing.T) {
			resp, err := f.client(c.pair).Get(f.url + c.path)
			must(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			must(t, err)
			if resp.StatusCode != c.code || !strings.Contains(string(body), c.says) {
				t.Errorf("%d %.300s, want %d with %q", resp.StatusCode, body, c.code, c.says)
			}
		})
	}
}

func TestImpersonationIsRefused(t *testing.T) {
	f := start(t, 0, nil)
	for _, header := range []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Extra-Scope"} {
		req, err := http.NewRequest(http.MethodGet, f.url+"/api/v1/pods", nil)
		must(t, err)
		req.Header.Set(header, "somebody")
		resp, err := f.adminHTTP().Do(req)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "acting as another user") {
			t.Errorf("%s: %d %s", header, resp.StatusCode, body)
		}
	}
}

// Whoever can speak HTTP/1.1 is served with it: see newHTTP.
func TestDispatch(t *testing.T) {
	says := func(what string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.WriteString(w, what); err != nil {
				t.Error(err)
			}
		})
	}
	f := start(t, 0, func(c *Config) {
		c.Git = says("git")
		c.GRPC = says("grpc")
		c.Extra = map[string]http.Handler{"/join/": says("join"), "/join/new/": says("new")}
	})
	for _, c := range []struct {
		path, content, want string
		proto               int
	}{
		{"/git/main.git/info/refs", "", "git", 1},
		{"/join/x", "", "join", 1},
		{"/join/new/x", "", "new", 1},
		{"/headway.Session/Connect", "application/grpc", "grpc", 2},
		{"/livez", "", "ok", 1},
	} {
		req, err := http.NewRequest(http.MethodGet, f.url+c.path, nil)
		must(t, err)
		if c.content != "" {
			req.Header.Set("Content-Type", c.content)
		}
		client := f.client(certs.Pair{})
		if c.proto == 2 { // as gRPC does: it offers nothing else
			protocols := new(http.Protocols)
			protocols.SetHTTP2(true)
			client.Transport.(*http.Transport).Protocols = protocols
		}
		resp, err := client.Do(req)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		resp.Body.Close()
		if string(body) != c.want || resp.ProtoMajor != c.proto {
			t.Errorf("%s: %q over HTTP/%d, want %q over HTTP/%d", c.path, body, resp.ProtoMajor, c.want, c.proto)
		}
	}
}

func TestReadiness(t *testing.T) {
	reason := make(chan error, 1)
	f := start(t, 0, func(c *Config) {
		c.Ready = func() error {
			select {
			case err := <-reason:
				return err
			default:
				return nil
			}
		}
	})
	get := func() int {
		resp, err := f.client(certs.Pair{}).Get(f.url + "/readyz")
		must(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := get(); code != http.StatusOK {
		t.Errorf("ready: %d", code)
	}
	reason <- io.ErrUnexpectedEOF
	if code := get(); code != http.StatusInternalServerError {
		t.Errorf("not ready: %d", code)
	}
}
