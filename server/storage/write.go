package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"k8s.io/apimachinery/pkg/runtime"
	kubestorage "k8s.io/apiserver/pkg/storage"
)

// attempt is one key that is being changed: first from what the cache has, and
// when that was too old, from what the backend has.
type attempt struct {
	s       *Storage
	key     store.Key
	current api.Object // nil: there is none
	fresh   bool       // current came from the backend
}

// attempt takes the cache's word for an object that it has, never for there being
// none.
func (s *Storage) attempt(ctx context.Context, key store.Key) (*attempt, error) {
	a := &attempt{s: s, key: key, current: s.store.Get(key)}
	if a.current == nil {
		if _, err := a.reread(ctx); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// reread reads the backend and says whether that is another state than the one
// tried last.
func (a *attempt) reread(ctx context.Context) (changed bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, failed(err)
	}
	obj, _, err := a.s.store.GetAt(ctx, a.key, 0)
	if errors.Is(err, store.ErrNotFound) {
		obj, err = nil, nil
	}
	if err != nil {
		return false, failed(err)
	}
	changed = (obj == nil) != (a.current == nil) ||
		obj != nil && (obj.GetResourceVersion() != a.current.GetResourceVersion() || obj.GetUID() != a.current.GetUID())
	a.current, a.fresh = obj, true
	return changed, nil
}

// refused is called when the state was refused with verdict: the caller must stop
// with the returned error, or, when it is nil, try again with a newer state.
func (a *attempt) refused(ctx context.Context, verdict error) error {
	if a.fresh {
		return verdict
	}
	changed, err := a.reread(ctx)
	if err != nil {
		return err
	}
	if !changed {
		return verdict
	}
	return nil
}

// copy returns the state as the registry's object, for it to write to; a zero
// object when there is none.
func (a *attempt) copy() (runtime.Object, uint64, error) {
	into := a.s.newObject()
	if a.current == nil {
		return into, 0, nil
	}
	if err := a.s.codec.decode(copyOf(a.current), into); err != nil {
		return nil, 0, kubestorage.NewInternalError(err)
	}
	rev, err := a.s.versioner.ObjectResourceVersion(into)
	if err != nil {
		return nil, 0, kubestorage.NewInternalError(err)
	}
	return into, rev, nil
}

// lost says that a commit failed because the state was not the newest.
func lost(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound)
}

// GuaranteedUpdate implements kubestorage.Interface. The suggestion is not
// needed: the cache has the same state or a newer one.
func (s *Storage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *kubestorage.Preconditions, tryUpdate kubestorage.UpdateFunc, _ runtime.Object,
) error {
	k, ok, err := s.object(key)
	if err != nil {
		return err
	}
	if !ok {
		return kubestorage.NewKeyNotFoundError(key, 0)
	}
	a, err := s.attempt(ctx, k)
	if err != nil {
		return err
	}
	for {
		if a.current == nil && !ignoreNotFound {
			return kubestorage.NewKeyNotFoundError(key, 0)
		}
		input, rev, err := a.copy()
		if err != nil {
			return err
		}
		output, ttl, verdict := runtime.Object(nil), (*uint64)(nil), preconditions.Check(key, input)
		if verdict == nil {
			output, ttl, verdict = tryUpdate(input, kubestorage.ResponseMeta{ResourceVersion: rev})
		}
		if verdict != nil {
			if err := a.refused(ctx, verdict); err != nil {
				return err
			}
			continue
		}
		if err := s.versioner.PrepareObjectForStorage(output); err != nil {
			return kubestorage.NewInternalError(err)
		}
		next, err := s.codec.encode(output)
		if err != nil {
			return kubestorage.NewInternalError(err)
		}
		if store.KeyOf(next) != k {
			return kubestorage.NewInternalError(fmt.Errorf("update %q: the object is %s", key, store.KeyOf(next)))
		}
		if err := stripped(a.current, next); err != nil {
			return err
		}
		graced(a.current, next)
		written, err := a.write(ctx, next, ttl)
		if err != nil {
			return err
		}
		if written != nil {
			return s.codec.decode(copyOf(written), destination)
		}
	}
}

// write stores next in place of the state it was made from. It returns what is
// stored then, or nil when the state has changed meanwhile.
func (a *attempt) write(ctx context.Context, next api.Object, ttl *uint64) (api.Object, error) {
	op := store.Op{Verb: store.Create, Object: next}
	if a.current != nil {
		op.Verb = store.Update
		equal, err := same(a.current, next)
		if err != nil {
			return nil, kubestorage.NewInternalError(err)
		}
		if equal {
			return a.unchanged(ctx)
		}
		next.SetResourceVersion(a.current.GetResourceVersion())
	}
	life := uint64(0)
	if ttl != nil {
		life = *ttl
	}
	err := a.s.commit(ctx, op, life, a.s.edited(ctx, a.current, next))
	if lost(err) {
		_, err = a.reread(ctx)
		return nil, err
	}
	if err != nil {
		return nil, failed(err)
	}
	return next, nil
}

// unchanged ends an update that changes nothing, once it is sure that the state
// is the newest.
func (a *attempt) unchanged(ctx context.Context) (api.Object, error) {
	if !a.fresh {
		changed, err := a.reread(ctx)
		if changed || err != nil {
			return nil, err
		}
	}
	return a.current, nil
}

// Delete implements kubestorage.Interface. The object is returned with the
// revision of its delete, or as it is, when it keeps its name until its agent has reported.
func (s *Storage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *kubestorage.Preconditions,
	validate kubestorage.ValidateObjectFunc, _ runtime.Object, _ kubestorage.DeleteOptions,
) error {
	k, ok, err := s.object(key)
	if err != nil {
		return err
	}
	if !ok {
		return kubestorage.NewKeyNotFoundError(key, 0)
	}
	a, err := s.attempt(ctx, k)
	if err != nil {
		return err
	}
	for {
		if a.current == nil {
			return kubestorage.NewKeyNotFoundError(key, 0)
		}
		input, _, err := a.copy()
		if err != nil {
			return err
		}
		verdict := preconditions.Check(key, input)
		if verdict == nil {
			verdict = validate(ctx, input)
		}
		if verdict != nil {
			if err := a.refused(ctx, verdict); err != nil {
				return err
			}
			continue
		}
		kept, changed, err := a.kept(ctx)
		switch {
		case err != nil:
			return err
		case changed:
			continue
		case kept:
			return s.codec.decode(copyOf(a.current), out)
		}
		gone := copyOf(a.current)
		rev, err := s.commitWith(ctx, store.Op{Verb: store.Delete, Object: gone}, s.edited(ctx, gone, nil))
		if lost(err) {
			if _, err := a.reread(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return failed(err)
		}
		gone.SetResourceVersion(strconv.FormatInt(rev, 10))
		return s.codec.decode(gone, out)
	}
}
