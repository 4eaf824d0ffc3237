package syncer

import (
	"context"
	"errors"
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/forge"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Intents keeps commit statuses as CommitStatus objects, each written with the
// leader's fence (R4). It reads the backend, for the cache may be behind what the
// leader before has written.
type Intents struct {
	Store interface {
		store.Writer
		GetAt(ctx context.Context, key store.Key, revision int64) (api.Object, int64, error)
		ListAt(ctx context.Context, gr schema.GroupResource, namespace string, revision int64, limit int, after string) (store.Page, error)
	}
	Fence func() store.Fence
	Now   store.Clock
}

var _ forge.Intents = (*Intents)(nil)

// Put implements forge.Intents.
func (s *Intents) Put(ctx context.Context, i forge.Intent) error {
	old, err := s.read(ctx, i.Key)
	if err != nil {
		return err
	}
	out := &api.CommitStatus{ObjectMeta: metav1.ObjectMeta{Name: i.Key}}
	op := store.Op{Verb: store.Create, Object: out}
	if old != nil {
		out.ObjectMeta, op.Verb = *old.ObjectMeta.DeepCopy(), store.Update
	} else {
		store.Stamp(out, s.Now())
	}
	out.Repository, out.Context, out.Commit, out.Ref = i.Repository, i.Context, i.Commit, i.Ref
	out.Attempt, out.Revision, out.State, out.Description = i.Attempt, i.Revision, string(i.State), i.Description
	out.Settled = i.Settled
	return s.commit(ctx, op)
}

// Done implements forge.Intents.
func (s *Intents) Done(ctx context.Context, i forge.Intent) error {
	old, err := s.read(ctx, i.Key)
	if err != nil || old == nil || old.Attempt != i.Attempt || old.Revision != i.Revision || old.Settled {
		return err
	}
	out := old.DeepCopyObject().(*api.CommitStatus)
	out.Settled = true
	return s.commit(ctx, store.Op{Verb: store.Update, Object: out})
}

// Drop implements forge.Intents.
func (s *Intents) Drop(ctx context.Context, key string) error {
	old, err := s.read(ctx, key)
	if err != nil || old == nil {
		return err
	}
	return s.commit(ctx, store.Op{Verb: store.Delete, Object: old})
}

// List implements forge.Intents.
func (s *Intents) List(ctx context.Context) ([]forge.Intent, error) {
	const page = 500
	var out []forge.Intent
	var revision int64
	for after := ""; ; {
		p, err := s.Store.ListAt(ctx, api.CommitStatuses(), "", revision, page, after)
		if err != nil {
			return nil, err
		}
		for _, obj := range p.Objects {
			if c, ok := obj.(*api.CommitStatus); ok {
				out = append(out, forge.Intent{
					Key: c.Name, Repository: c.Repository, Context: c.Context, Commit: c.Commit, Ref: c.Ref, Attempt: c.Attempt, Revision: c.Revision,
					State: forge.State(c.State), Description: c.Description, Settled: c.Settled,
				})
			}
		}
		if p.Next == "" {
			return out, nil
		}
		after, revision = p.Next, p.Revision
	}
}

func (s *Intents) read(ctx context.Context, name string) (*api.CommitStatus, error) {
	obj, _, err := s.Store.GetAt(ctx, store.Key{GroupResource: api.CommitStatuses(), Name: name}, 0)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a commit status: %w", err)
	}
	status, _ := obj.(*api.CommitStatus)
	return status, nil
}

func (s *Intents) commit(ctx context.Context, op store.Op) error {
	_, err := s.Store.Commit(ctx, store.Txn{Fence: s.Fence(), Ops: []store.Op{op}})
	return err
}
