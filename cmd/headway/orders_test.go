package main

import (
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
)

func TestAllowance(t *testing.T) {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	for _, c := range []struct{ rewind, unsigned, why, want string }{
		{"", "", "", ""},
		{"", "", "because", "--why is for"},
		{one, "", "", "--why is missing"},
		{one, "", "  ", "--why is missing"},
		{one, "", "a\nb", "must be one line"},
		{one, "", strings.Repeat("x", 501), "--why has 501 bytes, at most 500"},
		{one[:12], "", "because", "give all 40 hex digits"},
		{strings.ToUpper(strings.Repeat("a", 40)), "", "because", "give all 40 hex digits"},
		{one, two, "because", "name two commits"},
		{one, one, "because", ""},
		{"", one, "because", ""},
	} {
		a, err := readAllowance(url.Values{"rewind": {c.rewind}, "unsigned": {c.unsigned}, "why": {c.why}})
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v", c, err)
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c, err)
		case c.want == "" && c.why != "" && (a.Commit != one || a.Rewind != (c.rewind != "") || a.Unsigned != (c.unsigned != "") || a.Why != "because"):
			t.Errorf("%q: %+v", c, a)
		}
	}
}

func TestPause(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC)
	for _, c := range []struct {
		length, want string
		lasts        time.Duration
	}{
		{"2h", "", 2 * time.Hour}, {"1m", "", time.Minute}, {"30d", "", 30 * 24 * time.Hour}, {"3d", "", 72 * time.Hour},
		{"", "--for is missing", 0}, {"59s", "from 1m to 30d", 0}, {"31d", "from 1m to 30d", 0}, {"-2h", "from 1m to 30d", 0},
		{"-1d", "must be a length", 0}, {"99999999d", "must be a length", 0}, {"two", "must be a length", 0}, {"1d2h", "must be a length", 0},
	} {
		p, err := readPause(url.Values{"for": {c.length}, "why": {"x"}}, now)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.length, err)
			}
			continue
		}
		if err != nil || p.Until.Sub(p.Since.Time) != c.lasts || p.Why != "x" {
			t.Errorf("%s: %+v %v", c.length, p, err)
		}
	}
	if _, err := readPause(url.Values{"for": {"2h"}}, now); err == nil {
		t.Error("paused without a reason")
	}
}

func TestOrdersAreShown(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	commit := strings.Repeat("1", 40)
	var out strings.Builder
	err := printStatus(&out, syncer.Report{
		Ref: "refs/heads/main", State: syncer.Healthy,
		Used:    &api.Allowance{Commit: commit, Rewind: true, Unsigned: true, By: "ada", Why: "keys lost", At: at},
		Allowed: &api.Allowance{Commit: commit, Unsigned: true, By: "bob", Why: "again", At: at},
		Pause:   &api.Pause{Since: at, Until: at, By: "eve", Why: "a move"},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"allowed  the applied commit, although no descendant and not signed: by ada at 2026-01-02 03:04:05 UTC: keys lost\n",
		"allowed  commit " + commit + ", once, although not signed: by bob at 2026-01-02 03:04:05 UTC: again\n",
		"paused   until 2026-01-02 03:04:05 UTC by eve: a move\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("does not say %q:\n%s", want, out.String())
		}
	}
	for _, c := range []struct {
		answer pauseAnswer
		want   string
	}{
		{pauseAnswer{}, "The cluster was not paused.\n"},
		{pauseAnswer{Ended: &api.Pause{By: "eve", Why: "a move"}}, "The pause has ended; it was of eve: a move.\n"},
		{pauseAnswer{Pause: &api.Pause{Until: at, By: "eve", Why: "a move"}}, "The cluster is paused until 2026-01-02 03:04:05 UTC by eve: a move.\n"},
	} {
		out.Reset()
		if err := c.answer.print(&out, ""); err != nil || out.String() != c.want {
			t.Errorf("%q, %v", out.String(), err)
		}
	}
}
