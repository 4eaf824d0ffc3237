// Package resolv reads and makes resolv.conf: the node's and a pod's.
//
// It reads the node's file and writes nothing; what a pod gets is decided by For,
// a pure function of the pod's fields, the cluster and the node's file, as
// Kubernetes decides it.
//
// Example: a pod of namespace shop with the usual dnsPolicy, in the cluster
// cluster.local that answers at 169.254.7.9, on a node that searches example.org:
//
//	nameserver 169.254.7.9
//	search shop.svc.cluster.local svc.cluster.local cluster.local example.org
//	options ndots:5
package resolv
