package memory

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"headway.dev/headway/store"
)

// version is one key's state since a revision.
type version struct {
	entry   store.Entry
	deleted bool
}

// KV is the backend. Use New or NewAt.
type KV struct {
	now  store.Clock
	real bool // leases end by a timer of the runtime, not only by Tick

	mu        sync.Mutex
	revision  int64
	compacted int64
	keys      []string             // every key that has history, sorted
	history   map[string][]version // ascending
	log       []store.Batch        // of every revision after logFrom, in order
	logFrom   int64
	watches   map[*watch]struct{}
	leases    map[store.LeaseID]*lease
	lastLease store.LeaseID
	timer     *time.Timer
	fail      func(op string) error
}

// New makes an empty backend whose leases follow the process's clock.
func New() *KV {
	k := NewAt(time.Now)
	k.real = true
	return k
}

// NewAt makes an empty backend on a clock of the caller's. Leases that are due
// end at the next call of any method; Tick is the one that does only this.
func NewAt(now store.Clock) *KV {
	return &KV{
		now:      now,
		revision: 1, // as etcd
		logFrom:  1,
		history:  map[string][]version{},
		watches:  map[*watch]struct{}{},
		leases:   map[store.LeaseID]*lease{},
	}
}

// Fail sets a hook that is asked before each operation ("range", "commit",
// "watch", "progress", "compact", "grant", "keepalive", "revoke"); the error it
// returns is the operation's. It is also asked as "committed" after a commit has
// happened: an error then loses only the answer. nil removes the hook.
func (k *KV) Fail(hook func(op string) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = hook
}

// enter locks the backend for op, or returns the fault to give instead. A hook
// may call back into the backend's fault methods, so it runs unlocked.
func (k *KV) enter(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w: %w", op, store.ErrUnavailable, err)
	}
	if err := k.fault(op); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	k.mu.Lock()
	k.expire()
	return nil
}

func (k *KV) fault(op string) error {
	k.mu.Lock()
	hook := k.fail
	k.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(op)
}

// Range implements store.KV.
func (k *KV) Range(ctx context.Context, r store.RangeRequest) (store.RangeResponse, error) {
	if err := k.enter(ctx, "range"); err != nil {
		return store.RangeResponse{}, err
	}
	defer k.mu.Unlock()
	at := r.Revision
	switch {
	case at == 0:
		at = k.revision
	case at > k.revision:
		return store.RangeResponse{}, fmt.Errorf("range at revision %d, now at %d: %w", at, k.revision, store.ErrFuture)
	case at < k.compacted:
		return store.RangeResponse{}, fmt.Errorf("range at revision %d, history starts at %d: %w", at, k.compacted, store.ErrCompacted)
	}
	resp := store.RangeResponse{Revision: k.revision}
	from := sort.SearchStrings(k.keys, r.Start)
	for _, key := range k.keys[from:] {
		if r.End == "" && key != r.Start || r.End != "" && key >= r.End {
			break
		}
		v, ok := k.at(key, at)
		if !ok {
			continue
		}
		resp.Count++
		if r.CountOnly || r.Limit > 0 && len(resp.Entries) >= r.Limit {
			continue
		}
		e := v.entry
		if r.KeysOnly {
			e.Value = nil
		} else {
			e.Value = slices.Clone(e.Value)
		}
		resp.Entries = append(resp.Entries, e)
	}
	return resp, nil
}

// at returns what key was at a revision.
func (k *KV) at(key string, revision int64) (version, bool) {
	h := k.history[key]
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].entry.ModRevision <= revision {
			return h[i], !h[i].deleted
		}
	}
	return version{}, false
}

// Commit implements store.KV.
func (k *KV) Commit(ctx context.Context, compares []store.Compare, then []store.Write) (store.Committed, error) {
	if err := checkBounds(compares, then); err != nil {
		return store.Committed{}, err
	}
	if err := k.enter(ctx, "commit"); err != nil {
		return store.Committed{}, err
	}
	out, err := k.commit(compares, then)
	k.mu.Unlock()
	if err != nil {
		return store.Committed{}, err
	}
	if err := k.fault("committed"); err != nil {
		return store.Committed{}, fmt.Errorf("commit: %w", err)
	}
	return out, nil
}

func checkBounds(compares []store.Compare, then []store.Write) error {
	if len(compares) > store.MaxOps || len(then) > store.MaxOps {
		return fmt.Errorf("commit of %d compares and %d writes, at most %d of each: %w", len(compares), len(then), store.MaxOps, store.ErrTooLarge)
	}
	size := 0
	seen := make(map[string]bool, len(then))
	for _, w := range then {
		if seen[w.Key] {
			return fmt.Errorf("commit writes key %s twice", w.Key)
		}
		seen[w.Key] = true
		size += len(w.Key) + len(w.Value)
	}
	if size > store.MaxBytes {
		return fmt.Errorf("commit of %d bytes, at most %d: %w", size, store.MaxBytes, store.ErrTooLarge)
	}
	return nil
}

func (k *KV) commit(compares []store.Compare, then []store.Write) (store.Committed, error) {
	var failed []store.Failed
	for i, c := range compares {
		var have int64
		if v, ok := k.at(c.Key, k.revision); ok {
			have = v.entry.ModRevision
			if c.Create {
				have = v.entry.CreateRevision
			}
		}
		if have != c.Revision {
			failed = append(failed, store.Failed{Index: i, Revision: have})
		}
	}
	if failed != nil {
		return store.Committed{Revision: k.revision, Failed: failed}, nil
	}
	for _, w := range then {
		if w.Lease != 0 && !w.Delete && k.leases[w.Lease] == nil {
			return store.Committed{}, fmt.Errorf("write %s with lease %d: %w", w.Key, w.Lease, store.ErrLeaseGone)
		}
	}
	k.write(then)
	return store.Committed{OK: true, Revision: k.revision}, nil
}

// write makes one revision of the writes; deletes of absent keys write nothing.
func (k *KV) write(writes []store.Write) {
	next := k.revision + 1
	var changes []store.Change
	for _, w := range writes {
		old, had := k.at(w.Key, k.revision)
		if w.Delete && !had {
			continue
		}
		k.attach(w.Key, old.entry.Lease, w)
		v := version{deleted: w.Delete, entry: store.Entry{Key: w.Key, ModRevision: next}}
		if !w.Delete {
			v.entry.Value, v.entry.Lease, v.entry.CreateRevision = slices.Clone(w.Value), w.Lease, next
			if had {
				v.entry.CreateRevision = old.entry.CreateRevision
			}
		}
		if k.history[w.Key] == nil {
			i := sort.SearchStrings(k.keys, w.Key)
			k.keys = slices.Insert(k.keys, i, w.Key)
		}
		k.history[w.Key] = append(k.history[w.Key], v)
		changes = append(changes, store.Change{Entry: v.entry, Deleted: w.Delete})
	}
	if changes == nil {
		return
	}
	sort.Slice(changes, func(i, j int) bool { return changes[i].Entry.Key < changes[j].Entry.Key })
	k.revision = next
	k.log = append(k.log, store.Batch{Revision: next, Changes: changes})
	k.feed()
}

// Compact implements store.KV.
func (k *KV) Compact(ctx context.Context, rev int64) error {
	if err := k.enter(ctx, "compact"); err != nil {
		return err
	}
	defer k.mu.Unlock()
	switch {
	case rev > k.revision:
		return fmt.Errorf("compact to revision %d, now at %d: %w", rev, k.revision, store.ErrFuture)
	case rev <= k.compacted:
		return fmt.Errorf("compact to revision %d, already at %d: %w", rev, k.compacted, store.ErrCompacted)
	}
	k.compacted = rev
	kept := k.keys[:0]
	for _, key := range k.keys {
		h := k.history[key]
		first := 0 // the newest version at or before rev stays, unless it is a delete
		for first+1 < len(h) && h[first+1].entry.ModRevision <= rev {
			first++
		}
		if h[first].deleted && h[first].entry.ModRevision <= rev {
			first++
		}
		if first == len(h) {
			delete(k.history, key)
			continue
		}
		k.history[key] = slices.Clone(h[first:])
		kept = append(kept, key)
	}
	k.keys = kept
	// Batches of rev itself stay: a watch may start there, as in etcd.
	if drop := rev - 1 - k.logFrom; drop > 0 {
		k.log = slices.Clone(k.log[drop:])
		k.logFrom = rev - 1
	}
	return nil
}
