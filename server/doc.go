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
// system:masters may do everything; who has another, or the token of a ServiceAccount,
// may do what roles allow (package accounts); whoever has neither is answered 401.
// Nodes (group system:nodes) only speak on the agents' session: no role is bound to
// them but those of every user. /livez, /readyz and /healthz answer anybody. The git endpoint checks its own tokens.
package server
