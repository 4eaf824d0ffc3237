// Package storage is what Kubernetes' registries see instead of etcd: the
// storage.Interface of k8s.io/apiserver, answered by store.Store (D2).
//
// Above it objects are Kubernetes' internal types, below it v1. Kubernetes'
// generated conversions alias memory, and what the store's cache hands out is
// shared by the whole process, so there is one rule: whatever a caller may write
// to (Get, the input of an update or of a delete check) is copied first; lists and
// watch events are only encoded by the API server and alias the cache.
//
// What a read sees:
//
//	resourceVersion unset    the cache, once it has reached the backend's revision
//	resourceVersion 0        the cache as it is
//	NotOlderThan R           the cache, once it has reached R
//	Exact R, continue        the backend at R; 410 when R is compacted
//	watch from R             the store's window of events, else 410
//
// A list's revision and its content are of one moment.
package storage
