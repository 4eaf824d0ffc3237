// Package namespace keeps the namespaces that the cluster needs, makes new
// namespaces usable, and empties and removes those that are being deleted.
//
// Reads: Namespaces, and of a namespace that is being deleted every object in it.
//
// Alone writes: the creation of the permanent namespaces (default, kube-system,
// kube-node-lease); a Namespace's spec.finalizers, label kubernetes.io/metadata.name
// and status, and its removal; the creation of each namespace's ServiceAccount
// default; its ConfigMap kube-root-ca.crt, which holds the certificate of the cluster's
// authority, as in Kubernetes; the deletion of everything in a namespace that is being deleted.
//
// Invariants: nothing is deleted but what is in a namespace that is being deleted;
// a permanent namespace is never emptied; a namespace goes only when the backend
// itself, not the cache, shows it empty.
//
// Example: a namespace with two running pods and a ConfigMap is deleted. The first
// transaction deletes the ConfigMap and marks the pods; the status says "Some
// resources are remaining: pods. has 2 resource instances"; when the node has
// stopped them, the next one removes the namespace.
package namespace
