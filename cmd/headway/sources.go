package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer"
)

// sources are the followers of this server: the main source's, and one for each further
// Source that the store has. keep runs on every server; Run, which runs the followers,
// on the leader.
type sources struct {
	store  *store.Store
	open   func(ctx context.Context, src *api.Source) (*follower, error)
	close  func(*follower)
	stale  func(*follower) bool // whether it has to be opened anew although its Source is the same
	clones *clones
	log    *slog.Logger
	wake   chan struct{} // holds one when a Source has changed

	mu    sync.Mutex
	all   map[string]*follower
	fails map[string]error // why a source is not among them
	term  *term            // nil: this server does not lead
}

// term is one leadership's run of the followers.
type term struct {
	ctx   context.Context
	group *errgroup.Group
}

// lookAgain is how often Sources that could not be opened are tried again.
const lookAgain = time.Minute

func newSources(st *store.Store, log *slog.Logger) *sources {
	return &sources{store: st, log: log, wake: make(chan struct{}, 1), all: map[string]*follower{}, fails: map[string]error{}}
}

// Handle is for store.OnEvents.
func (s *sources) Handle(events []store.Event) {
	for _, f := range s.list() {
		f.handle(events)
	}
	for _, e := range events {
		if e.Key.GroupResource == api.Sources() && e.Key.Name != api.MainSource {
			select {
			case s.wake <- struct{}{}:
			default:
			}
			return
		}
	}
}

// list is every follower, the main source's first.
func (s *sources) list() []*follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.all), func(a, b *follower) int {
		switch {
		case a.name == b.name:
			return 0
		case a.name == api.MainSource:
			return -1
		case b.name == api.MainSource:
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
}

// get is the follower of a source; "" is the main one.
func (s *sources) get(name string) (*follower, error) {
	name = cmp.Or(name, api.MainSource)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.all[name]; f != nil {
		return f, nil
	}
	if err := s.fails[name]; err != nil {
		return nil, err
	}
	return nil, &badRequest{http.StatusNotFound, fmt.Sprintf("no source %.100q is followed: headway status lists them", name)}
}

// asked is the follower that a request is about.
func (s *sources) asked(r *http.Request) (*follower, error) {
	return s.get(r.URL.Query().Get("source"))
}

// put adds a follower, and runs it when this server leads.
func (s *sources) put(f *follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[f.name] = f
	s.start(f)
}

// start runs a follower if this server leads. The caller holds mu.
func (s *sources) start(f *follower) {
	if s.term == nil || s.term.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.term.ctx)
	ended := make(chan struct{})
	f.cancel, f.ended = cancel, ended
	s.term.group.Go(func() error {
		defer close(ended)
		defer cancel()
		return f.run(ctx)
	})
}

// drop takes a follower away, once it has stopped.
func (s *sources) drop(f *follower) {
	s.mu.Lock()
	delete(s.all, f.name)
	cancel, ended := f.cancel, f.ended
	s.mu.Unlock()
	if cancel != nil {
		cancel()
		<-ended
	}
	s.close(f)
}

// Run runs every follower, and those that come, until ctx ends.
func (s *sources) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	s.mu.Lock()
	s.term = &term{ctx, group}
	for _, f := range s.all {
		s.start(f)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.term = nil // nobody starts any more
	s.mu.Unlock()
	return group.Wait()
}

// keep has a follower for each Source until ctx ends.
func (s *sources) keep(ctx context.Context) {
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	defer s.clones.end()
	for {
		s.reconcile(ctx)
		s.clones.serve(context.WithoutCancel(ctx)) // until nobody uses them, or the end
		timer.Reset(lookAgain)
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// reconcile opens and drops followers so that they are those of the Sources.
func (s *sources) reconcile(ctx context.Context) {
	wanted := map[string]*api.Source{}
	for _, obj := range s.store.List(api.Sources(), "") {
		if src, ok := obj.(*api.Source); ok && src.Spec.Further() && src.DeletionTimestamp == nil {
			wanted[src.Name] = src
		}
	}
	for _, f := range s.list() {
		src := wanted[f.name]
		switch {
		case !f.spec.Further():
		case src == nil || src.UID != f.uid || !src.Spec.Equal(f.spec) || s.stale(f):
			s.drop(f)
		default:
			delete(wanted, f.name)
		}
	}
	fails := map[string]error{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		f, err := s.open(ctx, wanted[name])
		if err != nil {
			fails[name] = noClone(name, err)
			continue
		}
		s.put(f)
	}
	s.mu.Lock()
	before := s.fails
	s.fails = fails
	s.mu.Unlock()
	for name, err := range fails {
		if ctx.Err() == nil && (before[name] == nil || before[name].Error() != err.Error()) {
			s.log.Error("a source cannot be followed, trying again", "source", name, "error", err)
		}
	}
}

// pokes remembers which sources webhooks have told of, until somebody passes it on.
type pokes struct {
	mu    sync.Mutex
	names map[string]bool
	some  chan struct{} // capacity 1
}

func newPokes() *pokes { return &pokes{names: map[string]bool{}, some: make(chan struct{}, 1)} }

func (p *pokes) add(name string) {
	p.mu.Lock()
	p.names[name] = true
	p.mu.Unlock()
	select {
	case p.some <- struct{}{}:
	default:
	}
}

func (p *pokes) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := slices.Sorted(maps.Keys(p.names))
	clear(p.names)
	return names
}

// run carries webhooks to the leader, through the store, until ctx ends.
func (p *pokes) run(ctx context.Context, all *sources, st syncer.Orders, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.some:
		}
		for _, name := range p.take() {
			f, err := all.get(name)
			if err == nil {
				err = f.syncer.Poke(ctx, st)
			}
			if err != nil && !errors.As(err, new(*badRequest)) && ctx.Err() == nil {
				log.Warn("a webhook could not be passed on; polling finds the push", "source", name, "error", err)
			}
		}
	}
}
