// Package quota keeps the status of ResourceQuotas: what is bounded, and how much of
// it is used.
//
// It reads ResourceQuotas and what they count. It alone writes status.hard, which is
// spec.hard from the moment on that it is enforced, and status.used anew from what
// there is. Between two looks every write that uses something raises status.used in
// its own transaction (store.Options.Bounds); what is freed is found here.
//
// Invariant: what is counted is written only over the quota that was read before
// counting. Whatever was made since has written the quota, too, so a count that lacks
// it is refused by the store and made again. So status.used is never less than what
// there is, and what there is never comes to exceed status.hard by being made.
//
// Example: a quota of four pods, of which four run. The fifth is refused, by whoever
// it is made, and its ReplicaSet says so (ReplicaFailure, FailedCreate). One ends:
// the count here brings used to three, and the next try succeeds.
package quota
