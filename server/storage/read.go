package storage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	kubestorage "k8s.io/apiserver/pkg/storage"
)

// patience is how long a read waits for a revision that a client has seen on
// another server and this one not yet.
const patience = 3 * time.Second

// pageSize is how many objects a filtered list reads from the backend at once.
const pageSize = 500

// notOlderThan waits until the cache is as new as the request wants.
func (s *Storage) notOlderThan(ctx context.Context, resourceVersion string) error {
	if resourceVersion == "" {
		return s.fresh(ctx)
	}
	rev, err := s.versioner.ParseResourceVersion(resourceVersion)
	if err != nil {
		return apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	return s.reach(ctx, int64(rev))
}

// fresh waits until the cache has everything that was written before the call.
func (s *Storage) fresh(ctx context.Context) error {
	rev, err := s.store.Current(ctx)
	if err != nil {
		return failed(err)
	}
	return failed(s.store.WaitRevision(ctx, rev))
}

// reach waits, for a short while, until the cache has reached rev.
func (s *Storage) reach(ctx context.Context, rev int64) error {
	if s.store.Revision() >= rev {
		return nil
	}
	current, err := s.store.Current(ctx)
	if err != nil {
		return failed(err)
	}
	if rev > current {
		return kubestorage.NewTooLargeResourceVersionError(uint64(rev), uint64(current), 1)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = s.store.WaitRevision(waiting, rev)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return kubestorage.NewTooLargeResourceVersionError(uint64(rev), uint64(s.store.Revision()), 1)
	}
	return failed(err)
}

// snapshot returns the objects of a scope and the revision they are of.
func (s *Storage) snapshot(sc scope) ([]api.Object, int64) {
	if sc.nothing {
		return nil, s.store.Revision()
	}
	objects, rev := s.store.Snapshot(s.kind.GroupResource(), sc.namespace)
	if sc.name == "" {
		return objects, rev
	}
	i, ok := slices.BinarySearchFunc(objects, sc.name, func(obj api.Object, name string) int {
		return strings.Compare(obj.GetName(), name)
	})
	if !ok {
		return nil, rev
	}
	return objects[i : i+1], rev
}

// GetList implements kubestorage.Interface.
func (s *Storage) GetList(ctx context.Context, key string, opts kubestorage.ListOptions, list runtime.Object) error {
	sc, err := s.parse(key, opts.Recursive)
	if err != nil {
		return err
	}
	prefix, err := kubestorage.PrepareKey(s.prefix, key, opts.Recursive)
	if err != nil {
		return kubestorage.NewInternalError(err)
	}
	at, from, err := kubestorage.ValidateListOptions(prefix, s.versioner, opts)
	if err != nil {
		return err
	}
	if at == 0 && from == "" {
		done, err := s.listCached(ctx, prefix, sc, opts, list)
		if done || err != nil {
			return err
		}
	}
	if sc.nothing {
		return s.answer(nil, max(at, s.store.Revision()), "", nil, opts, list)
	}
	if sc.name != "" {
		return s.getAt(ctx, sc, at, opts, list)
	}
	if at == 0 && from == "" {
		// The cache has more than one page: the pages are read from the backend,
		// in its order, at the revision that the cache has reached.
		at = s.store.Revision()
	}
	return s.listBackend(ctx, prefix, sc, at, from, opts, list)
}

// listCached answers from the cache; done is false when the list has more than
// one page.
func (s *Storage) listCached(ctx context.Context, prefix string, sc scope, opts kubestorage.ListOptions, list runtime.Object) (done bool, err error) {
	if err := s.notOlderThan(ctx, opts.ResourceVersion); err != nil {
		return false, err
	}
	objects, rev := s.snapshot(sc)
	if limit := opts.Predicate.Limit; opts.Recursive && sc.name == "" && limit > 0 && int64(len(objects)) > limit {
		return false, nil
	}
	f := s.filter(opts.Predicate)
	kept := make([]api.Object, 0, len(objects))
	for _, obj := range objects {
		ok, err := f.matches(obj)
		if err != nil {
			return false, err
		}
		if ok {
			kept = append(kept, obj)
		}
	}
	return true, s.answer(kept, rev, "", nil, opts, list)
}

// getAt lists the one object of a scope as it was at a revision.
func (s *Storage) getAt(ctx context.Context, sc scope, at int64, opts kubestorage.ListOptions, list runtime.Object) error {
	obj, rev, err := s.store.GetAt(ctx, store.Key{GroupResource: s.kind.GroupResource(), Namespace: sc.namespace, Name: sc.name}, at)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return s.pastError(ctx, err, at, "", "")
	}
	if at > 0 {
		rev = at
	}
	var kept []api.Object
	if obj != nil {
		ok, err := s.filter(opts.Predicate).matches(obj)
		if err != nil {
			return err
		}
		if ok {
			kept = append(kept, obj)
		}
	}
	return s.answer(kept, rev, "", nil, opts, list)
}

// listBackend reads at one revision from the backend, page by page until the
// limit is full.
func (s *Storage) listBackend(ctx context.Context, prefix string, sc scope, at int64, from string, opts kubestorage.ListOptions, list runtime.Object) error {
	p := opts.Predicate
	size := int(p.Limit)
	if p.Limit > 0 && !p.Empty() {
		size = max(size, pageSize)
	}
	f := s.filter(p)
	var kept []api.Object
	for after := s.cursor(from); ; {
		page, err := s.store.ListAt(ctx, s.kind.GroupResource(), sc.namespace, at, size, after)
		if err != nil {
			return s.pastError(ctx, err, at, from, prefix)
		}
		if at == 0 {
			at = page.Revision
		}
		for i, obj := range page.Objects {
			ok, err := f.matches(obj)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			kept = append(kept, obj)
			left := len(page.Objects) - 1 - i + page.Remaining
			if p.Limit > 0 && int64(len(kept)) == p.Limit && left > 0 {
				token, remaining, err := s.token(prefix, obj, at, int64(left), p)
				if err != nil {
					return err
				}
				return s.answer(kept, at, token, remaining, opts, list)
			}
			if p.Limit > 0 && int64(len(kept)) == p.Limit {
				return s.answer(kept, at, "", nil, opts, list)
			}
		}
		if page.Next == "" {
			return s.answer(kept, at, "", nil, opts, list)
		}
		after = page.Next
	}
}

// token makes the continue token after obj. How many remain is only known
// without a selector.
func (s *Storage) token(prefix string, obj api.Object, at, left int64, p kubestorage.SelectionPredicate) (string, *int64, error) {
	token, err := kubestorage.EncodeContinue(s.registryKey(obj)+"\x00", prefix, at)
	if err != nil {
		return "", nil, kubestorage.NewInternalError(err)
	}
	if !p.Empty() {
		return token, nil, nil
	}
	return token, &left, nil
}

// registryKey is the key by which the registry names obj.
func (s *Storage) registryKey(obj api.Object) string {
	if s.kind.Namespaced {
		return s.prefix + obj.GetNamespace() + "/" + obj.GetName()
	}
	return s.prefix + obj.GetName()
}

// pastError says why a past revision cannot be read.
func (s *Storage) pastError(ctx context.Context, err error, at int64, from, prefix string) error {
	switch {
	case errors.Is(err, store.ErrCompacted) && from == "":
		return apierrors.NewResourceExpired(listTooOld)
	case errors.Is(err, store.ErrCompacted):
		return compactedList(from, prefix)
	case errors.Is(err, store.ErrFuture):
		current, cerr := s.store.Current(ctx)
		if cerr != nil {
			return failed(cerr)
		}
		return kubestorage.NewTooLargeResourceVersionError(uint64(at), uint64(current), 1)
	}
	return failed(err)
}

// answer fills a list object.
func (s *Storage) answer(objects []api.Object, rev int64, token string, remaining *int64, opts kubestorage.ListOptions, list runtime.Object) error {
	err := fillList(list, len(objects), func(i int, into runtime.Object) error {
		return s.codec.decode(objects[i], into)
	})
	if err != nil {
		return kubestorage.NewInternalError(err)
	}
	opts.Predicate.SetShardInfoOnList(list)
	return s.versioner.UpdateList(list, uint64(rev), token, remaining)
}

// cursor turns the start key of a continue token, "/pods/default/web\x00", into
// what the store's ListAt goes on after. A token without the final zero starts at
// its key instead of after it; since names are ASCII, that is after the string
// made here.
func (s *Storage) cursor(from string) string {
	if from == "" {
		return ""
	}
	after, exclusive := strings.CutSuffix(strings.TrimPrefix(from, s.prefix), "\x00")
	if last := len(after) - 1; !exclusive && last >= 0 {
		after = after[:last] + string([]byte{after[last] - 1, 0xff})
	}
	if !s.kind.Namespaced {
		after = "_/" + after
	}
	return after
}
