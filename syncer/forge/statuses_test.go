package forge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func report(t *testing.T, s *Statuses, r Report) {
	t.Helper()
	if r.Commit == "" {
		r.Commit = aCommit
	}
	if r.Attempt == 0 {
		r.Attempt = 1
	}
	if err := s.Report(context.Background(), r); err != nil {
		t.Error(err)
	}
}

func TestRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s, log, stop := w.process().start(t, nil)
		for i, phase := range []Phase{Waiting, Applying, Failed, Healthy, RollingOut} {
			report(t, s, Report{Revision: int64(i), Phase: phase, Reason: "Deployment web", Ref: "refs/heads/main"})
			synctest.Wait()
		}
		stop()
		if got := w.states(aCommit); got != "pending pending failure success" {
			t.Errorf("%s", got)
		}
		if last := w.last(aCommit); last.text != "applied and healthy: Deployment web" || time.Since(last.at) != 0 {
			t.Errorf("%+v", last)
		}
		if log.String() != "" {
			t.Errorf("steady state is not silent: %s", log)
		}
	})
}

// What is wrong is told once, a failure that is over at once never.
func TestProblemsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var up atomic.Bool
		var mu sync.Mutex
		var all []string
		tell := func(p string) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, p)
		}
		told := func(after time.Duration) []string {
			time.Sleep(after)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		w.answer = func(*http.Request, int) *http.Response {
			if !up.Load() {
				return respond(http.StatusBadGateway, "", "")
			}
			return respond(http.StatusCreated, "", "")
		}
		s, _, stop := w.process().start(t, func(c *StatusConfig) { c.Tell = tell })
		report(t, s, Report{Phase: Waiting})
		if got := told(firstPause / 2); len(got) != 0 {
			t.Errorf("told of one failure: %q", got)
		}
		if got := told(time.Hour); len(got) != 1 || !strings.Contains(got[0], "502") {
			t.Errorf("told %q", got)
		}
		up.Store(true)
		if got := told(time.Hour); len(got) != 2 || got[1] != "" {
			t.Errorf("told %q", got)
		}
		stop()
	})
}

func TestStoredIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s, _, stop := w.process().start(t, nil)
		report(t, s, Report{Attempt: 7, Revision: 9, Phase: Refused, Reason: "a.yaml:1:1: x", Ref: "refs/heads/main"})
		synctest.Wait()
		stop()
		want := `{"key":"` + keyOf("https://git.example.com/acme/shop", "headway/main/apps", aCommit) +
			`","repository":"https://git.example.com/acme/shop","context":"headway/main/apps","commit":"` + aCommit +
			`","ref":"refs/heads/main","attempt":7,"revision":9,"state":"failure","description":"refused, nothing was changed: a.yaml:1:1: x","settled":true}`
		for _, raw := range w.intents {
			if string(raw) != want {
				t.Errorf("%s\nwant %s", raw, want)
			}
		}
		if len(w.intents) != 1 {
			t.Errorf("%d intents", len(w.intents))
		}
	})
}

// A flood of reports of a rollout that takes a day stays far below GitHub's 1,000
// statuses per commit, and the end is told at once.
func TestProgressIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s, _, stop := w.process().start(t, nil)
		for i := range 24 * 60 {
			report(t, s, Report{Revision: int64(i), Phase: RollingOut, Reason: fmt.Sprint(i)})
			time.Sleep(time.Minute)
		}
		n := w.requests()
		if n < 10 || n > 50 {
			t.Errorf("%d statuses", n)
		}
		report(t, s, Report{Revision: 100000, Phase: Failed})
		synctest.Wait()
		stop()
		if last := w.last(aCommit); last.state != "failure" {
			t.Errorf("%+v", last)
		}
	})
}

// A burst of reports becomes the first and the last.
func TestNewestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s, _, stop := w.process().start(t, nil)
		for i := range 100 {
			report(t, s, Report{Revision: int64(i), Phase: RollingOut, Reason: fmt.Sprint(i)})
		}
		time.Sleep(time.Minute)
		stop()
		if n := w.requests(); n > 2 {
			t.Errorf("%d requests", n)
		}
		if last := w.last(aCommit); last.text != "rolling out: 99" {
			t.Errorf("%+v", last)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.answer = func(*http.Request, int) *http.Response { return respond(503, "", "") }
		s, _, stop := w.process().start(t, nil)
		for i := 1; i <= 3*keep; i++ {
			report(t, s, Report{Commit: hexCommit(i), Attempt: int64(i), Phase: Healthy})
			synctest.Wait()
		}
		w.mu.Lock()
		w.answer = nil
		w.mu.Unlock()
		time.Sleep(time.Hour)
		stop()
		if len(w.intents) != keep || len(w.shown) != keep {
			t.Errorf("%d intents, %d statuses, want %d", len(w.intents), len(w.shown), keep)
		}
		// Forgotten is forgotten, also by the next leader.
		s, _, stop = w.process().start(t, nil)
		report(t, s, Report{Commit: hexCommit(2), Attempt: 2, Revision: 9, Phase: Failed})
		time.Sleep(time.Minute)
		stop()
		if got := w.states(hexCommit(2)); got != "" {
			t.Errorf("a forgotten commit got %s", got)
		}
		if got := w.states(hexCommit(3 * keep)); got != "success" {
			t.Errorf("the newest commit got %q", got)
		}
	})
}

func TestRateLimitIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		reset := time.Now().Add(20 * time.Minute)
		w.answer = func(_ *http.Request, n int) *http.Response {
			if n > 1 {
				return respond(201, "", "")
			}
			res := respond(403, `{"message":"API rate limit exceeded"}`, "X-Ratelimit-Reset", fmt.Sprint(reset.Unix()))
			res.Header.Set("X-Ratelimit-Remaining", "0")
			return res
		}
		s, log, stop := w.process().start(t, func(c *StatusConfig) { c.Kind = GitHub })
		report(t, s, Report{Phase: Waiting})
		time.Sleep(time.Minute)
		report(t, s, Report{Revision: 5, Phase: Healthy})
		report(t, s, Report{Commit: hexCommit(1), Revision: 5, Phase: Healthy})
		time.Sleep(reset.Sub(time.Now()) - time.Second)
		if n := w.requests(); n != 1 {
			t.Errorf("%d requests before the limit's reset", n)
		}
		if !strings.Contains(s.Problem(), "API rate limit exceeded") {
			t.Errorf("problem %q", s.Problem())
		}
		time.Sleep(2 * time.Second)
		stop()
		if w.states(aCommit) != "success" || w.states(hexCommit(1)) != "success" || s.Problem() != "" {
			t.Errorf("after the reset: %s, %s, %s", w.states(aCommit), w.states(hexCommit(1)), s.Problem())
		}
		if strings.Count(log.String(), "WARN") != 1 || !strings.Contains(log.String(), "again") {
			t.Errorf("log %s", log)
		}
	})
}

// A token that is not good is said once, with the file and the scope; a new one in
// the file is used at once.
func TestDeniedTokenIsSaidOnceAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.answer = func(r *http.Request, _ int) *http.Response {
			if r.Header.Get("Authorization") == "token better" {
				return respond(201, "", "")
			}
			return respond(401, `{"message":"invalid username, password or token"}`, "")
		}
		path := writeFile(t, "t0ken\n")
		s, log, stop := w.process().start(t, func(c *StatusConfig) { c.TokenFile = path })
		for i := range 600 {
			report(t, s, Report{Revision: int64(i), Phase: RollingOut, Reason: fmt.Sprint(i)})
			time.Sleep(time.Minute)
		}
		if n := w.requests(); n < 50 || n > 62 { // one per deniedPause
			t.Errorf("%d requests in ten hours", n)
		}
		if n := strings.Count(log.String(), "WARN"); n != 1 {
			t.Errorf("said %d times: %s", n, log)
		}
		for _, word := range []string{"401 Unauthorized", path, "write:repository", "https://git.example.com/api/v1"} {
			if !strings.Contains(s.Problem(), word) {
				t.Errorf("%q does not say %q", s.Problem(), word)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Minute)
		if !strings.Contains(s.Problem(), path) || !strings.Contains(s.Problem(), "no such file") {
			t.Errorf("problem %q", s.Problem())
		}
		if err := os.WriteFile(path, []byte("better\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(tokenPause)
		synctest.Wait()
		if last := w.last(aCommit); last.text != "rolling out: 599" || s.Problem() != "" {
			t.Errorf("%+v, %q", last, s.Problem())
		}
		stop()
	})
}

func TestNewTokenOpensTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.answer = func(r *http.Request, _ int) *http.Response {
			if r.Header.Get("Authorization") == "token better" {
				return respond(201, "", "")
			}
			return respond(403, `{"message":"token does not have at least one of required scope(s): [write:repository]"}`, "")
		}
		path := writeFile(t, "t0ken\n")
		s, _, stop := w.process().start(t, func(c *StatusConfig) { c.TokenFile = path })
		report(t, s, Report{Phase: Healthy})
		time.Sleep(time.Second)
		if err := os.WriteFile(path, []byte("better\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(tokenPause)
		synctest.Wait()
		stop()
		if w.states(aCommit) != "success" {
			t.Errorf("%q, %s", w.states(aCommit), s.Problem())
		}
	})
}

// A commit that the forge does not have, or fails for, does not keep the others.
func TestOneCommitDoesNotBlockOthers(t *testing.T) {
	for _, status := range []int{404, 422, 500} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.answer = func(r *http.Request, _ int) *http.Response {
				if strings.HasSuffix(r.URL.Path, hexCommit(99)) {
					return respond(status, `{"message":"object does not exist"}`, "")
				}
				return respond(201, "", "")
			}
			s, log, stop := w.process().start(t, nil)
			report(t, s, Report{Commit: hexCommit(99), Attempt: 99, Phase: Healthy})
			synctest.Wait()
			if !strings.Contains(s.Problem(), fmt.Sprint(status)) {
				t.Errorf("%d: problem %q", status, s.Problem())
			}
			for i := 1; i <= 5; i++ {
				report(t, s, Report{Commit: hexCommit(i), Attempt: int64(i), Phase: Healthy})
			}
			time.Sleep(time.Minute)
			for i := 1; i <= 5; i++ {
				if got := w.states(hexCommit(i)); got != "success" {
					t.Errorf("%d: commit %d got %q", status, i, got)
				}
			}
			time.Sleep(24 * time.Hour)
			stop()
			if n := w.requests() - 5; status == 404 && (n < 20 || n > 40) || status == 422 && n != 1 {
				t.Errorf("%d: tried %d times in a day", status, n)
			}
			if n := strings.Count(log.String(), "WARN"); n != 1 && status != 500 {
				t.Errorf("%d: said %d times: %s", status, n, log)
			}
		})
	}
}

// A forge that is away is asked less and less often, and told the newest when it is
// back.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.answer = func(*http.Request, int) *http.Response { return respond(502, "<html>", "") }
		s, log, stop := w.process().start(t, nil)
		report(t, s, Report{Phase: Waiting})
		time.Sleep(2 * time.Hour)
		if n := w.requests(); n < 25 || n > 40 {
			t.Errorf("%d requests in two hours", n)
		}
		if n := strings.Count(log.String(), "WARN"); n != 1 || !strings.Contains(s.Problem(), "502 Bad Gateway") {
			t.Errorf("said %d times: %s, %s", n, log, s.Problem())
		}
		report(t, s, Report{Revision: 3, Phase: Healthy})
		w.mu.Lock()
		w.answer = nil
		w.mu.Unlock()
		time.Sleep(mostPause + mostPause/10)
		stop()
		if got := w.states(aCommit); got != "success" {
			t.Errorf("%s", got)
		}
	})
}

// The store, too, may be away when it is to be said that a status was sent: the
// status is not sent again for it.
func TestStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := w.process()
		s, _, stop := p.start(t, func(c *StatusConfig) { c.Intents = &flaky{Intents: p, fail: 5} })
		for s.Report(context.Background(), Report{Commit: aCommit, Phase: Healthy}) != nil {
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Minute)
		stop()
		if got := w.states(aCommit); got != "success" {
			t.Errorf("the forge was told %q", got)
		}
		for _, raw := range w.intents {
			if !strings.Contains(string(raw), `"settled":true`) {
				t.Errorf("left open: %s", raw)
			}
		}
	})
}

// flaky fails each operation as often as it says, before it works.
type flaky struct {
	Intents
	fail               int
	puts, dones, lists int
}

func (f *flaky) err(n *int) error {
	if *n++; *n <= f.fail {
		return errDead
	}
	return nil
}

func (f *flaky) Put(ctx context.Context, i Intent) error {
	if err := f.err(&f.puts); err != nil {
		return err
	}
	return f.Intents.Put(ctx, i)
}

func (f *flaky) Done(ctx context.Context, i Intent) error {
	if err := f.err(&f.dones); err != nil {
		return err
	}
	return f.Intents.Done(ctx, i)
}

func (f *flaky) List(ctx context.Context) ([]Intent, error) {
	if err := f.err(&f.lists); err != nil {
		return nil, err
	}
	return f.Intents.List(ctx)
}

// GitLab refuses to go from a state to itself, so only states are sent to it.
func TestGitLabGetsStatesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s, _, stop := w.process().start(t, func(c *StatusConfig) { c.Kind, c.URL = GitLab, "git@gitlab.example.com:a/b/c.git" })
		phases := []Phase{Waiting, Waiting, Applying, RollingOut, RollingOut, Failed, Failed, Healthy}
		for i, phase := range phases {
			report(t, s, Report{Revision: int64(i), Phase: phase, Reason: fmt.Sprint(i)})
			time.Sleep(time.Hour)
		}
		stop()
		if got := w.states(aCommit); got != "pending running failed failed success" {
			t.Errorf("%s", got)
		}
	})
}

func TestForgeIsFoundOutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		probes := 0
		w.answer = func(r *http.Request, n int) *http.Response {
			if r.Method == http.MethodPost {
				return respond(201, "", "")
			}
			probes++
			switch {
			case n < 3:
				return respond(503, "", "") // the forge is away at first
			case r.URL.Path == "/api/v4/version":
				return respond(401, "", "X-Gitlab-Meta", "{}")
			}
			return respond(404, "", "")
		}
		s, log, stop := w.process().start(t, func(c *StatusConfig) { c.Kind = "" })
		report(t, s, Report{Phase: Waiting})
		time.Sleep(time.Minute)
		report(t, s, Report{Revision: 2, Phase: Healthy})
		time.Sleep(time.Minute)
		stop()
		if got := w.states(aCommit); got != "pending success" || probes != 4 {
			t.Errorf("%s after %d probes; %s", got, probes, log)
		}
	})
}

func TestUnknownForge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.answer = func(*http.Request, int) *http.Response { return respond(404, "", "") }
		s, log, stop := w.process().start(t, func(c *StatusConfig) { c.Kind = "" })
		report(t, s, Report{Phase: Healthy})
		time.Sleep(time.Hour)
		stop()
		if !strings.Contains(s.Problem(), "https://git.example.com") || !strings.Contains(s.Problem(), "--forge") {
			t.Errorf("problem %q", s.Problem())
		}
		if n := w.requests(); n > 3*7 || strings.Count(log.String(), "WARN") != 1 {
			t.Errorf("%d probes in an hour: %s", n, log)
		}
	})
}

// Others' intents in the same store are left alone.
func TestOtherContextsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for _, i := range []Intent{
			{Repository: "https://git.example.com/acme/shop", Context: "headway/main/other", Commit: aCommit, State: Success},
			{Repository: "https://git.example.com/acme/else", Context: "headway/main/apps", Commit: aCommit, State: Success},
		} {
			i.Key = keyOf(i.Repository, i.Context, i.Commit)
			raw, err := json.Marshal(i)
			if err != nil {
				t.Fatal(err)
			}
			w.intents[i.Key] = raw
		}
		_, _, stop := w.process().start(t, nil)
		time.Sleep(time.Hour)
		stop()
		if w.requests() != 0 || len(w.intents) != 2 {
			t.Errorf("%d requests, %d intents", w.requests(), len(w.intents))
		}
	})
}

func TestStatusConfig(t *testing.T) {
	p := newWorld().process()
	good := StatusConfig{Cluster: "main", URL: "git@github.com:acme/shop.git", TokenFile: "/f", Intents: p, Fence: p.fence}
	if _, err := NewStatuses(good); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*StatusConfig){
		"token file":  func(c *StatusConfig) { c.TokenFile = "" },
		"fence":       func(c *StatusConfig) { c.Fence = nil },
		"local path":  func(c *StatusConfig) { c.URL = "/srv/git/shop.git" },
		"owner/repo":  func(c *StatusConfig) { c.URL = "https://github.com/shop" },
		"api/v4":      func(c *StatusConfig) { c.API = "github" },
		"needs --for": func(c *StatusConfig) { c.URL, c.API = "https://git.example.com/a/b", "https://git.example.com/api/v1" },
	} {
		c := good
		change(&c)
		if _, err := NewStatuses(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, bad := range []Report{{Commit: "main", Phase: Healthy}, {Commit: aCommit + "/..", Phase: Healthy}, {Commit: aCommit, Phase: "Odd"}, {Commit: aCommit}} {
		s, err := NewStatuses(good)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Report(context.Background(), bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
