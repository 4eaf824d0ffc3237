// Package reconcile is the one loop that every component runs in: a queue of
// keys in which a key stands at most once, worked one key at a time per key,
// with backoff per key after an error, a guard against panics, and a look at
// every key again on a period whether or not an event came.
//
// What a Reconciler returns decides what becomes of the key: nil forgets it, After
// delays it, Terminal leaves it until the next event or resync, ErrConflict is
// tried again at once (and ever slower while the conflicts go on), any other error
// and a panic back off from 5 ms to one minute. An event ends every delay. An error
// is logged when it is new for its key, not each time it comes back.
//
// An idle loop costs one timer per resync period. A resync is cut into 32 slices
// spread over the period, and a key is always in the same slice.
//
// A Loop can be run (Run, with goroutines) or stepped by one caller (Step), which
// is how unit tests and the simulator drive it (D9).
package reconcile
