// Package loadbalancer gives Services of type LoadBalancer their addresses: those of
// the nodes, which listen on the Service's ports. So a cluster without a cloud has load
// balancers, too.
//
// It reads Services, Nodes and EndpointSlices. It alone writes the status of Services.
//
// Invariants. The addresses are those of ready nodes that are not excluded (label
// node.kubernetes.io/exclude-from-external-load-balancers); with
// externalTrafficPolicy Local only those of nodes with a ready endpoint, since the
// others would drop what they get; with loadBalancerIP only that one. A port of the
// nodes is one Service's: the one that has addresses keeps it, else the oldest gets it,
// and the other says whose it is in the condition LoadBalancerPortsError until it is
// free. A transaction that gives addresses is conditioned on the Services it was
// decided against, so two never get the same port.
//
// Example: a Service with port 80 on a cluster of two nodes gets the addresses of both;
// when one is not ready any more, that of the other.
package loadbalancer
