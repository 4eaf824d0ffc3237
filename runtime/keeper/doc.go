// Package keeper is the small process of a node that outlives the agent.
//
// It holds the FIFOs of every container's stdout and stderr open and turns what
// comes out of them into log files in the CRI format, rotated by size. A
// container therefore never sees its reader go away: not when the agent is
// restarted or upgraded, and not when the keeper itself is, because the shim
// and the next keeper hold the same FIFOs (D12).
//
// It reads: its state directory (one record per open container), the FIFOs.
// It alone writes: the log files, the records, the socket.
//
// Invariants:
//   - Only the process that holds <dir>/lock reads FIFOs, so no byte is read twice.
//   - A record is on disk before its container is told to start, and goes only
//     after everything in the FIFO is in the log.
//   - A line is written once, whole (F) or in pieces (P … F), in order within a
//     stream.
//
// A newer keeper takes over: it opens all FIFOs, asks the old one to retire
// (which stops reading and writes what it holds), waits for the lock, and goes on.
//
// Who is attached to a container (Attach) hears what is read as it comes, beside the log;
// no container waits for him.
//
// It also has the agent's listening sockets a second time (Hold, Held), so that what
// arrives while no agent runs waits for the next one. They are handed on at a
// takeover and are lost when a keeper is killed; then the agent opens others.
//
// The package imports nothing of this repository and no Kubernetes, so that its
// binary, cmd/headway-keeper, starts in a millisecond and weighs a few megabytes.
//
//	client, err := keeper.Start(ctx, "/usr/lib/headway/headway-keeper", "/var/lib/headway/keeper")
//	err = client.Open(ctx, keeper.Container{ID: id, Stdout: out, Stderr: errs, Log: path})
package keeper
