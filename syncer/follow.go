package syncer

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// Bounds of what one Follow prints and how long it lasts.
const (
	followFor   = 10 * time.Minute
	followLines = 1000
)

// plans remembers what judged commits change, for those who follow them.
type plans struct {
	mu      sync.Mutex
	entries []planned // newest last
}

type planned struct {
	commit string
	line   string
	gone   []store.Key // deleted for good
}

const maxPlans = 16

func (p *plans) put(v *Verdict) {
	e := planned{commit: v.Commit, line: v.Plan()}
	for _, step := range v.steps {
		if step.Verb == Delete && step.Manifest == nil {
			e.gone = append(e.gone, step.Key)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries = slices.DeleteFunc(p.entries, func(old planned) bool { return old.commit == v.Commit })
	p.entries = append(p.entries, e)
	if len(p.entries) > maxPlans {
		p.entries = append([]planned(nil), p.entries[1:]...)
	}
}

func (p *plans) get(commit string) (planned, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.commit == commit {
			return e, true
		}
	}
	return planned{}, false
}

// Follow prints what becomes of a commit: what it changes, then a line whenever
// an object changes its state, then one line in the end: healthy, failed, refused
// or superseded. It sleeps until the store changes. It returns when that line is
// printed, when ctx ends, or when w can no longer be written; the error is of w
// or of ctx and concerns nobody but the reader.
func (s *Syncer) Follow(ctx context.Context, commit string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, followFor)
	defer cancel()
	wake := s.watch.add()
	defer s.watch.remove(wake)
	f := follower{s: s, commit: commit, w: w, start: s.cfg.Now(), shown: map[store.Key]string{}, settled: map[store.Key]bool{}}
	for {
		done, err := f.look(ctx)
		if done || err != nil {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			if context.Cause(ctx) == context.DeadlineExceeded {
				return f.line("still under way after %s; `headway status` shows how it goes on", followFor)
			}
			return ctx.Err()
		}
	}
}

type follower struct {
	s       *Syncer
	commit  string
	w       io.Writer
	start   time.Time
	started bool        // the plan is printed
	seen    bool        // commit has been the head, as the cache sees it
	older   string      // a head that is no descendant of commit
	listed  bool        // follow and gone are known
	follow  []store.Key // what the commit made or changed, and is not settled
	gone    []store.Key // what it deletes, and is still there
	shown   map[store.Key]string
	settled map[store.Key]bool // every object that was looked at
	failure string
	lines   int
	message string // of the source, last printed
}

func (f *follower) line(format string, args ...any) error {
	_, err := fmt.Fprintf(f.w, format+"\n", args...)
	return err
}

// object prints one object's line, within bounds.
func (f *follower) object(key store.Key, text string) error {
	if f.shown[key] == text {
		return nil
	}
	f.shown[key] = text
	if f.lines++; f.lines > followLines {
		return nil
	}
	if f.lines == followLines {
		return f.line("… and more, which are not listed")
	}
	kind, _ := api.ResourceKind(key.GroupResource)
	return f.line("%s  %s", title(kind.Kind, key.Namespace, key.Name), text)
}

// look prints what has changed since the last look, and says whether that was
// the end.
func (f *follower) look(ctx context.Context) (bool, error) {
	if err := f.begin(ctx); err != nil {
		return false, err
	}
	src := f.s.source()
	if src == nil {
		return false, nil
	}
	head := src.Status.Head
	if f.s.cfg.Fetch == nil {
		head = f.s.hosted(src)
	}
	switch {
	case src.Status.Refused == f.commit:
		for _, p := range src.Status.Problems {
			if err := f.line("%s", p); err != nil {
				return false, err
			}
		}
		return true, f.line("refused: %s", src.Status.Message)
	case head == f.commit:
		f.seen = true
	case head != "":
		newer, err := f.superseded(ctx, head)
		if newer && err == nil {
			err = f.line("superseded by commit %s", short(head))
		}
		if newer || err != nil {
			return newer, err
		}
	}
	switch {
	case src.Status.Applied != f.commit && paused(src, f.s.cfg.Now()) != nil:
		return true, f.line("accepted: this cluster is %s", PauseText(src.Orders.Pause))
	case src.Status.Applied != f.commit:
		if m := src.Status.Message; m != "" && m != f.message {
			f.message = m
			return false, f.line("%s", m)
		}
		return false, nil
	}
	return f.rollout()
}

// superseded says whether head came after the commit. Just after a push the cache
// may still show what was before it.
func (f *follower) superseded(ctx context.Context, head string) (bool, error) {
	if f.seen || f.older == head {
		return f.seen, nil
	}
	newer, err := f.s.cfg.Commits.IsAncestor(ctx, f.commit, head)
	if err != nil {
		return false, fmt.Errorf("compare commit %s with %s: %w", short(f.commit), short(head), err)
	}
	if !newer {
		f.older = head
	}
	return newer, nil
}

// begin prints the plan, once.
func (f *follower) begin(ctx context.Context) error {
	if f.started {
		return nil
	}
	f.started = true
	p, ok := f.s.plans.get(f.commit)
	if !ok {
		v, err := f.s.Judge(ctx, Candidate{Commit: f.commit})
		if err != nil {
			return fmt.Errorf("plan of commit %s: %w", short(f.commit), err)
		}
		if !v.OK() {
			return nil // the syncer's own verdict is what counts, and comes
		}
		f.s.plans.put(v)
		p, _ = f.s.plans.get(f.commit)
	}
	f.gone = slices.Clone(p.gone)
	return f.line("%s", p.line)
}

// rollout looks at the objects of the applied commit.
func (f *follower) rollout() (bool, error) {
	if !f.listed {
		f.listed = true
		for key, obj := range f.s.owned() {
			if from, _ := api.ProvenanceOf(obj); from.Commit == f.commit {
				f.follow = append(f.follow, key)
			}
		}
		f.follow = append(f.follow, f.s.readersOf(f.follow)...)
		slices.SortFunc(f.follow, compareKeys)
	}
	done := f.s.doneRecords()
	waiting := f.follow[:0]
	failed := 0
	f.failure = ""
	for _, key := range f.follow {
		live := f.s.cfg.Store.Get(key)
		state, message := f.s.health(key, live, done[key])
		text := message
		if state == Healthy && !storedOnly(key) {
			text = fmt.Sprintf("healthy (%s)", seconds(f.s.cfg.Now().Sub(f.start)))
		}
		if state == Failed {
			text = "failed: " + message
			failed++
			if f.failure == "" {
				kind, _ := api.ResourceKind(key.GroupResource)
				f.failure = title(kind.Kind, key.Namespace, key.Name) + ": " + message
			}
		}
		if err := f.object(key, text); err != nil {
			return false, err
		}
		f.settled[key] = true
		if state != Healthy {
			waiting = append(waiting, key)
		}
	}
	f.follow = waiting
	left := f.gone[:0]
	for _, key := range f.gone {
		if f.s.cfg.Store.Get(key) != nil {
			left = append(left, key)
			continue
		}
		if err := f.object(key, "deleted"); err != nil {
			return false, err
		}
	}
	f.gone = left
	took := seconds(f.s.cfg.Now().Sub(f.start))
	switch {
	case len(f.follow) > failed || len(f.gone) > 0:
		return false, nil
	case failed > 0:
		return true, f.line("failed after %s: %s", took, f.failure)
	}
	return true, f.line("healthy: commit %s, %s, %s", short(f.commit), plural(len(f.settled), "object"), took)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", max(d, 0).Seconds()) }
