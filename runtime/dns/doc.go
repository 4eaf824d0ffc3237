// Package dns answers the pods' questions for names on their own node: the
// cluster's names from what the session has brought, all others by asking the
// node's resolvers.
//
// It reads: the Services and EndpointSlices that it is given (Set…, Unset…), the
// node's resolv.conf, the wire. It alone makes the interface that carries its
// address, and writes nothing else: no file but the one that keeps the address.
//
// The cluster's names are those of Kubernetes' DNS specification 1.1.0:
//
//	<service>.<ns>.svc.<domain>                 A, AAAA; SRV of every port
//	_<port>._<proto>.<service>.<ns>.svc.<domain> SRV
//	<hostname>.<service>.<ns>.svc.<domain>      A, AAAA of an endpoint; its hostname,
//	                                            else its address with dashes
//	<a>-<b>-<c>-<d>.<ns>.pod.<domain>           A, for addresses of the pod network only
//	dns-version.<domain>                        TXT
//	…in-addr.arpa, …ip6.arpa                    PTR of Services and endpoints
//
// Beyond the specification: SRV at the Service's own name (programs that look for
// their peers ask that), hostnames below a Service with a cluster IP (as CoreDNS
// answers), and the domain's own SOA and NS.
//
// Invariants:
//   - A question for a cluster's name takes no lock, waits for nothing and nobody,
//     and is answered also when the control plane or every resolver is away.
//   - A name that exists never gets NXDOMAIN, whatever type is asked for: musl asks
//     for A and AAAA at once and believes the first NXDOMAIN. A name that does not
//     exist gets it at once, since a search path goes on only then.
//   - Before the node knows all Services (Synced), a name of the cluster that is not
//     known is a failure to answer (SERVFAIL), not a name that does not exist.
//   - A change costs what it changes: the slice that is set and the list of its
//     Service's slices, whatever the number of Services.
//   - What outsiders feed is bounded: packets, questions waiting for a resolver in
//     all and for each asker, connections, the cache's entries and bytes.
//   - Nothing that has expired is served, and nothing is asked of ourselves.
//   - A question that comes while the agent restarts waits for the next agent: the
//     node's keeper has the sockets, too (Config.Keeper). To begin with all names,
//     what the checkpoint has is Set before Run.
//
// Not done: DNSSEC validation (the DO bit and the records pass through), zone
// transfers and ANY (refused), names of pods by namespace alone.
//
// Example: a pod asks for web.shop, which its resolver completes to
// web.shop.svc.cluster.local. The index has the Service with 10.43.0.7: one A
// record, good for 5 s. The pod asks for example.org.shop.svc.cluster.local (its
// search path): NXDOMAIN; then for example.org: the first of the node's resolvers is
// asked, once however many pods ask at this moment, and the answer kept for its TTL.
package dns
