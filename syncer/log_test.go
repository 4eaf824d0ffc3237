package syncer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/git"
	batchv1 "k8s.io/api/batch/v1"
)

// Log and Notes make a world's repository and notebook a History.
func (n *notedWorld) Log(_ context.Context, from string, most int) ([]git.Entry, error) {
	var out []git.Entry
	for c := from; c != "" && len(out) < most; c = n.repo.parents[c] {
		e := git.Entry{Commit: git.Commit{Hash: c, Author: "Ada <ada@example.org>", Subject: "about " + strings.TrimRight(c, "0"), Authored: someTime}}
		if p := n.repo.parents[c]; p != "" {
			e.Parents = []string{p}
		}
		if text, ok := n.book.notes[c]; ok {
			e.Note = []byte(text)
		}
		out = append(out, e)
	}
	return out, nil
}

func (n *notedWorld) Find(_ context.Context, name string) (string, error) { return n.repo.find(name) }

func (n *notedWorld) Notes(context.Context, int) ([]git.Note, error) {
	var out []git.Note
	for c, text := range n.book.notes {
		out = append(out, git.Note{Commit: c, Content: []byte(text)})
	}
	return out, nil
}

// forget drops the receipts of the store, as time does: what is told is then told
// by the notes.
func (n *notedWorld) forget() {
	n.t.Helper()
	for _, r := range n.n.receipts() {
		n.remove("receipts", "", r.Name)
	}
	for more := true; more; {
		var err error
		if more, err = n.st.Step(n.t.Context()); err != nil {
			n.t.Fatal(err)
		}
	}
}

func TestLogAndAt(t *testing.T) {
	n := newNoted(t)
	broken := strings.Replace(configMap("a", "1"), "data: {k", "dat: {k", 1)
	c1 := n.repo.add("c1", "", map[string]string{"web.yaml": app})
	c2 := n.repo.add("c2", "c1", map[string]string{"web.yaml": app, "a.yaml": configMap("a", "1")})
	c3 := n.repo.add("c3", "c2", map[string]string{"web.yaml": app, "a.yaml": configMap("a", "2")})
	c4 := n.repo.add("c4", "c3", map[string]string{"web.yaml": app, "a.yaml": broken})
	start := n.now
	n.push(c1)
	n.runs("web@sha256:aa", 3)
	n.now = n.now.Add(time.Hour)
	n.push(c3)
	n.now = n.now.Add(time.Hour)
	n.push(c4)
	check := func() {
		t.Helper()
		log, err := n.s.Log(t.Context(), n, "", 10)
		if err != nil || len(log) != 4 {
			t.Fatalf("%+v %v", log, err)
		}
		var results []string
		for _, e := range log {
			r := "-"
			if e.Receipt != nil {
				r = string(e.Receipt.Result)
			}
			results = append(results, short(e.Commit)+" "+r+" "+short(e.With)+e.Unread)
		}
		want := []string{short(c4) + " Refused ", short(c3) + " Healthy ", short(c2) + " - " + short(c3), short(c1) + " Healthy "}
		if !slices.Equal(results, want) {
			t.Errorf("log %q", results)
		}
		// At the third commit the Deployment ran as the receipt of the first says.
		ran := ThenObject{Object: "Deployment default/web", Path: "web.yaml", Line: 1, State: "Healthy", Rollout: c1,
			Images: []api.Ran{{Container: "web", Image: "web:1", Digest: "web@sha256:aa"}}}
		objects := []ThenObject{{Object: "ConfigMap default/a", Path: "a.yaml", Line: 1}, ran}
		then, err := n.s.AtCommit(t.Context(), n, c3[:7])
		if err != nil || then.Commit != c3 || !reflect.DeepEqual(then.Objects, objects) || then.Receipt.Result != api.ResultHealthy {
			t.Errorf("at c3: %+v %v", then, err)
		}
		// The refused one never ran.
		then, err = n.s.AtCommit(t.Context(), n, c4)
		if err != nil || then.Receipt.Result != api.ResultRefused || len(then.Objects) == 0 || then.Objects[len(then.Objects)-1].Images != nil {
			t.Errorf("at c4: %+v %v", then, err)
		}
		for at, want := range map[time.Duration]string{time.Minute: c1, 61 * time.Minute: c3, 10 * time.Hour: c3} {
			then, err := n.s.AtTime(t.Context(), n, start.Add(at))
			if err != nil || then.Commit != want || !then.Time.Equal(start.Add(at)) {
				t.Errorf("at %s: %+v %v", at, then, err)
			}
		}
		if _, err := n.s.AtTime(t.Context(), n, start.Add(-time.Hour)); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), start.Format(time.RFC3339)) {
			t.Errorf("before the first: %v", err)
		}
		// HEAD is the newest commit of the branch, whatever a repository's own HEAD says.
		for name, want := range map[string]string{"HEAD": c4, "@~": c3, "HEAD~~~": c1} {
			then, err := n.s.AtCommit(t.Context(), n, name)
			if err != nil || then.Commit != want {
				t.Errorf("at %s: %+v %v", name, then, err)
			}
			log, err := n.s.Log(t.Context(), n, name, 1)
			if err != nil || len(log) != 1 || log[0].Commit != want {
				t.Errorf("log %s: %+v %v", name, log, err)
			}
		}
		if c, err := n.s.Compare(t.Context(), n, "HEAD~~", "HEAD~"); err != nil || c.From != c2 || c.To != c3 || len(c.Changes) != 1 {
			t.Errorf("compare: %+v %v", c, err)
		}
		for _, name := range []string{"fffffff", "HEAD~~~~"} {
			if _, err := n.s.AtCommit(t.Context(), n, name); !errors.Is(err, ErrUnknown) || err.Error() != `"`+name+`" is no commit, branch or tag of the repository` {
				t.Errorf("unknown: %v", err)
			}
		}
	}
	check()
	n.forget()
	check()
	n.book.notes[c3] = "headway-receipt: 9\n"
	if log, err := n.s.Log(t.Context(), n, "", 2); err != nil || !strings.Contains(log[1].Unread, "version 9") {
		t.Errorf("%+v %v", log, err)
	}
}

// What notes say of Jobs counts for a new cluster, and what cannot be read stops it.
func TestR3_DoneJobsAreReadFromTheNotes(t *testing.T) {
	n := newNoted(t)
	c1 := n.repo.add("c1", "", map[string]string{"job.yaml": migrate})
	n.push(c1)
	n.finishJob("migrate", batchv1.JobComplete)
	n.settle()
	c2 := n.repo.add("c2", "c1", map[string]string{"job.yaml": migrate, "a.yaml": strings.Replace(configMap("a", "1"), "data: {k", "dat: {k", 1)})
	n.push(c2) // refused: its receipt tells of no Job
	n.repo.add("c3", "c2", map[string]string{"job.yaml": migrate})
	n.book.notes[commitID("c3")] = "looked at by Bob\n"
	last := "c3"
	for i := range 250 {
		name := fmt.Sprintf("d%dx", i)
		n.repo.add(name, last, nil)
		last = name
	}
	done, err := DoneBefore(t.Context(), n, "main", commitID(last))
	if err != nil || len(done) != 1 || done[0].Name != "migrate" || done[0].Outcome != "Complete" || done[0].Hash == "" {
		t.Fatalf("%+v %v", done, err)
	}
	if done, err := DoneBefore(t.Context(), n, "other", commitID(last)); err != nil || len(done) != 0 {
		t.Errorf("of another source: %+v %v", done, err)
	}
	// A new cluster with these notes.
	w := newWorld(t, func(c *Config) {
		c.Receipts = func(ctx context.Context, commit string) ([]Done, error) { return DoneBefore(ctx, n, "main", commit) }
	})
	w.repo = n.repo
	w.cfg.Commits = n.repo
	w.open()
	w.push(commitID("c3"))
	if w.get("jobs", "default", "migrate") != nil || w.get("donerecords", "default", "migrate") == nil || w.status().Applied != commitID("c3") {
		t.Errorf("the Job ran again; status %+v", w.status())
	}
	n.book.notes[commitID("c3")] = "headway-receipt: 2\n"
	if _, err := DoneBefore(t.Context(), n, "main", commitID(last)); err == nil || !strings.Contains(err.Error(), "git notes remove") {
		t.Errorf("a note of a newer version: %v", err)
	}
}

// A poke ends the wait after a failed fetch.
func TestPokeWakesThePoll(t *testing.T) {
	commit, fetches, fail := "", 0, errors.New("the forge is away")
	w := newWorld(t, func(c *Config) {
		c.Spec = api.SourceSpec{URL: "https://git.example.org/app.git"}
		c.Fetch = func(context.Context, api.SourceSpec, time.Duration) (string, error) { fetches++; return commit, fail }
	})
	w.settle()
	for range 12 { // the wait grows to minutes
		w.now = w.now.Add(6 * time.Minute)
		w.settle()
	}
	before := fetches
	w.settle()
	if fetches != before || w.status().Message == "" {
		t.Fatalf("%d fetches while nothing is due, %+v", fetches-before, w.status())
	}
	commit, fail = w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1")}), nil
	if err := w.s.Poke(t.Context(), w.st); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if w.status().Applied != commit || fetches != before+1 {
		t.Errorf("%d fetches after the poke, %+v", fetches-before, w.status())
	}
	w.settle()
	if fetches != before+1 {
		t.Error("one poke is heeded twice")
	}
}
