package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"headway.dev/headway/api"
)

// draft is a transaction on its way to the backend.
type draft struct {
	compares []Compare
	about    []about // of each compare
	writes   []Write
	written  []api.Object // of each write; nil for a delete
	bytes    int
}

// about says what a compare is for.
type about struct {
	key   Key
	verb  Verb // "" for a condition of Txn.If
	fence bool
}

// Commit implements Writer.
func (s *Store) Commit(ctx context.Context, t Txn) (int64, error) {
	if in := s.boundedIn(t); len(in) > 0 {
		return s.commitBounded(ctx, t, in)
	}
	return s.commitClaims(ctx, t)
}

// commitClaims commits a transaction whose quotas are charged.
func (s *Store) commitClaims(ctx context.Context, t Txn) (int64, error) {
	if s.claims != nil && writesServices(t) {
		return s.commitServices(ctx, t)
	}
	return s.commit(ctx, t)
}

func (s *Store) commit(ctx context.Context, t Txn) (int64, error) {
	d, err := s.draft(t)
	if err != nil {
		return 0, err
	}
	out, err := s.kv.Commit(ctx, d.compares, d.writes)
	if err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	if !out.OK {
		err := d.refusal(out.Failed)
		if errors.Is(err, ErrFenced) {
			s.depose(t.Fence)
		}
		return 0, err
	}
	version := strconv.FormatInt(out.Revision, 10)
	for _, obj := range d.written {
		if obj != nil {
			obj.SetResourceVersion(version)
		}
	}
	return out.Revision, nil
}

func (s *Store) draft(t Txn) (*draft, error) {
	d := &draft{}
	if t.Fence != (Fence{}) {
		if t.Fence.Key == "" || t.Fence.Revision <= 0 {
			return nil, errors.New("commit: a fence needs both its key and its revision")
		}
		d.condition(Compare{Key: t.Fence.Key, Create: true, Revision: t.Fence.Revision}, about{fence: true})
	}
	seen := make(map[Key]bool, len(t.Ops))
	for _, op := range t.Ops {
		key := KeyOf(op.Object)
		if seen[key] {
			return nil, &KeyError{Key: key, Err: errors.New("commit: written twice in one transaction")}
		}
		seen[key] = true
		if err := s.add(d, key, op); err != nil {
			return nil, &KeyError{Key: key, Err: err}
		}
	}
	for _, obj := range t.If {
		key := KeyOf(obj)
		if err := checkKey(key); err != nil {
			return nil, &KeyError{Key: key, Err: err}
		}
		revision, err := versionOf(obj)
		if err != nil {
			return nil, &KeyError{Key: key, Err: err}
		}
		d.condition(Compare{Key: key.Path(), Revision: revision}, about{key: key})
	}
	if len(d.compares) > MaxOps {
		return nil, fmt.Errorf("commit: %d conditions and changes, at most %d: %w", len(d.compares), MaxOps, ErrTooLarge)
	}
	if d.bytes > MaxBytes {
		return nil, fmt.Errorf("commit: %d bytes in %d objects, at most %d: %w", d.bytes, len(d.writes), MaxBytes, ErrTooLarge)
	}
	return d, nil
}

func (d *draft) condition(c Compare, a about) {
	d.compares = append(d.compares, c)
	d.about = append(d.about, a)
}

// add drafts one op: its condition and its write.
func (s *Store) add(d *draft, key Key, op Op) error {
	if err := checkKey(key); err != nil {
		return err
	}
	kind, _ := api.ResourceKind(key.GroupResource)
	path := key.Path()
	var revision int64
	switch op.Verb {
	case Create:
	case Update, Delete:
		var err error
		if revision, err = versionOf(op.Object); err != nil {
			return err
		}
		if revision == 0 {
			return fmt.Errorf("%s without a resourceVersion: read the object first", op.Verb)
		}
	default:
		return fmt.Errorf("commit: unknown verb %q", op.Verb)
	}
	d.condition(Compare{Key: path, Revision: revision}, about{key: key, verb: op.Verb})
	w := Write{Key: path, Lease: op.Lease, Delete: op.Verb == Delete}
	written := op.Object
	if w.Delete {
		w.Lease, written = 0, nil
	} else {
		var err error
		if w.Value, err = s.codec.encode(kind, path, op.Object); err != nil {
			return err
		}
		if len(w.Value) > ObjectBytes {
			return fmt.Errorf("%d bytes, at most %d: %w", len(w.Value), ObjectBytes, ErrTooLarge)
		}
	}
	d.bytes += len(w.Key) + len(w.Value)
	d.writes = append(d.writes, w)
	d.written = append(d.written, written)
	return nil
}

// checkKey refuses names that would make one object's path another's.
func checkKey(key Key) error {
	kind, ok := api.ResourceKind(key.GroupResource)
	switch {
	case !ok:
		return errors.New("unknown resource")
	case key.Name == "" || strings.ContainsAny(key.Name, "/\x00"):
		return fmt.Errorf("invalid name %q", key.Name)
	case strings.ContainsAny(key.Namespace, "/\x00") || key.Namespace == "_":
		return fmt.Errorf("invalid namespace %q", key.Namespace)
	case kind.Namespaced && key.Namespace == "":
		return errors.New("needs a namespace")
	case !kind.Namespaced && key.Namespace != "":
		return errors.New("has no namespace")
	}
	return nil
}

// versionOf returns the revision that obj was read at; 0 when it has none.
func versionOf(obj api.Object) (int64, error) {
	v := obj.GetResourceVersion()
	if v == "" {
		return 0, nil
	}
	revision, err := strconv.ParseInt(v, 10, 64)
	if err != nil || revision < 0 {
		return 0, fmt.Errorf("resourceVersion %q is not a revision", v)
	}
	return revision, nil
}

// refusal says why a transaction did not happen. The fence comes first: a
// deposed leader must stop, whatever else is also true.
func (d *draft) refusal(failed []Failed) error {
	for _, f := range failed {
		if d.about[f.Index].fence {
			return fmt.Errorf("commit: %w", ErrFenced)
		}
	}
	if len(failed) == 0 {
		return fmt.Errorf("commit: %w", ErrConflict)
	}
	f := failed[0]
	// The lock of the claims comes last: whoever has only lost that one tries again.
	if i := slices.IndexFunc(failed, func(f Failed) bool { return d.about[f.Index].key != lockKey() }); i >= 0 {
		f = failed[i]
	}
	a := d.about[f.Index]
	class := ErrConflict
	switch {
	case a.verb == Create:
		class = ErrExists
	case a.verb != "" && f.Revision == 0:
		class = ErrNotFound
	}
	return &KeyError{Key: a.key, Err: class}
}
