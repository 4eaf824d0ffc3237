package syncer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/git"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Refs is the truth of the hosted refs: a GitRef object each (D8). Any server may
// move them; a push is no leader's write and carries no fence.
type Refs struct {
	Store interface {
		store.Writer
		GetAt(ctx context.Context, key store.Key, revision int64) (api.Object, int64, error)
		ListAt(ctx context.Context, gr schema.GroupResource, namespace string, revision int64, limit int, after string) (store.Page, error)
	}
	Now store.Clock
}

var _ git.Refs = (*Refs)(nil)

// List implements git.Refs. It reads the backend, not the cache.
func (r *Refs) List(ctx context.Context) (map[string]string, error) {
	const page = 500
	out := map[string]string{}
	var revision int64
	for after := ""; ; {
		p, err := r.Store.ListAt(ctx, api.GitRefs(), "", revision, page, after)
		if err != nil {
			return nil, err
		}
		for _, obj := range p.Objects {
			if ref, ok := obj.(*api.GitRef); ok {
				out[ref.Ref] = ref.Commit
			}
		}
		if p.Next == "" {
			return out, nil
		}
		after, revision = p.Next, p.Revision
	}
}

// Move implements git.Refs: all of the updates, from their old values, or none.
func (r *Refs) Move(ctx context.Context, updates []git.Update, pusher string) error {
	var ops []store.Op
	for _, u := range updates {
		op, err := r.op(ctx, u, pusher)
		if err != nil {
			return err
		}
		if op.Object != nil {
			ops = append(ops, op)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	_, err := r.Store.Commit(ctx, store.Txn{Ops: ops})
	if isConflict(err) {
		return git.ErrMoved
	}
	return err
}

// op is the write of one update; none when the ref is absent and stays so.
func (r *Refs) op(ctx context.Context, u git.Update, pusher string) (store.Op, error) {
	obj, _, err := r.Store.GetAt(ctx, refKey(u.Ref), 0)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.Op{}, fmt.Errorf("read the hosted ref %s: %w", u.Ref, err)
	}
	old, _ := obj.(*api.GitRef)
	switch {
	case old == nil && u.Old != "", old != nil && old.Commit != u.Old:
		return store.Op{}, git.ErrMoved
	case u.New == "" && old == nil:
		return store.Op{}, nil
	case u.New == "":
		return store.Op{Verb: store.Delete, Object: old}, nil
	}
	if old == nil {
		ref := &api.GitRef{ObjectMeta: metav1.ObjectMeta{Name: refKey(u.Ref).Name}, Ref: u.Ref, Commit: u.New, Pusher: pusher}
		store.Stamp(ref, r.Now())
		return store.Op{Verb: store.Create, Object: ref}, nil
	}
	ref := old.DeepCopyObject().(*api.GitRef)
	ref.Commit, ref.Pusher = u.New, pusher
	return store.Op{Verb: store.Update, Object: ref}, nil
}

// At is the commit that a hosted ref is at, or "".
func (r *Refs) At(ctx context.Context, ref string) (string, error) {
	obj, _, err := r.Store.GetAt(ctx, refKey(ref), 0)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the hosted ref %s: %w", ref, err)
	}
	at, _ := obj.(*api.GitRef)
	if at == nil {
		return "", nil
	}
	return at.Commit, nil
}

// refKey is where a ref's GitRef stands: its name, hex-encoded, for a ref may
// have characters and a length that names of objects may not.
func refKey(ref string) store.Key {
	return store.Key{GroupResource: api.GitRefs(), Name: hex.EncodeToString([]byte(ref))}
}
