package store

import (
	"errors"
	"fmt"
)

// Classes of errors that callers branch on, with errors.Is.
var (
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("already exists")
	ErrConflict    = errors.New("changed meanwhile")      // a revision did not match: read again and decide again
	ErrFenced      = errors.New("no longer the leader")   // R4
	ErrCompacted   = errors.New("revision compacted")     // 410: start again from a snapshot
	ErrFuture      = errors.New("revision in the future") // not reached yet
	ErrTooLarge    = errors.New("too large for one transaction")
	ErrLeaseGone   = errors.New("lease ended")
	ErrUnavailable = errors.New("store unavailable") // no quorum, no connection, or closed; the write may or may not have happened
	ErrFull        = errors.New("store quota exceeded")
	ErrSlow        = errors.New("watcher too slow") // its buffer was full; start again
)

// KeyError is an error about one key; errors.Is sees its class.
type KeyError struct {
	Key Key
	Err error
}

func (e *KeyError) Error() string { return fmt.Sprintf("%s: %v", e.Key, e.Err) }
func (e *KeyError) Unwrap() error { return e.Err }
