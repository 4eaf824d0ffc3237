// Package kubernetes keeps the Service default/kubernetes, by which pods find the
// cluster's API: programs that run in a cluster take its address for granted.
//
// It reads and it alone writes the Service, the Endpoints and the EndpointSlice of that
// name. The Service has the first address of the range of cluster IPs, which no other
// gets. Its endpoint is the address of the server that leads; it has none when that
// listens on loopback only, which no pod reaches.
//
// Example: a server at 192.0.2.1:6443 with the range 10.43.0.0/16 makes
// https://10.43.0.1:443 reach it, and its certificate is good for that address, for
// kubernetes.default.svc and its shorter and longer forms.
//
// Rules: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
package kubernetes
