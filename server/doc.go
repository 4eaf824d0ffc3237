// Package server is the face of a cluster: one TLS listener with the Kubernetes
// API, the agents' sessions, the git endpoint and the health checks.
//
// The API is k8s.io/apiserver with Kubernetes' own registries, so that
// generation, status, finalizers, generateName, dry run, scale and server-side
// apply are Kubernetes' own; package storage puts store.Store under them (D2).
// There are no webhooks, no aggregation, no informers and no work in the
// background: an idle server does nothing.
//
// Who may do what: a client certificate of the cluster's authority in the group
// system:masters may do everything; every other request to the API is refused.
// Nodes (group system:nodes) only speak on the agents' session. /livez, /readyz
// and /healthz answer anybody. The git endpoint checks its own tokens.
package server
