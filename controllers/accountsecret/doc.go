// Package accountsecret fills in the Secrets of the type
// kubernetes.io/service-account-token, which hold a token that does not have to be asked
// for, as Kubernetes' token controller does.
//
// Reads: Secrets of that type, ServiceAccounts.
//
// Alone writes: of such a Secret the keys token, ca.crt and namespace, and the
// annotation kubernetes.io/service-account.uid.
//
// Invariants: a Secret gets a token of no account but the one that its annotation
// kubernetes.io/service-account.name names, in its own namespace; the token is bound to
// the Secret, so deleting the Secret ends it; a token that is there and is its account's
// stays until half of its life is over. No token is in an error or a log (R14).
//
// Example: a commit declares the Secret ci with the annotation of the account "deployer".
// The controller writes the token; the account is deleted and made again; its uid is
// another, and the Secret gets a new token.
package accountsecret
