package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/git"
)

// Comparison is what two states declare differently, by object. Its JSON is what
// `headway diff -o json` prints: names in it do not change.
type Comparison struct {
	From     string   `json:"from"` // a commit, or live
	To       string   `json:"to"`
	Changes  []Change `json:"changes"`
	Problems []Notice `json:"problems,omitempty"` // what of a commit cannot be read
}

// Names that stand for a state beside those of commits.
const (
	NameApplied = "applied" // the applied commit
	NameLive    = "live"    // the declared objects as they are
)

// ErrUnknown is the class of errors of questions about something that is not there.
var ErrUnknown = errors.New("not found")

// unknown is an error of that class, whose text says so by itself.
func unknown(format string, args ...any) error { return &unknownError{fmt.Sprintf(format, args...)} }

type unknownError struct{ text string }

func (e *unknownError) Error() string        { return e.text }
func (e *unknownError) Is(target error) bool { return target == ErrUnknown }

// Finder is a repository as far as people name its commits.
type Finder interface {
	Find(ctx context.Context, name string) (commit string, err error)
}

// Compare says which objects two states declare differently: each a commit (a hash,
// a branch or a tag), applied, or live. Any server may be asked.
func (s *Syncer) Compare(ctx context.Context, r Finder, from, to string) (Comparison, error) {
	a, err := s.stateOf(ctx, r, from)
	if err != nil {
		return Comparison{}, err
	}
	b, err := s.stateOf(ctx, r, to)
	if err != nil {
		return Comparison{}, err
	}
	c := Comparison{From: stateName(a), To: stateName(b), Changes: []Change{}}
	for _, d := range []*desired{a, b} {
		if d != nil {
			c.Problems = append(c.Problems, notices(d.problems)...)
		}
	}
	switch {
	case a == nil && b == nil:
	case a == nil:
		for _, p := range s.besideLive(b) {
			c.add(p.key, p.m, p.live, p.declared)
		}
	case b == nil:
		for _, p := range s.besideLive(a) {
			c.add(p.key, p.m, p.declared, p.live)
		}
	default:
		keys := append(a.keys(), b.keys()...)
		slices.SortFunc(keys, compareKeys)
		for _, key := range slices.Compact(keys) {
			was, is := a.manifest(key), b.manifest(key)
			m := is
			if m == nil {
				m = was
			}
			if was != nil && is != nil && was.Hash == is.Hash && was.Object == is.Object {
				continue
			}
			c.add(key, m, objectOf(was), objectOf(is))
		}
	}
	return c, nil
}

func stateName(d *desired) string {
	if d == nil {
		return NameLive
	}
	return d.commit
}

// stateOf is one side of a comparison; nil: live.
func (s *Syncer) stateOf(ctx context.Context, r Finder, name string) (*desired, error) {
	src := s.source()
	if src == nil || src.Status.Applied == "" {
		return nil, unknown("no commit has been applied yet")
	}
	commit, path := src.Status.Applied, src.Status.Path
	switch name {
	case NameLive:
		return nil, nil
	case NameApplied:
	default:
		var err error
		if commit, err = s.Find(ctx, r, name); err != nil {
			return nil, err
		}
		if commit != src.Status.Applied {
			path = src.Spec.Path
		}
	}
	d, err := s.render(ctx, s.cfg.Commits, commit, path)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", short(commit), err)
	}
	return d, nil
}

// Find is the commit that a person means: HEAD, which is the newest one of the source's
// ref, a hash, a branch or a tag, with the way back from there (HEAD~2). The error is of
// class ErrUnknown when there is none.
func (s *Syncer) Find(ctx context.Context, r Finder, name string) (string, error) {
	full := name
	if base, steps := git.CutSteps(name); base == "HEAD" || base == "@" {
		newest := s.newest()
		if newest == "" {
			return "", unknown("%.100q: there is no commit yet", name)
		}
		full = newest + steps
	}
	commit, err := r.Find(ctx, full)
	if errors.Is(err, git.ErrNotFound) {
		return "", unknown("%.100q is no commit, branch or tag of the repository", name)
	}
	return commit, err
}

func objectOf(m *api.Manifest) api.Object {
	if m == nil {
		return nil
	}
	return m.Object
}

// beside is a declared object and the live one.
type beside struct {
	key            store.Key
	m              *api.Manifest
	declared, live api.Object // declared: the live one as it would be, with the declared fields
}

// besideLive pairs what a commit declares with what is live, where they differ, and
// what the source has made and the commit does not declare.
func (s *Syncer) besideLive(d *desired) []beside {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	keys := d.keys()
	for key := range s.owned() {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareKeys)
	var out []beside
	autoscaled := s.autoscaled(d)
	for _, key := range slices.Compact(keys) {
		m, live := d.manifest(key), s.cfg.Store.Get(key)
		switch {
		case m == nil:
			out = append(out, beside{key: key, live: live})
		case live == nil:
			if done := s.done(key); done == nil || done.Hash != m.Hash {
				out = append(out, beside{key: key, m: m, declared: m.Object})
			}
		default:
			base, told := known.manifest(key), m
			if _, scaled := autoscaled[key]; scaled {
				told = withoutReplicas(m, live)
			}
			want, changed, err := merge(base, told, live)
			if err != nil {
				want, changed = m.Object, []string{""}
			}
			if len(changed) > 0 {
				out = append(out, beside{key: key, m: m, declared: want, live: live})
			}
		}
	}
	return out
}

// add notes a change of an object from a to b, either of which may be nil.
func (c *Comparison) add(key store.Key, m *api.Manifest, a, b api.Object) {
	kind, _ := api.ResourceKind(key.GroupResource)
	change := Change{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: key.Namespace, Name: key.Name}
	if m != nil {
		change.Path, change.Line = m.Path, m.Line
	}
	switch {
	case a == nil && b == nil:
		return
	case a == nil:
		change.Verb = string(Create)
	case b == nil:
		change.Verb = string(Delete)
	default:
		change.Verb = string(Update)
		if change.Fields = fieldChanges(a, b); len(change.Fields) == 0 {
			return
		}
	}
	c.Changes = append(c.Changes, change)
}
