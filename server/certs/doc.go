// Package certs is the cluster's own certificate authority: it makes and keeps
// the authority, and issues from it what servers, administrators and nodes show
// each other. All keys are ECDSA P-256.
//
// The authority is one object in the store, its key sealed (D3). A certificate is
// due for renewal once two thirds of its life are over; a server's renews itself
// at the first handshake after that, with no work in between.
package certs
