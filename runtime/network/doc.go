// Package network connects pods: an interface, an address, host ports.
//
// What a pod's network is, a CNI configuration list says: <dir>/net.d/*.conflist,
// written at first start (a bridge with host-local addresses, masquerading and
// port mapping) and the operator's from then on. It is applied through libcni.
//
// The standard plugins "bridge" (with "host-local") and "portmap" are performed
// in this process through netlink and nftables, because starting their programs
// and their iptables children costs a fifth of a second of CPU per pod, which is
// four times what starting its container costs. They read the same configuration
// and keep the same reservations as the programs do, so neither gives an address
// that the other gave. A plugin, or an option of these two, that is not known here
// is executed from the plugin directories as CNI says.
//
// The way to Services is package route's; what it needs of the bridge (that answers
// between two pods pass through the connection tracking) is switched on here.
//
// It reads: the configuration list, the kernel's links.
// It alone writes: the bridge, its ports, the nftables table named after the
// bridge, and the files under its directory.
//
// Invariants:
//   - An address is reserved on disk before it is given to an interface and is
//     free only after its interface is gone.
//   - Rules of host ports that somebody took away are back within ten seconds.
//   - Add and Remove can be repeated; Reconcile frees what belongs to no living
//     pod, whatever moment we were killed at.
package network
