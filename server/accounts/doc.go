// Package accounts makes users of ServiceAccounts: it signs their tokens, says whose a
// token is, and what a user may do by the Roles and ClusterRoles that are bound to it.
// All of it is Kubernetes' own code over the store's cache.
//
// The key that signs is made once per cluster and sealed in the store, so that every
// server signs with it and knows the tokens of the others.
//
// Invariants:
//   - A token that is bound to a pod or a Secret is good as long as that very object is
//     there, by uid; every token, as long as its account is.
//   - No token and no part of the key is in an error or a log (R14).
//
// Example: the agent of n1 asks for a token of pod default/web, which runs as the
// account "reader". ForPod signs one for the API, bound to the pod. A request that
// bears it is one of system:serviceaccount:default:reader, and Roles allows it what a
// RoleBinding to that account grants.
package accounts
