package syncer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	"headway.dev/headway/syncer/git"
)

// away is a forge that takes our refs, or says why not.
type away struct {
	answers       []error // of the next pushes; none: as fail says
	fail, adopt   error
	pushes, asked int // asked: whether we lead
	adopts        int
}

func (a *away) push(ctx context.Context, ready func(context.Context) error) error {
	a.pushes++
	if len(a.answers) > 0 {
		err := a.answers[0]
		a.answers = a.answers[1:]
		return err
	}
	if err := ready(ctx); err != nil {
		return err
	}
	a.asked++
	return a.fail
}

// publishing is a world whose own refs go to a forge.
func publishing(t *testing.T) (*telling, *away) {
	a := &away{}
	w := newTelling(t, func(c *LiveConfig) { c.Suffix = "[skip ci]" })
	w.p = NewPublisher(w.s, PublisherConfig{Push: a.push, Adopt: func(context.Context) error { a.adopts++; return a.adopt }})
	w.l.cfg.Wrote = w.p.Wake
	return w, a
}

func TestWhatCannotBePushedIsSaidOnce(t *testing.T) {
	w, a := publishing(t)
	a.fail = git.ErrNotAllowed
	w.setRef("refs/heads/main", w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	w.run(time.Hour)
	if a.pushes < 5 || a.pushes > 30 {
		t.Errorf("%d pushes in an hour", a.pushes)
	}
	if n := strings.Count(w.happened(), "WriteBackFailed"); n != 1 || w.status().WriteBack != "not allowed" {
		t.Errorf("said %d times, status %+v", n, w.status())
	}
	// It is kept across commits, and goes when a push arrives.
	w.setRef("refs/heads/main", w.repo.add("c2", "c1", map[string]string{"web.yaml": edit(app, "web:1", "web:2")}))
	w.run(time.Second)
	if w.status().Applied != commitID("c2") || w.status().WriteBack == "" {
		t.Errorf("status %+v", w.status())
	}
	a.fail = nil
	w.run(time.Hour)
	if w.status().WriteBack != "" {
		t.Errorf("status %+v", w.status())
	}
	contain(t, w.log(), "applied: c20000000000 [skip ci]")
	// Nothing moves: the forge is asked once an hour.
	before := a.pushes
	for range 4 * 6 {
		w.run(10 * time.Minute)
	}
	if n := a.pushes - before; n < 3 || n > 5 {
		t.Errorf("%d pushes in four quiet hours", n)
	}
}

func TestPublisher(t *testing.T) {
	var log bytes.Buffer
	w, a := publishing(t)
	w.s.cfg.Log = textLog(&log)
	w.setRef("refs/heads/main", w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	w.run(time.Second)
	if a.asked == 0 || w.status().WriteBack != "" {
		t.Fatalf("asked %d times whether we lead, status %+v", a.asked, w.status())
	}
	look := func() {
		t.Helper()
		storetest.Settle(t, w.st)
		w.p.Wake()
		w.run(time.Second)
	}
	// Somebody else has moved the notes: they are taken over, and pushed on from there.
	a.answers = []error{fmt.Errorf("x: %w", git.ErrMoved)}
	asked := a.asked
	if look(); a.adopts != 1 || a.asked != asked+1 || w.status().WriteBack != "" {
		t.Errorf("%d adoptions, pushed %d times, status %+v", a.adopts, a.asked-asked, w.status())
	}
	// Two histories: a person must decide, and is told once. Then not allowed, then
	// away: not the first time, and not with what changes from one time to the next.
	for _, c := range []struct {
		push, adopt error
		says        string
	}{
		{git.ErrMoved, fmt.Errorf("apart: %w", git.ErrMoved), "apart"},
		{fmt.Errorf("read only: %w", git.ErrNotAllowed), nil, "read only"},
	} {
		for range 2 {
			a.answers, a.adopt = []error{c.push}, c.adopt
			w.now = w.now.Add(longRetry)
			if look(); !strings.Contains(w.status().WriteBack, c.says) {
				t.Errorf("%s: status %+v", c.says, w.status())
			}
		}
	}
	a.adopt = nil
	w.now = w.now.Add(longRetry)
	if look(); w.status().WriteBack != "" {
		t.Errorf("status %+v", w.status())
	}
	for i, want := range []string{"", silentForge, silentForge} {
		a.answers = []error{fmt.Errorf("dial from port %d: %w", 40000+i, git.ErrUnreachable)}
		w.now = w.now.Add(longRetry)
		if look(); w.status().WriteBack != want {
			t.Errorf("unreachable %d times: status %+v", i+1, w.status())
		}
	}
	w.now = w.now.Add(longRetry)
	if look(); w.status().WriteBack != "" {
		t.Errorf("status %+v", w.status())
	}
	if n := strings.Count(log.String(), "do not reach the forge"); n != 3 || !strings.Contains(log.String(), "reach the forge again") {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}

// A ref that moves many times a minute does not make us try a forge that refuses any
// more often.
func TestPublisherRestsAfterAFailure(t *testing.T) {
	w, a := publishing(t)
	w.setRef("refs/heads/main", w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	w.run(time.Second)
	a.fail = fmt.Errorf("read only: %w", git.ErrNotAllowed)
	before := a.pushes
	for range 600 {
		w.p.Wake()
		w.run(time.Second)
	}
	if n := a.pushes - before; n < 3 || n > 7 { // after 10, 20, 40, … seconds
		t.Errorf("%d pushes in ten minutes", n)
	}
	// A new leadership tries at once; a push that arrives ends the rest.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.p.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	a.fail, before = nil, a.pushes
	for range 2 {
		w.p.Wake()
		w.run(time.Second)
	}
	if a.pushes != before+2 || w.status().WriteBack != "" {
		t.Errorf("%d pushes, status %+v", a.pushes-before, w.status())
	}
}

// R4: a leader that was deposed sends nothing and says nothing.
func TestR4_ADeposedPublisherSaysNothing(t *testing.T) {
	w, a := publishing(t)
	w.setRef("refs/heads/main", w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	w.run(time.Second)
	asked := a.asked
	w.s.cfg.Fence = func() store.Fence { return store.Fence{Key: store.ElectionKey, Revision: 1<<63 - 1} }
	err := w.p.Reconcile(t.Context(), w.s.key)
	if !errors.Is(err, store.ErrFenced) || a.asked != asked || w.status().WriteBack != "" {
		t.Errorf("%v, sent %d times, status %+v", err, a.asked-asked, w.status())
	}
}
