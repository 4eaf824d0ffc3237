// Package garbage removes what nobody owns or wants any more: objects whose owners
// are gone, objects that only wait for the removal of their dependents, and events
// that are old. Pods that ended, or that nobody will end, are controllers/podgarbage's.
//
// Reads: every kind; of most objects only the metadata.
//
// Owners that own each other go together, in the foreground too: what waits for the
// owner itself does not hold it up. An owner reference that leads into another
// namespace is told in an event.
//
// Alone writes: the deletion of objects whose owners are all gone, and of Events;
// the removal of owner references to owners that are gone; the finalizers
// foregroundDeletion and orphan, and the removal of an object that no finalizer
// holds any more.
//
// Invariants: an object is deleted for its owners' sake only in a transaction that
// is conditioned on every one of them being absent (or another object under the
// same name), so a cache that does not show an owner yet deletes nothing. An owner
// of a kind that this version does not know counts as being there. An object that no
// owner reference names is never garbage.
//
// The work is keyed by owner: an owner that goes takes its dependents along in
// batches, so the work is proportional to what changed. A pass over all metadata
// at start and on each resync finds what events did not tell.
//
// Example: a Deployment is deleted. Its ReplicaSets go in one transaction; that
// makes their pods' owner absent, and the pods are marked in the next.
package garbage
