// Package memory is a store.KV in one process, for unit tests and the
// simulator: every past revision until it is compacted, watches, leases on a
// clock that the caller may own, and faults on demand.
//
// It has no goroutine of its own while watchers keep up: a commit puts its batch
// into every watch's channel before it returns, so one goroutine can step a whole
// control plane (D9).
package memory
