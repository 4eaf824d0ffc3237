// Package node says which nodes can be trusted to tell what runs on them.
//
// It reads Nodes, their leases (the Lease object of the node's name in
// kube-node-lease, which vanishes with the etcd lease that the agent renews) and
// the pods bound to them. It alone writes a Node's Ready condition to Unknown,
// the taints node.kubernetes.io/unreachable and node.kubernetes.io/not-ready, and
// the Ready condition of a lost node's pods to False. It evicts nothing.
//
// Invariant: a node without a lease is never shown as Ready, whatever its last
// session wrote. Everything else about a node is its session's to write.
//
// Example: the machine of node n1 loses power; its lease ends, the key vanishes,
// and one transaction marks the node Ready=Unknown and taints it, so that the
// scheduler passes it over. When its agent is back the session sets Ready=True
// and this controller takes the taints away.
package node
