package syncer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// ErrNoSource is returned by Order as long as nothing is followed.
var ErrNoSource = errors.New("there is no such source")

// Orders is where operators' orders are written to.
type Orders interface {
	store.Writer
	GetAt(ctx context.Context, key store.Key, revision int64) (api.Object, int64, error)
}

// Order changes what operators have ordered of a source, on any server. edit may be
// called more than once: somebody else may write meanwhile. An error of edit changes
// nothing.
func Order(ctx context.Context, st Orders, source string, edit func(*api.Source) error) (*api.Source, error) {
	key := store.Key{GroupResource: api.Sources(), Name: source}
	for {
		obj, _, err := st.GetAt(ctx, key, 0)
		src, ok := obj.(*api.Source)
		if errors.Is(err, store.ErrNotFound) || err == nil && !ok {
			return nil, fmt.Errorf("source %q: %w", source, ErrNoSource)
		}
		if err != nil {
			return nil, err
		}
		out := src.DeepCopyObject().(*api.Source)
		if err := edit(out); err != nil {
			return nil, err
		}
		_, err = st.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Update, Object: out}}})
		if !errors.Is(err, store.ErrConflict) || ctx.Err() != nil {
			return out, err
		}
	}
}

// allowance is what an operator allows of a commit; the zero value allows nothing.
func allowance(src *api.Source, commit string) api.Allowance {
	if a := src.Orders.Allow; a != nil && commit != "" && a.Commit == commit {
		return *a
	}
	return api.Allowance{}
}

// refusal remembers that a commit was refused under these orders, so that it is not
// judged at every event again.
type refusal struct {
	commit, sync     string
	rewind, unsigned bool
}

func refusalOf(src *api.Source, commit string) refusal {
	a := allowance(src, commit)
	return refusal{commit, src.Orders.Sync, a.Rewind, a.Unsigned}
}

// asked looks at the source anew when an operator has asked for that since: it ends
// the wait for the next poll, also that of a backoff.
func (s *Syncer) asked(src *api.Source) {
	if src.Orders.Sync != src.Status.Synced && src.Orders.Sync != s.answering {
		s.answering = src.Orders.Sync
		s.poll.now()
	}
}

// Poke has the leader look at the forge now, as somebody's order would. Any server
// may call it. It does nothing for the hosted repository, whose pushes wake by
// themselves, nor before the first look.
func (s *Syncer) Poke(ctx context.Context, st Orders) error {
	if s.cfg.Fetch == nil {
		return nil
	}
	_, err := Order(ctx, st, s.cfg.Source, func(src *api.Source) error {
		src.Orders.Sync = rand.Text()
		return nil
	})
	if errors.Is(err, ErrNoSource) {
		return nil
	}
	return err
}
