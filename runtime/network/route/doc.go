// Package route is the Services' data path on a node: it makes the kernel send
// what is addressed to a Service to one of its endpoints.
//
// It reads: Services and EndpointSlices as they are told to it, pods that this
// node is about to stop, and what the kernel has.
// It alone writes: the nftables table that Config names, one route (the range of
// cluster IPs by the bridge), UDP flows of the kernel's connection tracking,
// listeners on healthCheckNodePorts.
//
// # Shape
//
// One table of fixed chains and of maps; no chain belongs to a Service, so one
// change costs the same whether there are ten Services or ten thousand. Only the
// first packet of a connection comes here, and takes four lookups:
//
//	inner   10.43.0.7 . tcp . 80     → group     (outer for others than pods and the
//	                                              node; inner-ports, outer-ports and
//	                                              loop-ports for node ports)
//	groups  group                    → chain spread-3, the same for all groups of three
//	slots   group . random number    → member
//	members member                   → 10.42.0.5 . 8080
//
// A group is the endpoints of a port that get connections: all of them, or those
// of this node where a policy is Local. Between the lookups the number of the
// group, then of the member, is in the packet's priority, which the kernel sets
// anew when it forwards a packet and which nothing but queueing reads; the mark,
// which routing may read, is left alone. Only where clients stick to an endpoint
// (sessionAffinity) a second word is needed: there the first packet of a
// connection loses its mark. The map "affinity", filled by packets, remembers the
// member for a client and the address that it asked; a member that is gone is no
// longer in "sticky", so what is remembered of it does not count.
//
// A packet may do one lookup before a change and the next after it. So elements
// and chains that a change makes unreachable stay until the change after, or the
// next check. For the same reason a chain is made one transaction before the
// elements that lead to it: a packet that entered before finds it empty.
//
// What has no endpoint is refused (TCP reset, else ICMP): also for
// internalTrafficPolicy Local. For externalTrafficPolicy Local a packet from
// outside is dropped while other nodes have endpoints, as Kubernetes does. The
// rest of the range of cluster IPs is refused too: a packet that went out there
// would leave a flow behind, and its repetitions would follow that flow after the
// Service has come.
//
// # Source addresses
//
// Kept, but for: a pod that reaches itself; 127.0.0.1 to a node port, which goes
// to this node's endpoints only, since the answer of another node could not come
// back to that address; and what comes from outside or from the node itself and
// goes on to an endpoint elsewhere. Answers between pods of one bridge must pass
// through the connection tracking: package network switches that on.
//
// # Numbers
//
// Groups and members are numbered by a hash of what they are, so another process
// that is told the same wants the same elements: a restart compares, and writes
// only what differs. A table of another layout is replaced in one transaction.
//
// # Cost
//
// nft reads neither elements nor foreign rules for a transaction that only has
// elements; it reads the list of chains and sets. The kernel is read through
// netlink. A check compares the generation of nftables, and the table only when
// somebody else wrote, taking at most a hundredth of the time.
//
// # Invariants
//
//   - After Sync no new connection goes to an endpoint that was taken out before.
//   - Connections that exist are left alone, but for UDP flows to an endpoint that
//     no longer answers for the address that was asked, and UDP flows that began
//     before their Service had one.
//   - Of several Services that claim an address and port, the first by name has it.
//   - Elements depend on what was told, not on the order of telling (but for two
//     names of one hash).
//
// # Example
//
//	r, err := route.New(route.Config{Table: "headway-hw0-services", Node: "a", Bridge: "hw0", ...})
//	r.SetService(web); r.SetSlice(endpoints); err = r.Sync(ctx)
//	r.Drop(pod); err = r.Sync(ctx) // and only then SIGTERM
package route
