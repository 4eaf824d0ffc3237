package forge

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Each line is a report: attempt.revision phase, and what comes of it.
func TestAdvance(t *testing.T) {
	for name, script := range map[string]string{
		"a rollout": `
			1.1 Waiting    pending
			1.2 Applying   running
			1.3 RollingOut running
			1.9 Healthy    success`,
		"the same again": `
			1.1 Waiting  pending
			1.2 Waiting  -
			1.3 Applying running
			1.3 Applying -`,
		"an older report": `
			1.5 Applying running
			1.4 Refused  -
			1.4 Healthy  -`,
		"an older report after one that changed nothing": `
			1.1 Applying running
			1.5 Applying -
			1.4 Healthy  -`,
		"not back within an attempt": `
			1.1 Applying   running
			1.2 Waiting    -
			1.3 Healthy    success
			1.4 RollingOut -
			1.5 Failed     -
			1.6 Superseded -`,
		"a rollout that recovers": `
			1.1 Failed     failure
			1.2 RollingOut -
			1.3 Healthy    success
			1.4 Failed     -`,
		"a failure that is superseded stays one": `
			1.1 Failed     failure
			1.2 Superseded -`,
		"superseded": `
			1.1 RollingOut running
			1.2 Superseded canceled
			1.3 Healthy    -`,
		"a new attempt": `
			1.1 Healthy  success
			4.4 Waiting  pending
			1.9 Healthy  -
			4.5 Applying running
			4.6 Failed   failure`,
		"a new attempt with the same end": `
			1.1 Healthy success
			4.4 Healthy success`,
	} {
		var have *entry
		for line := range strings.Lines(strings.TrimSpace(script)) {
			var attempt, revision int64
			var phase, want string
			if _, err := fmt.Sscanf(line, "%d.%d %s %s", &attempt, &revision, &phase, &want); err != nil {
				t.Fatalf("%s: %q: %v", name, line, err)
			}
			r := Report{Commit: aCommit, Attempt: attempt, Revision: revision, Phase: Phase(phase)}
			got := "-"
			if next, ok := see(&have, r); ok {
				got = string(next.State)
			}
			if got != want {
				t.Errorf("%s: %s: got %s", name, strings.TrimSpace(line), got)
			}
		}
	}
}

// see is what Report does with memory, without the store.
func see(have **entry, r Report) (Intent, bool) {
	state, text := describe(r)
	next, ok := advance(*have, r, Intent{Commit: r.Commit, Attempt: r.Attempt, Revision: r.Revision, State: state, Description: text})
	if *have == nil {
		*have = &entry{}
	}
	e := *have
	if r.Attempt > e.attempt || r.Attempt == e.attempt && r.Revision > e.revision {
		e.attempt, e.revision = r.Attempt, r.Revision
	}
	if ok {
		e.intent = next
	}
	return next, ok
}

// A new attempt that ends as the one before is stored, but not sent.
func TestAdvanceDoesNotSendWhatIsShown(t *testing.T) {
	have := &entry{attempt: 1, intent: Intent{Attempt: 1, State: Success, Settled: true}}
	next, ok := advance(have, Report{Attempt: 2}, Intent{Attempt: 2, State: Success})
	if !ok || !next.Settled {
		t.Errorf("%+v, %v", next, ok)
	}
	next, ok = advance(have, Report{Attempt: 2}, Intent{Attempt: 2, State: Pending})
	if !ok || next.Settled {
		t.Errorf("%+v, %v", next, ok)
	}
}

// Whatever is reported in whatever order, within an attempt nothing pending follows
// what is final, nothing follows success, and nothing older follows what is newer.
func TestAdvanceIsMonotonic(t *testing.T) {
	phases := []Phase{Waiting, Applying, RollingOut, Healthy, Failed, Refused, Superseded}
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var have *entry
		var last Intent
		for range 40 {
			r := Report{
				Commit: aCommit, Attempt: int64(rnd.IntN(4)), Revision: int64(rnd.IntN(20)),
				Phase: phases[rnd.IntN(len(phases))], Reason: strings.Repeat("x", rnd.IntN(3)),
			}
			next, ok := see(&have, r)
			if !ok {
				continue
			}
			if next.Attempt < last.Attempt || next.Attempt == last.Attempt && next.Revision < last.Revision {
				t.Fatalf("seed %d: %+v after %+v", seed, next, last)
			}
			if next.Attempt == last.Attempt && last.State != "" &&
				(last.State.final() && !next.State.final() || last.State == Success || last.State == Running && next.State == Pending) {
				t.Fatalf("seed %d: %+v after %+v", seed, next, last)
			}
			last = next
		}
	}
}

func TestDue(t *testing.T) {
	now := testTime
	name := func(i int) string { return fmt.Sprintf("%040d", i) }
	entries := map[string]*entry{}
	add := func(i int, e entry) {
		e.intent.Commit, e.intent.Attempt = name(i), int64(i)
		entries[name(i)] = &e
	}
	expect := func(what, commit string, wait time.Duration) {
		t.Helper()
		if got, left := due(entries, now); got != commit || left != wait {
			t.Errorf("%s: %q, %s; want %q, %s", what, got, left, commit, wait)
		}
	}
	expect("nothing", "", -1)
	add(9, entry{intent: Intent{Settled: true}})
	expect("all is settled", "", -1)
	add(1, entry{hold: now.Add(5 * time.Second)})
	add(2, entry{retry: now.Add(3 * time.Second)})
	expect("the earliest", "", 3*time.Second)
	add(3, entry{})
	add(4, entry{})
	add(5, entry{tries: 1})
	expect("the newest of those that did not fail", name(4), 0)
	add(6, entry{intent: Intent{State: Running, Description: "b"}, sent: &Intent{State: Running, Attempt: 6}, sentAt: now, sends: 2})
	expect("progress waits", name(4), 0)
	add(6, entry{intent: Intent{State: Success}, sent: &Intent{State: Running, Attempt: 6}, sentAt: now, sends: 2})
	expect("an end does not", name(6), 0)
}

func TestPauseGrows(t *testing.T) {
	last := time.Duration(0)
	for n := range 100 {
		p := pause(n)
		if p < last || p > time.Hour {
			t.Errorf("%d: %s after %s", n, p, last)
		}
		last = p
	}
	if pause(0) != 0 || pause(1) != 10*time.Second || last != time.Hour {
		t.Errorf("%s, %s, %s", pause(0), pause(1), last)
	}
}

func TestBackoff(t *testing.T) {
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 1000000: time.Minute} {
		if got := backoff(n, time.Second, time.Minute, 0.5); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	if lo, hi := backoff(1, 10*time.Second, time.Minute, 0), backoff(1, 10*time.Second, time.Minute, 1); lo != 9*time.Second || hi != 11*time.Second {
		t.Errorf("%s to %s", lo, hi)
	}
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		r     Report
		state State
		text  string
	}{
		{Report{Phase: Waiting}, Pending, "waiting to be applied"},
		{Report{Phase: RollingOut, Reason: "Deployment shop/web: 1 of 3"}, Running, "rolling out: Deployment shop/web: 1 of 3"},
		{Report{Phase: Healthy}, Success, "applied and healthy"},
		{Report{Phase: Refused, Reason: "web.yaml:3:7: spec.replica: unknown field\n\t(replicas?)"}, Failure, "refused, nothing was changed: web.yaml:3:7: spec.replica: unknown field (replicas?)"},
		{Report{Phase: Failed, Reason: "a\x1b[2Jb\u202ec\xff"}, Failure, "failed: a [2Jb c\uFFFD"},
		{Report{Phase: Superseded, Reason: "by 1234567"}, Canceled, "superseded before it was done: by 1234567"},
	} {
		if state, text := describe(c.r); state != c.state || text != c.text {
			t.Errorf("%+v: %s %q", c.r, state, text)
		}
	}
	_, text := describe(Report{Phase: Failed, Reason: strings.Repeat("ü", 1000)})
	if n := utf8.RuneCountInString(text); n != maxDescription || !strings.HasSuffix(text, "ü…") {
		t.Errorf("%d characters: %q", n, text)
	}
}

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		s    string
		most int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöü", 3, "äöü"}, {"äöüß", 3, "äö…"}, {"日本語です", 4, "日本語…"}, {"ab", 1, "…"},
	} {
		if got := truncate(c.s, c.most); got != c.want {
			t.Errorf("%q to %d: %q", c.s, c.most, got)
		}
	}
}

func TestContext(t *testing.T) {
	for _, c := range []struct{ cluster, path, want string }{
		{"main", "", "headway/main"}, {"main", ".", "headway/main"}, {"main", "/", "headway/main"},
		{"prod", "apps/shop/", "headway/prod/apps/shop"},
	} {
		if got := Context(c.cluster, c.path); got != c.want {
			t.Errorf("%s %s: %s", c.cluster, c.path, got)
		}
	}
	a, b := Context("main", strings.Repeat("x", 300)+"a"), Context("main", strings.Repeat("x", 300)+"b")
	if a == b || utf8.RuneCountInString(a) > 255 || utf8.RuneCountInString(b) > 255 {
		t.Errorf("%q and %q", a, b)
	}
}

func TestFollowsSaysWhichRefIsOurs(t *testing.T) {
	for ref, want := range map[string]bool{
		"refs/heads/headway/main/live": true, "refs/notes/headway/main": true, "refs/headway/main/keep/x": true,
		"refs/heads/main": false, "refs/heads/headway": false, "refs/heads/headway-fix": false, "refs/notes/commits": false, "refs/tags/headway/1": false,
	} {
		if ours(ref) != want {
			t.Errorf("%s: %v", ref, !want)
		}
	}
}
