package memory

import (
	"context"
	"fmt"
	"sort"
	"time"

	"headway.dev/headway/store"
)

type lease struct {
	ttl  time.Duration
	ends time.Time
	keys map[string]bool
}

// Grant implements store.KV.
func (k *KV) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	if err := k.enter(ctx, "grant"); err != nil {
		return 0, err
	}
	defer k.mu.Unlock()
	k.lastLease++
	k.leases[k.lastLease] = &lease{ttl: ttl, ends: k.now().Add(ttl), keys: map[string]bool{}}
	k.arm()
	return k.lastLease, nil
}

// KeepAlive implements store.KV.
func (k *KV) KeepAlive(ctx context.Context, id store.LeaseID) (time.Duration, error) {
	if err := k.enter(ctx, "keepalive"); err != nil {
		return 0, err
	}
	defer k.mu.Unlock()
	l := k.leases[id]
	if l == nil {
		return 0, fmt.Errorf("keep lease %d alive: %w", id, store.ErrLeaseGone)
	}
	l.ends = k.now().Add(l.ttl)
	k.arm()
	return l.ttl, nil
}

// Revoke implements store.KV.
func (k *KV) Revoke(ctx context.Context, id store.LeaseID) error {
	if err := k.enter(ctx, "revoke"); err != nil {
		return err
	}
	defer k.mu.Unlock()
	if k.leases[id] == nil {
		return fmt.Errorf("revoke lease %d: %w", id, store.ErrLeaseGone)
	}
	k.drop(id)
	return nil
}

// Expire ends a lease now, as if its time had come.
func (k *KV) Expire(id store.LeaseID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(id)
}

// Tick ends the leases whose time has come.
func (k *KV) Tick() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	k.arm()
}

// expire ends due leases in the order in which they were due.
func (k *KV) expire() {
	var due []store.LeaseID
	now := k.now()
	for id, l := range k.leases {
		if !l.ends.After(now) {
			due = append(due, id)
		}
	}
	sort.Slice(due, func(i, j int) bool {
		a, b := k.leases[due[i]], k.leases[due[j]]
		if !a.ends.Equal(b.ends) {
			return a.ends.Before(b.ends)
		}
		return due[i] < due[j]
	})
	for _, id := range due {
		k.drop(id)
	}
}

// drop ends a lease and deletes its keys in one revision.
func (k *KV) drop(id store.LeaseID) {
	l := k.leases[id]
	if l == nil {
		return
	}
	delete(k.leases, id)
	var writes []store.Write
	for key := range l.keys {
		writes = append(writes, store.Write{Key: key, Delete: true})
	}
	sort.Slice(writes, func(i, j int) bool { return writes[i].Key < writes[j].Key })
	k.write(writes)
}

// attach moves key from its old lease to the one it is written with.
func (k *KV) attach(key string, old store.LeaseID, w store.Write) {
	if l := k.leases[old]; l != nil {
		delete(l.keys, key)
	}
	if l := k.leases[w.Lease]; l != nil && !w.Delete {
		l.keys[key] = true
	}
}

// arm sets the timer to the next lease's end when the process's clock rules.
func (k *KV) arm() {
	if !k.real {
		return
	}
	var next time.Time
	for _, l := range k.leases {
		if next.IsZero() || l.ends.Before(next) {
			next = l.ends
		}
	}
	if k.timer != nil {
		k.timer.Stop()
	}
	if !next.IsZero() {
		k.timer = time.AfterFunc(next.Sub(k.now()), k.Tick)
	}
}
