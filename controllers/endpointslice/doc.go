// Package endpointslice says which addresses answer for a Service: in EndpointSlices,
// which the nodes route by, and in an Endpoints object beside them, for old clients.
//
// It reads Services, Pods, the zones of Nodes, and the Endpoints that somebody gave a
// Service without a selector. It alone writes the EndpointSlices with the label
// endpointslice.kubernetes.io/managed-by=endpointslice-controller.headway.dev, and the
// Endpoints with the label endpoints.kubernetes.io/managed-by of the same value. Slices
// of others, and Endpoints that a repository declares, it leaves alone; other Endpoints
// of the name of a Service with a selector it takes over, as Kubernetes does.
//
// Invariants. The slices of a Service that are ours have together each endpoint that
// is wanted once, and no other; none has more than 100. An endpoint stays in its slice
// as long as its ports do, so a change rewrites the slices that it concerns and no
// other. Every transaction is conditioned on the Service that it was decided for.
//
// A pod is an endpoint from when it has an address until it has ended. It is ready
// when it passes its probes and is not told to stop; it goes on serving until it does
// not pass them any more. publishNotReadyAddresses makes it ready from the start. A
// named target port is looked up in each pod, so pods of two versions may be in slices
// with different ports. When a Service loses its selector, what was made by it goes.
//
// Example: a Service with 250 ready pods has slices of 100, 100 and 50 endpoints; when
// one pod of the first stops, only the first is written, and the pod that takes its
// place goes there too.
//
// Rules: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/,
// https://kubernetes.io/docs/concepts/services-networking/service/#endpoints
package endpointslice
