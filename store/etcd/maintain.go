package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"headway.dev/headway/store"
)

// How Maintain works (D3).
const (
	lookEvery    = time.Minute      // at the database's size
	compactEvery = 5 * time.Minute  // by the leader
	keepHistory  = 10 * time.Minute // that much stays
	nearQuota    = 0.8              // of the quota is the state Near
	// A member gives free space back when it has at least minFree of it, and that
	// is half of the file, or the file is near the quota.
	minFree = 64 << 20
	// defragTTL bounds how long a member that dies while it defragments keeps the
	// others from it.
	defragTTL = 10 * time.Minute
)

// defragKey is held by the one member that defragments.
const defragKey = store.Prefix + "_maintenance/defragment"

// State is how the database stands to its quota.
type State string

const (
	Roomy State = "roomy"
	Near  State = "near" // at least four fifths: look for what writes so much
	Full  State = "full" // writes are refused (store.ErrFull) until space is freed
)

// Usage is the size of a member's database.
type Usage struct {
	State State
	Bytes int64 // of the file
	InUse int64 // of these, not free for reuse
	Quota int64 // 0: not known (outside endpoints)
}

// keeper is what Maintain remembers.
type keeper struct {
	mu        sync.Mutex
	usage     Usage
	marks     []mark // ascending
	compacted time.Time
}

// mark says which revision was current when.
type mark struct {
	at       time.Time
	revision int64
}

// Usage returns what Maintain last saw.
func (e *Etcd) Usage() Usage {
	e.keeper.mu.Lock()
	defer e.keeper.mu.Unlock()
	return e.keeper.usage
}

// Maintain keeps the database bounded until ctx ends. Every server runs it. Of
// outside endpoints it only compacts the history; their space is their
// operator's.
func (e *Etcd) Maintain(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := e.maintain(ctx, e.config.Now()); err != nil && ctx.Err() == nil {
			e.log.Warn("maintenance of the store did not finish; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// maintain does one round. It tells of a full store at once, and of anything else
// as it is in the end: what the round itself mends is nothing to act on.
func (e *Etcd) maintain(ctx context.Context, now time.Time) error {
	usage, _, err := e.measure(ctx)
	if err != nil {
		return err
	}
	if usage.State == Full {
		e.tell(usage)
	}
	if err := e.compact(ctx, now, usage.State == Full); err != nil {
		return err
	}
	if e.server == nil {
		e.tell(usage)
		return nil
	}
	// What compaction freed shows in a new measurement.
	usage, full, err := e.measure(ctx)
	if err != nil {
		return err
	}
	if wantsDefrag(usage) {
		if err := e.defragment(ctx, now); err != nil {
			return err
		}
		if usage, full, err = e.measure(ctx); err != nil {
			return err
		}
	}
	if full && float64(usage.Bytes) < nearQuota*float64(usage.Quota) {
		if _, err := e.client.AlarmDisarm(ctx, e.alarm()); err != nil {
			return fmt.Errorf("lift the quota alarm: %w", classify(err))
		}
		if usage, _, err = e.measure(ctx); err != nil {
			return err
		}
	}
	e.tell(usage)
	return nil
}

func wantsDefrag(u Usage) bool {
	free := u.Bytes - u.InUse
	return free >= minFree && free >= u.Bytes/2 || u.State != Roomy && free >= u.Bytes/5
}

func (e *Etcd) alarm() *clientv3.AlarmMember {
	return &clientv3.AlarmMember{MemberID: uint64(e.server.Server.MemberID()), Alarm: pb.AlarmType_NOSPACE}
}

// measure looks at the database. full says whether this member has raised the
// quota alarm.
func (e *Etcd) measure(ctx context.Context) (u Usage, full bool, err error) {
	if e.server == nil {
		return Usage{State: Roomy}, false, nil
	}
	alarms, err := e.client.AlarmList(ctx)
	if err != nil {
		return Usage{}, false, fmt.Errorf("list alarms: %w", classify(err))
	}
	backend := e.server.Server.Backend()
	u = Usage{State: Roomy, Bytes: backend.Size(), InUse: backend.SizeInUse(), Quota: e.config.Quota}
	if float64(u.Bytes) >= nearQuota*float64(u.Quota) {
		u.State = Near
	}
	for _, a := range alarms.Alarms {
		if a.Alarm != pb.AlarmType_NOSPACE {
			continue
		}
		u.State = Full // any member's alarm stops all writes
		if a.MemberID == uint64(e.server.Server.MemberID()) {
			full = true
		}
	}
	return u, full, nil
}

// tell updates Usage, and tells OnUsage if the state has changed.
func (e *Etcd) tell(u Usage) {
	e.keeper.mu.Lock()
	changed := e.keeper.usage.State != u.State && (e.keeper.usage.State != "" || u.State != Roomy)
	e.keeper.usage = u
	e.keeper.mu.Unlock()
	switch {
	case !changed:
	case e.config.OnUsage != nil:
		e.config.OnUsage(u)
	default:
		e.log.Warn("the store's use of its quota changed", "state", u.State, "bytes", u.Bytes, "inUse", u.InUse, "quota", u.Quota)
	}
}

// compact forgets history that is older than keepHistory, or all of it when the
// quota is exceeded. Every member keeps the marks, so that a new leader knows
// them; only the leader compacts. Of outside endpoints nobody here is the leader:
// all compact, which harms nobody.
func (e *Etcd) compact(ctx context.Context, now time.Time, all bool) error {
	kv := e.kv()
	current, err := kv.Range(ctx, store.RangeRequest{Start: store.Prefix, CountOnly: true})
	if err != nil {
		return err
	}
	target, due := e.keeper.due(now, current.Revision)
	if e.server != nil && !e.IsLeader() {
		return nil
	}
	switch {
	case all:
		err = kv.compact(ctx, current.Revision, clientv3.WithCompactPhysical())
	case due:
		err = kv.compact(ctx, target)
	}
	if err != nil && !errors.Is(err, store.ErrCompacted) { // by another, which is as good
		return err
	}
	return nil
}

// due notes the current revision and returns the newest one that is old enough to
// be forgotten, if it is time.
func (k *keeper) due(now time.Time, revision int64) (int64, bool) {
	k.marks = append(k.marks, mark{at: now, revision: revision})
	i, _ := slices.BinarySearchFunc(k.marks, now.Add(-keepHistory), func(m mark, t time.Time) int { return m.at.Compare(t) })
	if i < len(k.marks) && k.marks[i].at.Equal(now.Add(-keepHistory)) {
		i++
	}
	if i == 0 || now.Sub(k.compacted) < compactEvery {
		return 0, false
	}
	old := k.marks[i-1]
	k.marks = slices.Clone(k.marks[i-1:])
	k.compacted = now
	return old.revision, true
}

// defragment gives free space back, unless another member is at it: then it is
// tried in the next round. The member does not answer meanwhile.
func (e *Etcd) defragment(ctx context.Context, now time.Time) error {
	unlock, err := e.lockDefrag(ctx, now)
	if err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	if unlock == nil {
		return nil
	}
	defer unlock()
	if err := e.server.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	return nil
}

// lockDefrag returns nil when it is not this member's turn.
func (e *Etcd) lockDefrag(ctx context.Context, now time.Time) (unlock func(), err error) {
	kv := e.kv()
	lease, err := kv.Grant(ctx, defragTTL)
	if errors.Is(err, store.ErrFull) {
		// A full store takes no lock either: go by the clock.
		mine, err := e.turn(ctx, now)
		if err != nil || !mine {
			return nil, err
		}
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	unlock = func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		if err := kv.Revoke(undo, lease); err != nil {
			e.log.Warn("the defragmentation lock ends by itself", "after", defragTTL, "error", err)
		}
	}
	out, err := kv.Commit(ctx, []store.Compare{{Key: defragKey}}, []store.Write{{Key: defragKey, Value: []byte(e.config.Name), Lease: lease}})
	if err != nil || !out.OK {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// turn gives each member one round in as many as there are members.
func (e *Etcd) turn(ctx context.Context, now time.Time) (bool, error) {
	list, err := e.client.MemberList(ctx)
	if err != nil {
		return false, fmt.Errorf("list members: %w", classify(err))
	}
	var ids []uint64
	for _, m := range list.Members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	round := now.Unix() / int64(lookEvery.Seconds())
	return ids[round%int64(len(ids))] == uint64(e.server.Server.MemberID()), nil
}
