package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/git"
)

// LiveConfig is what a LiveRef needs beside the Syncer whose drift it tells.
type LiveConfig struct {
	Repository interface {
		Live(ctx context.Context) (string, error)
		Commit(ctx context.Context, hash string) (git.Commit, error)
		WriteLive(ctx context.Context, c git.LiveCommit, ready func(context.Context) error) (string, error)
	}
	// Edits gives the files that show the drift: the tree of commit with them
	// declares what is live. It must be a function of its arguments.
	Edits func(ctx context.Context, commit string, drift []Shown) ([]git.Edit, error)
	// Adopt takes over what the forge has; nil: the repository is hosted here.
	Adopt func(ctx context.Context) error
	// Wrote is told that the ref has moved. May be nil.
	Wrote func()
	// Suffix of each commit's subject: what keeps a forge's own CI from running.
	Suffix  string
	Cluster string // in the address that Headway signs with
	Seed    uint64
	Metrics prometheus.Registerer
}

// Shown is the drift of one object, for the files that show it.
type Shown struct {
	Manifest *api.Manifest
	Deleted  bool
	Live     map[string]any // DriftRecord.Live; nil when it is not known
	Fields   []string       // that differ
}

// LiveRef keeps the live ref: the tree of the applied commit with what is really
// live. Only the leader runs it.
//
// The records of the drift are its intent (R4): a commit is written first, on the
// condition that the ref is where it was and right after a check of the fence, and
// then the record says so. A kill between the two makes it write again, which changes
// nothing, as the tree is the same.
type LiveRef struct {
	s      *Syncer
	cfg    LiveConfig
	loop   *reconcile.Loop
	tokens float64   // commits that may be written now
	filled time.Time // when tokens was right
	// adopted says that the forge was asked in this Run for what another leader, or an
	// earlier clone, has left there. ask is when it is asked again, after failed tries.
	adopted bool
	ask     time.Time
	failed  int
}

// NewLiveRef makes the live ref of a Syncer's source.
func NewLiveRef(s *Syncer, cfg LiveConfig) *LiveRef {
	l := &LiveRef{s: s, cfg: cfg, tokens: liveBurst}
	mine := func(e store.Event) []reconcile.Key {
		if e.Key != s.key {
			return nil
		}
		return []reconcile.Key{s.key}
	}
	told := func(e store.Event) []reconcile.Key {
		for _, obj := range []api.Object{e.Object, e.Previous} {
			if r, ok := obj.(*api.DriftRecord); ok && r.Source == s.cfg.Source {
				return []reconcile.Key{s.key}
			}
		}
		return nil
	}
	l.loop = reconcile.New(reconcile.Config{
		Name:       s.named("liveref"),
		Reconciler: l,
		Watches:    []reconcile.Watch{{Resource: api.Sources(), Keys: mine}, {Resource: api.DriftRecords(), Keys: told}},
		List:       func() []reconcile.Key { return []reconcile.Key{s.key} },
		Resync:     s.cfg.Resync,
		Workers:    1,
		Log:        s.cfg.Log,
		Now:        s.cfg.Now,
		Seed:       cfg.Seed,
		Metrics:    cfg.Metrics,
	})
	return l
}

// Run keeps the live ref until ctx ends. Only the leader runs it.
func (l *LiveRef) Run(ctx context.Context) error {
	l.adopted, l.ask, l.failed = false, time.Time{}, 0
	return l.loop.Run(ctx)
}

// Step does one piece of work, and says whether there was any.
func (l *LiveRef) Step(ctx context.Context) bool { return l.loop.Step(ctx) }

// Next is when Step has something to do although no event came.
func (l *LiveRef) Next() time.Time { return l.loop.Next() }

// Wake says that somebody else has moved the ref: it was taken over from a forge.
func (l *LiveRef) Wake() { l.loop.Wake(l.s.key) }

// Handle is for store.OnEvents.
func (l *LiveRef) Handle(events []store.Event) { l.loop.Handle(events) }

// Reconcile writes at most one commit.
func (l *LiveRef) Reconcile(ctx context.Context, _ reconcile.Key) error {
	src := l.s.source()
	if src == nil || src.Status.Applied == "" {
		return nil
	}
	tip, shown, err := l.tip(ctx)
	if err != nil {
		return err
	}
	if l.cfg.Adopt != nil && !l.adopted && (tip == "" || !l.s.cfg.Now().Before(l.ask)) {
		err := l.cfg.Adopt(ctx)
		switch {
		case err == nil:
			l.adopted = true
			l.loop.Wake(l.s.key) // the ref may be elsewhere now
			return nil
		case tip == "" || ctx.Err() != nil:
			return err
		}
		l.postpone(err)
	}
	now := l.s.cfg.Now()
	l.refill(now)
	step, wait, forget := planLive(liveState{applied: src.Status.Applied, shown: shown, records: l.s.driftRecords(), tokens: int(l.tokens), now: now})
	if err := l.forget(ctx, forget); err != nil {
		return err
	}
	if step != nil {
		if err := l.write(ctx, src, tip, step); err != nil {
			if errors.Is(err, git.ErrMoved) {
				return store.ErrConflict // by our own hand, in an earlier call
			}
			return err
		}
		l.loop.Wake(l.s.key) // for what comes after it
		return nil
	}
	if !l.adopted && l.cfg.Adopt != nil && (wait.IsZero() || l.ask.Before(wait)) {
		wait = l.ask
	}
	if wait.IsZero() {
		return nil
	}
	return reconcile.After(max(wait.Sub(now), time.Millisecond), "until the live ref has more to tell")
}

// postpone leaves a forge alone for a while that has not said where its live ref is:
// the one that is here is written on meanwhile.
func (l *LiveRef) postpone(err error) {
	if l.failed == 0 {
		l.s.cfg.Log.Warn("where the forge has the live ref is not known; ours is written on, and the forge is asked again", "error", err)
	}
	l.ask = l.s.cfg.Now().Add(pauseAfter(l.failed))
	l.failed++
}

// tip is where the live ref is, and the applied commit that it names.
func (l *LiveRef) tip(ctx context.Context) (tip, shown string, err error) {
	tip, err = l.cfg.Repository.Live(ctx)
	if errors.Is(err, git.ErrNotFound) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("read the live ref: %w", err)
	}
	c, err := l.cfg.Repository.Commit(ctx, tip)
	if err != nil {
		return "", "", fmt.Errorf("read the live ref: %w", err)
	}
	for _, t := range c.Trailers {
		if strings.EqualFold(t.Key, "Headway-Commit") {
			return tip, t.Value, nil
		}
	}
	return "", "", reconcile.Terminal(fmt.Errorf("the live ref is at %s, which Headway did not write: delete the branch, and it is made again", tip))
}

// refill adds the commits that may be written since the last look.
func (l *LiveRef) refill(now time.Time) {
	if !l.filled.IsZero() && now.After(l.filled) {
		l.tokens = min(liveBurst, l.tokens+float64(now.Sub(l.filled))/float64(liveRefill))
	}
	l.filled = now
}

// write writes the commit of a step, and notes on the records that it is told.
func (l *LiveRef) write(ctx context.Context, src *api.Source, tip string, step *liveStep) error {
	shown, err := l.shown(ctx, src, step)
	if err != nil {
		return err
	}
	edits, err := l.cfg.Edits(ctx, step.base, shown)
	if err != nil {
		return fmt.Errorf("show the drift in the files of commit %s: %w", short(step.base), err)
	}
	c := l.commitOf(step)
	c.Old, c.Edits = tip, edits
	commit, err := l.cfg.Repository.WriteLive(ctx, c, l.s.stillLeader)
	if err != nil {
		return err
	}
	if commit != tip {
		l.tokens--
		l.s.cfg.Log.Debug("live ref", "commit", commit, "event", step.event, "objects", len(step.tell))
		if l.cfg.Wrote != nil {
			l.cfg.Wrote()
		}
	}
	return l.told(ctx, step)
}

// commitOf is the commit of a step, but for its place and its files.
func (l *LiveRef) commitOf(step *liveStep) git.LiveCommit {
	us := git.Identity{Name: "Headway", Mail: "headway@" + l.cfg.Cluster}
	now := l.s.cfg.Now().UTC()
	c := git.LiveCommit{Applied: step.base, Author: us, Committer: us, Authored: now, Committed: now}
	actor := us.Name
	if by, one := step.actor(); one {
		name := by.User
		if name == "" {
			name = "unknown"
		}
		c.Author, actor = git.Identity{Name: name, Mail: name + "@headway"}, by.String()
	}
	if len(step.tell) == 1 {
		at := step.tell[0].Changed.Time
		if step.event == liveHealed {
			at = step.tell[0].Healed.Time
		}
		c.Authored = at.UTC()
	}
	c.Message = strings.TrimSpace(api.Printable(step.subject()) + " " + l.cfg.Suffix)
	if body := step.body(); body != "" {
		c.Message += "\n\n" + body
	}
	c.Trailers = []git.Trailer{{Key: "Headway-Event", Value: step.event}, {Key: "Headway-Actor", Value: actor}}
	for i, r := range step.tell {
		if i == maxNamed {
			break
		}
		c.Trailers = append(c.Trailers, git.Trailer{Key: "Headway-Object", Value: r.Object.Title()})
	}
	return c
}

// shown is what the files of a step have to show. A drift from another manifest
// than the commit's cannot be shown there.
func (l *LiveRef) shown(ctx context.Context, src *api.Source, step *liveStep) ([]Shown, error) {
	if len(step.show) == 0 {
		return nil, nil
	}
	d, err := l.s.render(ctx, l.s.cfg.Commits, step.base, l.s.pathAt(src))
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", short(step.base), err)
	}
	var out []Shown
	for _, r := range step.show {
		m := d.manifest(keyOfRef(r.Object))
		if m == nil || m.Hash != r.Hash {
			continue
		}
		s := Shown{Manifest: m, Deleted: r.Deleted}
		for _, f := range r.Fields {
			s.Fields = append(s.Fields, f.Path)
		}
		if len(r.Live) > 0 {
			if err := json.Unmarshal(r.Live, &s.Live); err != nil {
				return nil, fmt.Errorf("drift record of %s: %w", r.Object.Title(), err)
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Shown) int { return compareKeys(keyOf(a.Manifest), keyOf(b.Manifest)) })
	return out, nil
}

// told notes on the records what the live ref has told of them.
func (l *LiveRef) told(ctx context.Context, step *liveStep) error {
	for chunk := range slices.Chunk(step.tell, store.BulkObjects) {
		var ops []store.Op
		for _, r := range chunk {
			out := r.DeepCopyObject().(*api.DriftRecord)
			out.Told, out.Shown = r.Digest(), step.event == liveDrift
			ops = append(ops, store.Op{Verb: store.Update, Object: out})
		}
		if err := l.s.commitApart(ctx, ops); err != nil {
			return err
		}
	}
	return nil
}

func (l *LiveRef) forget(ctx context.Context, records []*api.DriftRecord) error {
	for chunk := range slices.Chunk(records, store.BulkObjects) {
		var ops []store.Op
		for _, r := range chunk {
			ops = append(ops, store.Op{Verb: store.Delete, Object: r})
		}
		if err := l.s.commitApart(ctx, ops); err != nil {
			return err
		}
	}
	return nil
}

// commitApart writes with the fence from beside the syncer's own loop.
func (s *Syncer) commitApart(ctx context.Context, ops []store.Op) error {
	_, err := s.cfg.Store.Commit(ctx, store.Txn{Fence: s.cfg.Fence(), Ops: ops})
	return err
}

// stillLeader asks whether our fence holds, just before something is written outside
// of the store (R4).
func (s *Syncer) stillLeader(ctx context.Context) error {
	return Holds(ctx, s.cfg.Store, s.cfg.Fence())
}
