package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"headway.dev/headway/store"
)

// leases gives objects with a time to live (Events that clients write) a lease of
// the backend. Objects that would end at about the same time share one, so that a
// burst of events costs one lease.
type leases struct {
	kv  store.KV
	now store.Clock

	mu     sync.Mutex
	shared map[uint64]lease // by ttl in seconds
}

type lease struct {
	id   store.LeaseID
	ends time.Time
	uses int
}

// A shared lease outlives what its first user asked for by one part in leaseSlack,
// and ends at most leaseUses objects at once.
const (
	leaseSlack = 60
	leaseUses  = 500
)

// get returns a lease that lasts at least ttl seconds; 0 means for ever.
func (l *leases) get(ctx context.Context, ttl uint64) (store.LeaseID, error) {
	if ttl == 0 {
		return 0, nil
	}
	l.mu.Lock()
	have, ok := l.shared[ttl]
	if ok && have.uses < leaseUses && !have.ends.Before(l.now().Add(time.Duration(ttl)*time.Second)) {
		have.uses++
		l.shared[ttl] = have
		l.mu.Unlock()
		return have.id, nil
	}
	l.mu.Unlock()

	life := time.Duration(ttl) * time.Second
	life += life / leaseSlack
	made := l.now()
	id, err := l.kv.Grant(ctx, life)
	if err != nil {
		return 0, fmt.Errorf("grant a lease of %s: %w", life, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared == nil {
		l.shared = map[uint64]lease{}
	}
	l.shared[ttl] = lease{id: id, ends: made.Add(life), uses: 1}
	return id, nil
}

// forget drops a lease that turned out to be gone.
func (l *leases) forget(id store.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ttl, have := range l.shared {
		if have.id == id {
			delete(l.shared, ttl)
		}
	}
}
