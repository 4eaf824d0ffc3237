package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer"
	"headway.dev/headway/syncer/git"
)

// follower is all that follows one source. Every server has it, to judge and to
// answer; its parts run on the leader.
type follower struct {
	name       string
	uid        types.UID // of the Source; "" for the main one, which its own syncer makes
	spec       api.SourceSpec
	clone      *clone // nil: hosted here
	syncer     *syncer.Syncer
	live       *syncer.LiveRef
	noter      *syncer.Noter
	publisher  *syncer.Publisher // nil: hosted here
	repository *git.Repository
	planner    *planner

	parts []part
	hears []func([]store.Event)

	// Of the leader, under sources.mu: nil while it does not run.
	cancel context.CancelFunc
	ended  chan struct{}
}

// add makes a component one of the parts, which hears of the store's events if it
// wants to.
func (f *follower) add(name string, component interface{ Run(context.Context) error }) {
	if hears, ok := component.(interface{ Handle([]store.Event) }); ok {
		f.hears = append(f.hears, hears.Handle)
	}
	f.parts = append(f.parts, part{name, component.Run})
}

// handle tells the parts of events.
func (f *follower) handle(events []store.Event) {
	for _, hear := range f.hears {
		hear(events)
	}
}

// run runs every part until ctx ends, or one of them fails.
func (f *follower) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range f.parts {
		group.Go(func() error {
			if err := p.run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("source %s, %s: %w", f.name, p.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}
