// Package containerd is the agent's Runtime over containerd (1.6 or later).
//
// A sandbox is not a container. It is three namespaces (network, IPC, UTS) kept
// alive by bind mounts, a tmpfs for /dev/shm, three files and an attachment to
// the pod network: nothing runs in it, nothing can die in it, and it costs a few
// milliseconds. Every container of the pod joins these namespaces.
//
// What exists is known from three places: containerd's containers, found by
// their labels; containerd's tasks; and small records under Config.Dir, written
// before what they record is done, with what containerd does not keep (a
// sandbox's addresses, a container's start, exit and reason). They are read once
// at start and after each reconnection into a mirror, which then follows our own
// actions and containerd's events; List answers from it without a call.
//
//	<Dir>/pods/<uid>/sandbox.json       what the sandbox is
//	                 ns/{net,ipc,uts}   its namespaces
//	                 shm/               its /dev/shm
//	                 hosts, hostname, resolv.conf
//	                 containers/<id>.json, <id>.out, <id>.err, <id>.in
//	                 logs/<container>/<attempt>.log
//	<Dir>/images/                       who pulled which image (package image)
//
// Invariants:
//   - The id of a container is derived from (pod UID, name, attempt), so the same
//     attempt can never run twice, whenever we were killed.
//   - While the connection to containerd is lost, what ran is Unknown, never dead.
//   - An exit is on record before its task is deleted.
//   - Nothing here starts, restarts or stops a container unasked (R8).
package containerd
