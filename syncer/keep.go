package syncer

import (
	"context"
	"fmt"
	"sync"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// provenances counts the live objects that each commit is the provenance of, so that a
// commit costs what it changes, and not what there is. Objects are counted once, and
// events keep it up.
type provenances struct {
	mu    sync.Mutex
	count map[string]int // nil: not counted yet
	from  int64          // the revision at which all was counted
	at    int64          // the newest revision whose events are in count
}

// note takes events into account. of gives the commit of an object, or "".
func (p *provenances) note(events []store.Event, of func(api.Object) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == nil {
		return
	}
	for _, e := range events {
		if e.Revision <= p.from {
			continue
		}
		p.at = max(p.at, e.Revision)
		if kind, known := api.ResourceKind(e.Key.GroupResource); !known || !kind.Declarable {
			continue
		}
		before, after := of(e.Previous), of(e.Object)
		if before == after {
			continue
		}
		if after != "" {
			p.count[after]++
		}
		if before == "" {
			continue
		}
		if p.count[before]--; p.count[before] == 0 {
			delete(p.count, before)
		}
	}
}

// commits are those of the count when it has the revision since, else those that
// recount finds, at the store's revision as now tells it.
func (p *provenances) commits(since int64, now func() int64, recount func() map[string]int) map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := p.count
	if count == nil || p.at < since {
		before := now()
		count = recount()
		p.count = nil
		if now() == before { // else it is of no one revision
			p.count, p.from, p.at = count, before, before
		}
	}
	out := make(map[string]bool, len(count)+1)
	for commit := range count {
		out[commit] = true
	}
	return out
}

// commitOf is the commit that made an object that the source declares, or did; ""
// for any other.
func (s *Syncer) commitOf(obj api.Object) string {
	if !s.owns(obj) {
		return ""
	}
	from, _ := api.ProvenanceOf(obj)
	return from.Commit
}

// countCommits lists every object.
func (s *Syncer) countCommits() map[string]int {
	count := map[string]int{}
	for _, obj := range s.owned() {
		if commit := s.commitOf(obj); commit != "" {
			count[commit]++
		}
	}
	return count
}

// keepCommits makes the repository keep every commit that a provenance names,
// once per applied commit. Until then the ref itself keeps the newest.
func (s *Syncer) keepCommits(ctx context.Context, src *api.Source) error {
	if s.kept == src.Status.Applied || s.behind() {
		return nil
	}
	s.mu.Lock()
	wrote := s.wrote
	s.mu.Unlock()
	names := s.provenances.commits(wrote, s.cfg.Store.Revision, s.countCommits)
	names[src.Status.Applied] = true
	if err := s.cfg.Commits.Keep(ctx, sortedNames(names)); err != nil {
		return fmt.Errorf("keep the commits that objects were made from: %w", err)
	}
	s.kept = src.Status.Applied
	return nil
}
