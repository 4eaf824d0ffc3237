package forge

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestJudge(t *testing.T) {
	in := func(d time.Duration) string { return strconv.FormatInt(testTime.Add(d).Unix(), 10) }
	type headers map[string]string
	for _, c := range []struct {
		name    string
		kind    Kind
		status  int
		header  headers
		message string
		want    outcome
		wait    time.Duration
	}{
		{"created", GitHub, 201, nil, "", taken, 0},
		{"something else answers", GitHub, 200, nil, "", denied, 0},
		{"a sign-in page", Gitea, 303, nil, "", denied, 0},
		{"bad token", GitHub, 401, nil, "Bad credentials", denied, 0},
		{"no right", GitHub, 403, headers{"X-RateLimit-Remaining": "4999"}, "Resource not accessible by personal access token", denied, 0},
		{"not found", GitLab, 404, nil, "404 Project Not Found", missing, 0},
		{"validation", GitHub, 422, nil, "Validation Failed", refused, 0},
		{"GitLab is in that state", GitLab, 400, nil, `Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via "enqueue")`, taken, 0},
		{"GitLab refuses", GitLab, 400, nil, "name has already been taken", refused, 0},
		{"GitLab is busy with it", GitLab, 409, nil, "Another update to this commit status is in progress", again, 0},
		{"server fault", Gitea, 500, nil, "", again, 0},
		{"down", Gitea, 502, headers{"Retry-After": "30"}, "", again, 30 * time.Second},
		{"primary limit", GitHub, 403, headers{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": in(20 * time.Minute)}, "API rate limit exceeded", again, 20 * time.Minute},
		{"primary limit as 429", GitHub, 429, headers{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": in(time.Minute)}, "", again, time.Minute},
		{"secondary limit", GitHub, 403, headers{"Retry-After": "90", "X-RateLimit-Remaining": "4000"}, "You have exceeded a secondary rate limit", again, 90 * time.Second},
		{"secondary limit without a time", GitHub, 403, nil, "You have exceeded a secondary rate limit", again, time.Minute},
		{"Retry-After before the reset", GitHub, 403, headers{"Retry-After": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": in(time.Hour)}, "", again, 5 * time.Second},
		{"as a date", GitLab, 429, headers{"Retry-After": testTime.Add(40 * time.Second).Format(http.TimeFormat)}, "", again, 40 * time.Second},
		{"GitLab's limit", GitLab, 429, headers{"RateLimit-Remaining": "0", "RateLimit-Reset": in(45 * time.Second)}, "", again, 45 * time.Second},
		{"the forge's clock is an hour late", GitHub, 429, headers{
			"Date": testTime.Add(-time.Hour).Format(http.TimeFormat), "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": in(-50 * time.Minute),
		}, "", again, 10 * time.Minute},
		{"a limit of years", GitHub, 429, headers{"Retry-After": "999999999"}, "", again, maxPause},
		{"a reset of years", GitHub, 429, headers{"X-RateLimit-Reset": "99999999999999"}, "", again, maxPause},
		{"nonsense", GitLab, 429, headers{"Retry-After": "-3", "RateLimit-Reset": "soon"}, "", again, 0},
		{"a reset that is past", GitLab, 429, headers{"RateLimit-Reset": in(-time.Minute)}, "", again, 0},
	} {
		h := http.Header{}
		for k, v := range c.header {
			h.Set(k, v)
		}
		o, until := answer{kind: c.kind, status: c.status, header: h, message: c.message}.judge(testTime)
		wait := time.Duration(0)
		if !until.IsZero() {
			wait = until.Sub(testTime)
		}
		if o != c.want || wait != c.wait {
			t.Errorf("%s: outcome %d, wait %s; want %d, %s", c.name, o, wait, c.want, c.wait)
		}
	}
}

// What a person reads names the file, the scope, the URL and what to do.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		kind   Kind
		status int
		o      outcome
		want   []string
	}{
		{GitHub, 401, denied, []string{"401 Unauthorized: why", "/etc/token", "repo:status", "Commit statuses", "https://api", "valid token"}},
		{GitHub, 403, denied, []string{"403 Forbidden: why", "/etc/token", "repo:status", "acme/shop"}},
		{GitLab, 403, denied, []string{"/etc/token", "scope api", "Developer"}},
		{Gitea, 404, missing, []string{"404 Not Found: why", "/etc/token", "write:repository", "acme/shop", "--forge-api"}},
		{GitHub, 422, refused, []string{"422", "not sent again"}},
		{GitLab, 502, again, []string{"502 Bad Gateway: why", "https://api"}},
		{GitHub, 302, denied, []string{"302 Found", "moved", "--forge-api"}},
	} {
		got := answer{kind: c.kind, status: c.status, message: "why"}.advice(c.o, "https://api", "acme/shop", "/etc/token")
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s %d: %q does not say %q", c.kind, c.status, got, w)
			}
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(403, "Retry-After", "90", `{"message":"rate limit"}`)
	f.Add(429, "X-Ratelimit-Reset", "-9223372036854775808", `{"message":{"a":[1]},"errors":[{}]}`)
	f.Add(400, "Date", "Sun, 01 Jan 0001 00:00:00 GMT", `{"error":7}`)
	f.Add(503, "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT", `[`)
	f.Fuzz(func(t *testing.T, status int, name, value, body string) {
		for _, k := range []Kind{GitHub, GitLab, Gitea} {
			a := answer{kind: k, status: status, header: http.Header{http.CanonicalHeaderKey(name): {value}}, message: message([]byte(body), "t0ken")}
			o, until := a.judge(testTime)
			if !until.IsZero() && (until.Before(testTime) || until.After(testTime.Add(maxPause))) {
				t.Errorf("until %s", until)
			}
			if o == taken && status != 201 && k != GitLab {
				t.Errorf("%d is taken", status)
			}
			if strings.ContainsAny(a.advice(o, "x", "y", "z"), "\n\r\x1b") {
				t.Errorf("advice %q", a.advice(o, "x", "y", "z"))
			}
		}
	})
}
