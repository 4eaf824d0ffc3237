package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
)

// desired is what a commit declares, by key. It shares with the one that it was
// made after whatever is the same, so that it costs what the commit changed.
type desired struct {
	commit, path string
	list         []*api.Manifest             // each object once
	base         map[store.Key]*api.Manifest // shared: never changed
	over         map[store.Key]*api.Manifest // what is not as in base; nil: not declared
	autoscalers  []*api.Manifest             // of list
	problems     []api.Problem               // of the rendering, and objects that are declared twice
	outside      []api.Problem               // what the source may not write; it is not in list
	warnings     []api.Problem
	skipped      []api.Problem
	config       *api.Config // never nil
}

// maxOver bounds over: beyond it a new base costs less.
const maxOver = 500

// newDesired takes over from before, which may be nil, what is the same there.
func newDesired(commit, path string, r Rendered, before *desired) *desired {
	d := &desired{commit: commit, path: path, problems: append([]api.Problem(nil), r.Problems...), warnings: r.Warnings, skipped: r.Skipped, config: r.Config}
	if d.config == nil {
		defaults := api.DefaultConfig()
		d.config = &defaults
	}
	if before == nil || len(before.problems)+len(r.Problems) > 0 || !d.follow(before, r.Manifests) {
		d.build(r.Manifests)
	}
	for _, m := range d.list {
		if m.Kind.Resource == api.HorizontalPodAutoscalers().Resource {
			d.autoscalers = append(d.autoscalers, m)
		}
	}
	return d
}

// build makes d from its manifests alone.
func (d *desired) build(manifests []*api.Manifest) {
	d.list, d.base, d.over = make([]*api.Manifest, 0, len(manifests)), make(map[store.Key]*api.Manifest, len(manifests)), nil
	for _, m := range manifests {
		key := keyOf(m)
		if first, twice := d.base[key]; twice {
			d.problems = append(d.problems, problem(m, "metadata.name", fmt.Sprintf("%s is already declared in %s: an object may stand in one place only", titleOf(key), place(first))))
			continue
		}
		d.base[key] = m
		d.list = append(d.list, m)
	}
}

// follow makes d from before and what differs; it says false when too much does,
// or when an object stands in two places.
func (d *desired) follow(before *desired, manifests []*api.Manifest) bool {
	if len(manifests) > len(before.list)+maxOver || len(before.list) > len(manifests)+maxOver {
		return false
	}
	d.list, d.base, d.over = slices.Clone(manifests), before.base, make(map[store.Key]*api.Manifest, len(before.over)+8)
	maps.Copy(d.over, before.over)
	var added []int
	ok := compareLists(before.list, manifests, func(old, new int) bool {
		switch {
		case new < 0:
			d.over[keyOf(before.list[old])] = nil
		case old < 0:
			added = append(added, new)
		default:
			d.list[new] = before.list[old]
		}
		return len(d.over)+len(added) <= maxOver
	})
	if !ok {
		return false
	}
	for _, i := range added {
		key := keyOf(manifests[i])
		if d.manifest(key) != nil {
			return false
		}
		d.over[key] = manifests[i]
	}
	return true
}

// reports says whether drift of the objects of a file is only told.
func (d *desired) reports(path string) bool {
	return d != nil && d.config.DriftAt(path) == api.DriftReport
}

// manifest returns nil for an object that is not declared.
func (d *desired) manifest(key store.Key) *api.Manifest {
	if d == nil {
		return nil
	}
	if m, changed := d.over[key]; changed {
		return m
	}
	return d.base[key]
}

// keys are those of the declared objects, in the order of list.
func (d *desired) keys() []store.Key {
	if d == nil {
		return nil
	}
	out := make([]store.Key, 0, len(d.list))
	for _, m := range d.list {
		out = append(out, keyOf(m))
	}
	return out
}

// renders remembers what the last few commits declare.
type renders struct {
	mu      sync.Mutex
	entries []*desired // newest last
}

const maxRenders = 3

// render reads what a commit declares, from memory when it was read lately.
func (s *Syncer) render(ctx context.Context, commits Commits, commit, path string) (*desired, error) {
	if d := s.renders.get(commit, path); d != nil {
		return d, nil
	}
	r, err := commits.Render(ctx, commit, path)
	if err != nil {
		return nil, err
	}
	outside := s.limit(&r)
	r.Manifests = slices.Clone(r.Manifests) // the renderer's, which goes on from it
	for i, m := range r.Manifests {
		r.Manifests[i] = admitted(m)
	}
	d := newDesired(commit, path, r, s.renders.last(path))
	d.outside = outside
	s.cfg.Log.Debug("commit rendered", "commit", commit, "objects", len(d.list), "files read", r.Read, "kustomizations built", r.Built)
	s.renders.put(d)
	return d, nil
}

func (c *renders) get(commit, path string) *desired {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.entries {
		if d.commit == commit && d.path == path {
			return d
		}
	}
	return nil
}

// last is what was rendered last of a folder.
func (c *renders) last(path string) *desired {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range slices.Backward(c.entries) {
		if d.path == path {
			return d
		}
	}
	return nil
}

func (c *renders) put(d *desired) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = append(c.entries, d)
	if len(c.entries) > maxRenders {
		c.entries = append([]*desired(nil), c.entries[1:]...)
	}
}

// load makes desired that of the applied commit.
func (s *Syncer) load(ctx context.Context, src *api.Source) error {
	if s.desired != nil && s.desired.commit == src.Status.Applied {
		return nil
	}
	d, err := s.render(ctx, s.cfg.Commits, src.Status.Applied, src.Status.Path)
	if err != nil {
		return fmt.Errorf("read the applied commit: %w", err)
	}
	if len(d.problems) > 0 {
		var cause []error
		for _, p := range d.problems {
			cause = append(cause, errors.New(p.String()))
		}
		return reconcile.Terminal(fmt.Errorf("commit %s was applied and cannot be read any more, so nothing is healed: push a commit that this version accepts: %w", short(src.Status.Applied), errors.Join(cause...)))
	}
	s.use(d)
	return nil
}

// use takes what a commit declares as that of the applied one.
func (s *Syncer) use(d *desired) {
	s.desired = d
	s.poll.every(d.interval(s.cfg.Poll))
	s.mu.Lock()
	s.known = d
	s.mu.Unlock()
}

// base looks for the manifest that an object was made from among those that are
// at hand.
func (s *Syncer) base(key store.Key, from api.Provenance) *api.Manifest {
	s.mu.Lock()
	d := s.known
	s.mu.Unlock()
	if m := d.manifest(key); m != nil && m.Hash == from.Hash {
		return m
	}
	return nil
}

// unsaid leaves out what a plan says of whole documents in files that do not
// decode: that has been said already, with its field.
func (d *desired) unsaid(problems []api.Problem) []api.Problem {
	return slices.DeleteFunc(problems, func(p api.Problem) bool {
		return p.Field == "" && slices.ContainsFunc(d.problems, func(q api.Problem) bool { return q.Path == p.Path })
	})
}

// trusted leaves out deletions of what stands in a file that could not be read.
func (d *desired) trusted(gone []deletion) []deletion {
	if len(d.problems) == 0 {
		return gone
	}
	return slices.DeleteFunc(gone, func(g deletion) bool {
		return slices.ContainsFunc(d.problems, func(q api.Problem) bool { return q.Path == g.from.Path })
	})
}

// whole says whether no file with a problem has given nothing at all: what such a
// one declares would be missed everywhere. What stands in two places is not missed.
func (d *desired) whole() bool {
	for _, p := range d.problems {
		if p.Field != "metadata.name" && !slices.ContainsFunc(d.list, func(m *api.Manifest) bool { return m.Path == p.Path }) {
			return false
		}
	}
	return true
}

// compareLists walks over two lists that are in the order of path and line, and
// gives each pair of the same manifest, and each manifest that stands in one list
// only (-1 for the other), until visit says false. Lists in another order give
// more of the latter, no less.
func compareLists(before, after []*api.Manifest, visit func(before, after int) bool) bool {
	i, j := 0, 0
	for i < len(before) || j < len(after) {
		at := 0
		switch {
		case i == len(before):
			at = 1
		case j == len(after):
			at = -1
		case same(before[i], after[j]):
			if before[i] != after[j] && !visit(i, j) {
				return false
			}
			i, j = i+1, j+1
			continue
		default:
			at = cmp.Or(cmp.Compare(before[i].Path, after[j].Path), cmp.Compare(before[i].Line, after[j].Line))
		}
		if at <= 0 {
			if !visit(i, -1) {
				return false
			}
			i++
		}
		if at >= 0 {
			if !visit(-1, j) {
				return false
			}
			j++
		}
	}
	return true
}

// same says whether two manifests are one: decoded once, from one place.
func same(a, b *api.Manifest) bool {
	return a == b || a.Object == b.Object && a.Path == b.Path && a.Line == b.Line && a.Hash == b.Hash
}
