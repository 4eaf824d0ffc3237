// Package simulate runs a whole cluster in one goroutine, from a seed: servers, a
// leader among them, nodes, a team that pushes commits, and everything that goes
// wrong. The same seed gives the same run, to the last line of its trace.
//
// What runs is the product: the syncer with its judge and its apply, every
// controller, the scheduler, the servers' side of the nodes' sessions and the
// agents, over store/memory and runtime/fake. What is put in their place:
//
//   - git: commits are trees in memory (repository.go). A push is judged by the
//     syncer and moves the hosted ref, as the hook has it.
//   - the wire between a server and an agent: a stepped session (nodes.Attended) and
//     the agent's own steps are joined by two queues (link.go). There is no gRPC and
//     no TLS in between.
//   - the API server: kubectl writes to the store.
//   - live ref, notes and commit statuses are not written.
//
// One goroutine picks the next step (World.Run). Only work that has to wait in its
// middle, such as a container that takes its time to stop, has a goroutine of its
// own, which runs while the first one waits for it (task.go). Time is that of a
// testing/synctest bubble and passes only when nothing is left to do, or as a fault.
//
// Faults: servers die, stand still, are cut off from the store; sessions break, on
// one side only as well; requests to the store fail before they take effect, after
// it, or take effect late; watches break, lose history and repeat; nodes lose their
// power or their network, agents are restarted; containers crash, hang, fail to
// start; wall clocks of servers are set back and forth; people change by hand what a
// commit declares.
//
// After each write the rules of DESIGN are checked on what is really in the store
// (rules.go). When the faults are over, everything must become what the last commit
// declares (converge.go).
//
// Example: one run, in a test.
//
//	synctest.Test(t, func(t *testing.T) {
//		r := simulate.New(7, simulate.Options{Nodes: 3, Dir: t.TempDir()}).Run()
//		if r.Failure != "" { t.Error(r.Failure, r.Trace) }
//	})
package simulate
