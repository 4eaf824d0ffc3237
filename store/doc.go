// Package store is the contract for the cluster's shared state: objects under
// keys, at revisions, changed by transactions, seen by snapshot and watch; leases
// and the leader's fence.
//
// KV is what a backend gives (store/etcd, store/memory): bytes with etcd's
// semantics. Store is built over any KV once: it encodes objects, seals Secrets,
// keeps one shared cache per process that applies each revision whole, and checks
// the fence inside every write of a leader's component (R4).
//
// There are two ways to read. Get, List, Owned and OnNode are of the cache: free,
// shared, never to be mutated, and possibly behind; what a decision was read from
// is made sure of by the conditions of the transaction that acts on it. GetAt,
// ListAt and Current are of the backend: linearizable, or of a past revision.
// WaitRevision joins the two.
//
// There is one way to write: Commit, whose every change names the revision that
// it replaces. A reader that wants changes takes Snapshot and then Watch from the
// revision that Snapshot gave; a component of this process takes OnEvents.
//
// The cache follows one watch of the backend, of everything under Prefix. When
// that watch breaks it is opened again where it was; when history does not reach
// back that far, everything is read again and what differs becomes events. So
// whoever follows events has, at every moment, been told of a state that was
// real, whole revisions at a time, and misses no last state of any object.
//
// Keys under Prefix whose next word starts with an underscore are no objects
// (the election); the cache passes over them, and over kinds that this version
// does not know.
package store
