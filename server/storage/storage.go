package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"k8s.io/apimachinery/pkg/runtime"
	kubestorage "k8s.io/apiserver/pkg/storage"
)

// Storage answers one resource's registry.
type Storage struct {
	store     *store.Store
	kind      api.Kind
	prefix    string // "/pods/": what every key of the registry starts with
	newObject func() runtime.Object
	codec     codec
	leases    *leases
	now       store.Clock
	versioner kubestorage.APIObjectVersioner
}

var _ kubestorage.Interface = (*Storage)(nil)

func newStorage(st *store.Store, kind api.Kind, prefix string, newObject func() runtime.Object, c codec, l *leases, now store.Clock) *Storage {
	return &Storage{store: st, kind: kind, prefix: strings.TrimSuffix(prefix, "/") + "/", newObject: newObject, codec: c, leases: l, now: now}
}

// scope is what a key of the registry names: everything, a namespace, one object,
// or nothing.
type scope struct {
	namespace, name string
	nothing         bool
}

// parse reads a registry's key: /pods, /pods/default, /pods/default/web, and for
// a cluster-scoped resource /nodes, /nodes/a. A recursive key names what is below
// it, one that is not recursive the object itself.
func (s *Storage) parse(key string, recursive bool) (scope, error) {
	prepared, err := kubestorage.PrepareKey(s.prefix, key, recursive)
	if err != nil {
		return scope{}, kubestorage.NewInternalError(err)
	}
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(prepared, s.prefix), "/"), "/")
	if parts[0] == "" {
		parts = nil
	}
	switch {
	case recursive && len(parts) == 0:
		return scope{}, nil
	case recursive && len(parts) == 1 && s.kind.Namespaced:
		return scope{namespace: parts[0]}, nil
	case !recursive && len(parts) == 2 && s.kind.Namespaced:
		return scope{namespace: parts[0], name: parts[1]}, nil
	case !recursive && len(parts) == 1 && !s.kind.Namespaced:
		return scope{name: parts[0]}, nil
	}
	return scope{nothing: true}, nil
}

// object reads a key that must name one object; ok is false when no object can
// have it.
func (s *Storage) object(key string) (k store.Key, ok bool, err error) {
	sc, err := s.parse(key, false)
	return store.Key{GroupResource: s.kind.GroupResource(), Namespace: sc.namespace, Name: sc.name}, !sc.nothing, err
}

// Versioner implements kubestorage.Interface.
func (s *Storage) Versioner() kubestorage.Versioner { return s.versioner }

// Create implements kubestorage.Interface.
func (s *Storage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if rv, err := s.versioner.ObjectResourceVersion(obj); err == nil && rv != 0 {
		return kubestorage.ErrResourceVersionSetOnCreate
	}
	k, ok, err := s.object(key)
	if err != nil {
		return err
	}
	made, err := s.codec.encode(obj)
	if err != nil {
		return kubestorage.NewInternalError(err)
	}
	if err := s.versioner.PrepareObjectForStorage(made); err != nil {
		return kubestorage.NewInternalError(err)
	}
	if !ok || store.KeyOf(made) != k {
		return kubestorage.NewInternalError(fmt.Errorf("create %q: the object is %s", key, store.KeyOf(made)))
	}
	err = s.commit(ctx, store.Op{Verb: store.Create, Object: made}, ttl, nil)
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) {
		return kubestorage.NewKeyExistsError(key, 0)
	}
	if err != nil {
		return failed(err)
	}
	if out == nil {
		return nil
	}
	return s.codec.decode(copyOf(made), out)
}

// commit does one op, under a lease of ttl seconds when ttl is not 0, and writes
// who does it when edit is not nil.
func (s *Storage) commit(ctx context.Context, op store.Op, ttl uint64, edit *api.Edit) error {
	for {
		id, err := s.leases.get(ctx, ttl)
		if err != nil {
			return err
		}
		op.Lease = id
		_, err = s.commitWith(ctx, op, edit)
		if id == 0 || !errors.Is(err, store.ErrLeaseGone) {
			return err
		}
		s.leases.forget(id)
		if ctx.Err() != nil {
			return err
		}
	}
}

// Get implements kubestorage.Interface. The registry writes to what it gets
// before a delete, and in a dry run, so it gets a copy.
func (s *Storage) Get(ctx context.Context, key string, opts kubestorage.GetOptions, into runtime.Object) error {
	k, ok, err := s.object(key)
	if err != nil {
		return err
	}
	if err := s.notOlderThan(ctx, opts.ResourceVersion); err != nil {
		return err
	}
	var obj api.Object
	if ok {
		obj = s.store.Get(k)
	}
	if obj == nil {
		if opts.IgnoreNotFound {
			return runtime.SetZeroValue(into)
		}
		return kubestorage.NewKeyNotFoundError(key, 0)
	}
	return s.codec.decode(copyOf(obj), into)
}

// Stats implements kubestorage.Interface.
func (s *Storage) Stats(context.Context) (kubestorage.Stats, error) {
	return kubestorage.Stats{ObjectCount: int64(len(s.store.List(s.kind.GroupResource(), "")))}, nil
}

// ReadinessCheck implements kubestorage.Interface.
func (s *Storage) ReadinessCheck() error {
	select {
	case <-s.store.Synced():
		return nil
	default:
		return kubestorage.ErrStorageNotReady
	}
}

// RequestWatchProgress implements kubestorage.Interface.
func (s *Storage) RequestWatchProgress(ctx context.Context) error {
	return failed(s.store.KV().Progress(ctx))
}

// GetCurrentResourceVersion implements kubestorage.Interface.
func (s *Storage) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	rev, err := s.store.Current(ctx)
	return uint64(rev), failed(err)
}

// EnableResourceSizeEstimation implements kubestorage.Interface; sizes are not
// estimated, which Stats may leave out.
func (s *Storage) EnableResourceSizeEstimation(kubestorage.KeysFunc) error { return nil }

// CompactRevision implements kubestorage.Interface; 0 says that none was
// observed.
func (s *Storage) CompactRevision() int64 { return 0 }
