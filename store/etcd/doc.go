// Package etcd is the store.KV over etcd: a member embedded in this process
// (Start), or outside endpoints (Dial). It is the only package that imports etcd
// (D3).
//
// An embedded member has no client listener: this process speaks to it in
// process, and nobody else can. A member that is alone and has no peer URL
// listens nowhere. Peers speak over mutual TLS, and only certificates with the
// configured common name are peers, so that a node's certificate of the same
// authority is not.
//
// Maintain keeps the database bounded: the leader compacts history, each member
// gives free space back, one member at a time, and whoever asks learns when the
// quota comes near.
package etcd
