// Package podset is what controllers of pods have in common, as pure functions:
// which pods count, making a pod from a template, which pods to delete first, how
// a pod is removed, and the status of a ReplicaSet. It also keeps the one index
// that adoption needs (Orphans).
package podset
