package store

import (
	"context"
	"time"
)

// KV is a backend: bytes under keys with etcd's semantics. One suite,
// store/storetest, says what that means and runs on every backend. All methods
// are safe for concurrent use. Revisions are etcd's: one counter for the whole
// backend, raised by one for each transaction that writes.
type KV interface {
	// Range reads keys in [start, end) in order; end "" means the one key start.
	// At revision 0 the read is linearizable; at another it is of that past
	// state, or ErrCompacted, or ErrFuture.
	Range(ctx context.Context, r RangeRequest) (RangeResponse, error)
	// Commit does all of then if every compare holds, else nothing. At most
	// MaxOps of each, MaxBytes in all, else ErrTooLarge.
	Commit(ctx context.Context, compares []Compare, then []Write) (Committed, error)
	// Watch delivers, from revision from (inclusive) on, each revision that wrote
	// under prefix as one Batch, in order, whole; and an empty Batch with the
	// current revision now and then and on request (Progress). The channel is
	// closed after a Batch with Err: ErrCompacted when from is gone, else what
	// broke. It ends when ctx does.
	Watch(ctx context.Context, prefix string, from int64) (<-chan Batch, error)
	// Progress asks that every watch be sent an empty Batch with the current
	// revision soon.
	Progress(ctx context.Context) error
	// Compact forgets history before rev.
	Compact(ctx context.Context, rev int64) error
	// Grant makes a lease that ends ttl after its last KeepAlive; KeepAlive does
	// exactly one renewal and returns the time left then (ErrLeaseGone when it has
	// ended); Revoke ends it now. Keys written with it vanish with it.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, error)
	KeepAlive(ctx context.Context, id LeaseID) (time.Duration, error)
	Revoke(ctx context.Context, id LeaseID) error
}

// Bounds of one Commit (D3).
const (
	MaxOps   = 512     // compares; the writes of bulk work keep to BulkObjects
	MaxBytes = 2 << 20 // one object may have 1.5 MiB, as in Kubernetes
	// BulkObjects and BulkBytes bound one transaction of bulk work, such as an
	// apply.
	BulkObjects = 100
	BulkBytes   = 1 << 20
	// ObjectBytes bounds one object, encoded.
	ObjectBytes = 3 << 19
)

// LeaseID names a lease; 0 is none.
type LeaseID int64

// RangeRequest says what to read.
type RangeRequest struct {
	Start, End string
	Revision   int64 // 0: now
	Limit      int   // 0: all
	KeysOnly   bool
	CountOnly  bool
}

// RangeResponse is the answer: Count is of all keys in the range, also beyond
// Limit.
type RangeResponse struct {
	Revision int64 // the backend's revision at the read
	Entries  []Entry
	Count    int
}

// Entry is one key's value.
type Entry struct {
	Key            string
	Value          []byte
	CreateRevision int64
	ModRevision    int64
	Lease          LeaseID
}

// Compare is one condition of a Commit. Revision 0 means: the key must not
// exist.
type Compare struct {
	Key string
	// Create compares the create revision instead of the mod revision (the
	// fence: a leader's key keeps its create revision while it is renewed).
	Create   bool
	Revision int64
}

// Write is one change of a Commit: a put, or a delete when Delete is set.
type Write struct {
	Key    string
	Value  []byte
	Lease  LeaseID
	Delete bool
}

// Committed is the outcome: OK says whether the compares held. Failed lists
// those that did not, in order, as seen in the same transaction.
type Committed struct {
	OK       bool
	Revision int64
	Failed   []Failed
}

// Failed is one compare that did not hold.
type Failed struct {
	Index    int   // in the compares
	Revision int64 // what the key has (of the kind that was compared); 0: no such key
}

// Batch is everything that one revision wrote under a watch's prefix, in key
// order; no Changes: only progress.
type Batch struct {
	Revision int64
	Changes  []Change
	Err      error
}

// Change is one key's change.
type Change struct {
	Entry   Entry // for a delete: the key, and ModRevision of the delete
	Deleted bool
}
