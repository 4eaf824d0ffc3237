package store

import (
	"context"
	"time"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Reader reads the process's shared cache. What it returns is shared by
// everybody and must never be mutated: copy first. Lists are sorted by namespace
// and name. Reads cost no I/O; the cache may be behind the backend, which a
// Txn's conditions detect.
type Reader interface {
	// Get returns nil when there is no such object.
	Get(key Key) api.Object
	// List lists a resource; namespace "" means all.
	List(gr schema.GroupResource, namespace string) []api.Object
	// Owned lists the objects that name uid as an owner, sorted by key.
	Owned(uid types.UID) []api.Object
	// OnNode lists the pods bound to a node.
	OnNode(node string) []*corev1.Pod
	// Revision is how far the cache is.
	Revision() int64
}

// Writer changes the store.
type Writer interface {
	// Commit does every Op of the transaction or none. On success each written
	// object in the Ops carries its new resourceVersion, and the revision is
	// returned. Errors: *KeyError with ErrConflict, ErrExists or ErrNotFound;
	// ErrFenced, ErrTooLarge, ErrUnavailable, ErrFull.
	Commit(ctx context.Context, t Txn) (int64, error)
}

// Verb is what an Op does.
type Verb string

const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
)

// Op is one change. Create: the key must not exist. Update: Object's
// resourceVersion must be the live one. Delete: Object (any form with the key and
// the resourceVersion read) must be the live one. An Object without
// resourceVersion in an Update or Delete is refused: there are no blind writes.
type Op struct {
	Verb   Verb
	Object api.Object
	Lease  LeaseID // Create and Update: the object vanishes with this lease
}

// Txn is one transaction.
type Txn struct {
	// Fence is the leader's right to write; zero for writes of no leader (API
	// clients, sessions).
	Fence Fence
	// If lists further objects that must still be at their resourceVersion; an
	// object without one must not exist.
	If  []api.Object
	Ops []Op
}

// Fence is proof of leadership: the election key and its create revision (R4).
// The zero Fence demands nothing.
type Fence struct {
	Key      string
	Revision int64
}

// Event is one change that the cache has applied.
type Event struct {
	Key      Key
	Object   api.Object // nil when deleted
	Previous api.Object // nil when created
	Revision int64
}

// Deleted says whether the object is gone.
func (e Event) Deleted() bool { return e.Object == nil }

// Clock tells the time; tests and the simulator give their own.
type Clock func() time.Time
