package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
)

// claims is who has which cluster IP and node port, as of a revision of their
// lock: what the Services say, by the events of the cache, by what this process
// has written itself and the cache may not show yet, and by what was read anew.
// So the ordinary write of a Service lists none of the others.
type claims struct {
	mu       sync.Mutex
	revision int64 // every Service is here as of this revision, or later
	lock     int64 // revision of the lock; 0: there is none
	services map[Key]held
	// holders may be several for a while: what one of them gave back may not have
	// been heard of yet.
	holders map[api.Claim][]Key
}

// held is what one Service has since a revision.
type held struct {
	revision int64
	claims   []api.Claim
}

// lockKey is the lock of the cluster IPs and node ports.
func lockKey() Key { return Key{GroupResource: api.Allocations(), Name: api.ServiceAllocation} }

func newClaims() *claims {
	return &claims{services: map[Key]held{}, holders: map[api.Claim][]Key{}}
}

// heard takes the events of the cache, in their order. Those of revisions that were
// read anew meanwhile are known, and would bring back what has changed since.
func (c *claims) heard(events []Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.revision
	for _, e := range events {
		switch {
		case e.Revision <= known:
		case e.Key == lockKey() && !e.Deleted():
			c.lock = max(c.lock, e.Revision)
		case e.Key.GroupResource == api.Services():
			svc, _ := e.Object.(*corev1.Service)
			c.set(e.Key, e.Revision, svc)
		}
		c.revision = max(c.revision, e.Revision)
	}
}

// wrote takes a transaction of this process.
func (c *claims) wrote(t Txn, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, op := range t.Ops {
		switch o := op.Object.(type) {
		case *api.Allocation:
			c.lock = max(c.lock, revision)
		case *corev1.Service:
			if op.Verb == Delete {
				o = nil
			}
			c.set(KeyOf(op.Object), revision, o)
		}
	}
}

// set says what a Service has from a revision on; svc is nil when it is gone. What
// is known of a later revision stays. A late event may bring back for a while what
// is gone; then too much counts as taken, which is read anew before anyone is
// refused. The caller holds mu.
func (c *claims) set(key Key, revision int64, svc *corev1.Service) {
	was, known := c.services[key]
	if known && was.revision >= revision {
		return
	}
	for _, claim := range was.claims {
		left := slices.DeleteFunc(c.holders[claim], func(k Key) bool { return k == key })
		if c.holders[claim] = left; len(left) == 0 {
			delete(c.holders, claim)
		}
	}
	if svc == nil {
		delete(c.services, key)
		return
	}
	is := held{revision: revision, claims: api.Claims(svc)}
	c.services[key] = is
	for _, claim := range is.claims {
		c.holders[claim] = append(c.holders[claim], key)
	}
}

// view is who has what while a transaction is put together: the Services that it
// writes have what it gives them, and not what they had. The lock is as it was before
// anything of this is read, so whoever takes meanwhile is noticed.
type view struct {
	of    *claims
	lock  int64
	ours  map[Key]bool
	given map[api.Claim]Key
}

func (c *claims) view(t Txn) *view {
	v := &view{of: c, ours: map[Key]bool{}, given: map[api.Claim]Key{}}
	for _, op := range t.Ops {
		v.ours[KeyOf(op.Object)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v.lock = c.lock
	return v
}

// holder is who has a claim; the zero Key when nobody has.
func (v *view) holder(claim api.Claim) Key {
	if key, ok := v.given[claim]; ok {
		return key
	}
	v.of.mu.Lock()
	defer v.of.mu.Unlock()
	for _, key := range v.of.holders[claim] {
		if !v.ours[key] {
			return key
		}
	}
	return Key{}
}

// give notes what a Service is to have, unless another has it.
func (v *view) give(svc *corev1.Service) {
	for _, c := range api.Claims(svc) {
		if v.holder(c) == (Key{}) {
			v.given[c] = KeyOf(svc)
		}
	}
}

// readClaims reads from the backend what the claims are now. The Services that are
// known as they are cost their key alone.
func (s *Store) readClaims(ctx context.Context) error {
	for {
		err := s.readClaimsAt(ctx)
		if !errors.Is(err, ErrCompacted) {
			return err
		}
	}
}

func (s *Store) readClaimsAt(ctx context.Context) error {
	wrap := func(err error) error { return fmt.Errorf("read what the Services have: %w", err) }
	r, err := s.kv.Range(ctx, RangeRequest{Start: lockKey().Path(), KeysOnly: true})
	if err != nil {
		return wrap(err)
	}
	revision, lock := r.Revision, int64(0)
	if len(r.Entries) > 0 {
		lock = r.Entries[0].ModRevision
	}
	start := ResourcePrefix(api.Services())
	end := prefixEnd(start)
	there, newer := map[Key]bool{}, map[Key]*corev1.Service{}
	revisions := map[Key]int64{}
	for {
		r, err := s.kv.Range(ctx, RangeRequest{Start: start, End: end, Revision: revision, Limit: loadPage, KeysOnly: true})
		if err != nil {
			return wrap(err)
		}
		for _, e := range r.Entries {
			key, _, ok := ParsePath(e.Key)
			if !ok {
				continue
			}
			if there[key] = true; s.claims.knows(key, e.ModRevision) {
				continue
			}
			obj, _, err := s.GetAt(ctx, key, revision)
			if err != nil {
				return wrap(err)
			}
			newer[key], revisions[key] = obj.(*corev1.Service), e.ModRevision
		}
		if len(r.Entries) == 0 || len(r.Entries) >= r.Count {
			break
		}
		start = r.Entries[len(r.Entries)-1].Key + "\x00"
	}
	c := s.claims
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, svc := range newer {
		c.set(key, revisions[key], svc)
	}
	for key := range c.services {
		if !there[key] {
			c.set(key, revision, nil)
		}
	}
	c.lock, c.revision = max(c.lock, lock), max(c.revision, revision)
	return nil
}

// knows says whether what a Service had at a revision is known.
func (c *claims) knows(key Key, revision int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, ok := c.services[key]
	return ok && is.revision >= revision
}
