// Package nodes is the server's end of the sessions with the nodes' agents (D5).
//
// A session is confined to the node that its client certificate names: it sees
// that node's pods, the ConfigMaps, Secrets and claims those refer to, the volumes that
// those claims have, and the volumes whose data is on the node. It writes the status of
// those pods by uid, its own Node's status, events about all these, what the pods use,
// and that a volume's data is gone.
//
// It signs tokens of ServiceAccounts: for pods of its node, of their accounts, with the
// audience and the life that their volumes say. An agent of an older version is sent its
// pods without what it does not know.
//
// It reads pods, configmaps, secrets, nodes, leases, join tokens, claims and volumes,
// and autoscalers with their targets. It alone
// writes: of a Pod, the status but for conditions that others own, and the
// deletion of a pod that its agent reported stopped; of a Node, the labels that
// an agent may set, capacity, allocatable, addresses, nodeInfo and the conditions
// that an agent knows (Ready becomes Unknown by the node controller); the Lease
// objects in kube-node-lease; the deletion of used JoinTokens; NodeFigures; of a
// PersistentVolume whose data is on a node, the removal of our finalizer.
//
// Figures (docs/autoscaling.md): an agent is asked to measure the pods of its node that
// an autoscaler targets, and no others; without any it sends nothing, and the node has
// no NodeFigures. What it measures replaces the record of its node, about
// once per Config.Measure (what comes much earlier is passed over), on the node's lease: it goes when the node is lost, and with
// the last pod that somebody asks about.
//
// What a node and all of its pods use it is asked when somebody wants to know (Figures,
// for kubectl top): the answer is kept for seconds, here, and nowhere else.
//
// A session is told its node's labels, which people change, so that the agent can hold
// pods against them that somebody bound by hand.
//
// The Lease object is the node's liveness and the session's epoch in one. It
// hangs on a lease of the store, so it vanishes when the agent stops renewing,
// and renewing does not change it. A new session rewrites it, and every write
// that a session causes is conditioned on it being as that session wrote it: what
// a replaced session still has in flight cannot land.
//
// Example: the agent of n1 dials and says hello; the session writes
// kube-node-lease/n1 at revision 42, its epoch, and the Node n1, sends the pods
// bound to n1 with what they refer to, then Synced. When the scheduler binds pod
// web to n1, Handle is told, the session sends web; the agent answers with its
// status, which is written if kube-node-lease/n1 is still at 42.
package nodes
