// Package api holds the kinds that Headway knows: which they are, how a
// manifest is decoded strictly with file and line, how it is defaulted and
// validated, and where a declared object came from (its provenance). It is data
// and pure functions only: no store, no clock, no network.
//
// The types, the defaulting and the validation of the Kubernetes kinds are
// Kubernetes' own (k8s.io/api and k8s.io/kubernetes/pkg/apis), so a manifest
// gets here the very message that Kubernetes would give. Our own kinds live in
// the group headway.dev/v1, one file per kind.
package api
