package forge

import (
	"context"
	"io"
	"net/http"
	"testing"
)

// Everything together over a real connection: a self-hosted forge that nobody named
// is found out, and gets the statuses of a commit.
func TestOverTheWire(t *testing.T) {
	took := make(chan struct{}, 10)
	srv, asked := listen(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
			took <- struct{}{}
			return
		}
		if r.URL.Path != "/api/v4/version" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("X-Gitlab-Meta", `{"version":"1"}`)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"message":"401 Unauthorized"}`)
	})
	world := newWorld()
	s, _, stop := world.process().start(t, func(c *StatusConfig) {
		c.URL, c.Kind, c.Transport = srv.URL+"/acme/team/shop.git", "", nil
	})
	for i, phase := range []Phase{Applying, Healthy} {
		if err := s.Report(context.Background(), Report{Commit: aCommit, Ref: "refs/heads/main", Attempt: 1, Revision: int64(i), Phase: phase}); err != nil {
			t.Fatal(err)
		}
		<-took
	}
	stop()
	var states []any
	for _, r := range asked() {
		if r.method != http.MethodPost {
			if r.header.Get("Private-Token") != "" {
				t.Errorf("R14: the probe %s has the token", r.uri)
			}
			continue
		}
		states = append(states, r.body["state"])
		if r.uri != "/api/v4/projects/acme%2Fteam%2Fshop/statuses/"+aCommit || r.header.Get("Private-Token") != "t0ken" || r.body["name"] != "headway/main/apps" || r.body["ref"] != "main" {
			t.Errorf("%+v", r)
		}
	}
	if len(states) != 2 || states[0] != "running" || states[1] != "success" {
		t.Errorf("states %v", states)
	}
}
