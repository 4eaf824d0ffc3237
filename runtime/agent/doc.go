// Package agent drives the pods of one node: it receives what should run from
// its session, compares it with what the Runtime says does run, and takes one
// transition per pod at a time. It never sees the store.
//
// It reads: the session (pods of this node, their ConfigMaps and Secrets), the
// Runtime, the checkpoint. It alone changes what runs on the node. What it writes
// goes over the session: pod statuses, its own Node, events, and what pods use if the
// session asks for it (Measure); server/nodes says which fields of them count.
//
// Invariants:
//   - One transition of a pod at a time; pods go side by side, at most
//     Config.Workers of them working the engine.
//   - plan decides alone, from what is observed; apply does one step and can be
//     killed at any line, since the next look finds what it did.
//   - Nothing is done before the Runtime has said once what runs (R8). What runs
//     and is not assigned stays until a session is synced (R9).
//   - A container is restarted only after it has ended, or for a new image (R8); it is
//     stopped for a restart only when a probe or its postStart hook says that it is sick.
//   - What hooks and probes say is of one attempt of one container (health); of one that
//     nothing is known of, the newest status says it, so a restart of the agent takes
//     nothing back.
//   - An idle probe costs a place in a heap.
//   - What the engine cannot tell (Unknown) is never acted on.
//   - That a pod has ended is told when nothing of it lives (report), and why it was ended
//     is in the checkpoint until then (verdict).
//   - Whether the node has room for a pod is asked once, when it comes, and never of one
//     that has run (admit).
//   - A machine that is not full costs a look at its figures every ten seconds; a pod is
//     measured when it is limited, when the machine is full, or when somebody asks.
//   - A status is kept until the server has stored it, the newest per pod.
//   - No secret value is in a log, an event, a status or a file on disk (R14).
//
// Example: the session sends pod web. plan says "make sandbox", then "fetch image
// main", then "start main #0", each applied at once, no timer between. The status
// is sent when the container runs. The container dies: the Runtime's event has
// the pod looked at, and plan says "start main #1". It dies again: plan says
// "wait until +10s", and the status shows CrashLoopBackOff.
//
// An Agent is run (Run, with goroutines), or stepped by one caller: Adopt, Begin,
// Receive, Changed, Survey, Step, Probe, Measure, Weigh, Press, TidyImages, Take, Next,
// NextProbe, Save (D9).
package agent
