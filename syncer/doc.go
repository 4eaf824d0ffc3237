// Package syncer makes the cluster what a commit declares, and keeps it so.
//
// # What it reads and what it alone writes
//
// It reads commits (through Commits), GitRefs, the Sources and every object of a
// kind that can be declared. It alone writes declared objects: their declared
// fields and the six provenance annotations, in one write; the status of the
// Source; DoneRecords; and, in the transaction that they tell of, Receipts. Any
// server moves GitRefs (Refs): a push is no leader's write. It never writes a field
// that no manifest declares, a status of others, or an object of another source,
// and it never reads managedFields.
//
// # The way of a commit
//
//	head (GitRef, or Fetch) → Judge → Plan → apply → the applied commit moves
//
// Judge renders the commit, finds every problem and plans; the pre-receive hook
// calls it before the ref moves, and the syncer again before it applies; a dry run
// and headway plan call it alone. Beyond what Plan finds, pure rules (Rules) look at
// the whole: references, selectors, namespaces, deletions, and the scheduler's word
// on the room for new pods (Capacity). It costs what differs from what was judged
// before, not what there is: a ledger knows which objects are not as declared. Plan is
// pure: manifests, live objects and the manifests that those were made from become
// ordered steps. apply does the steps in transactions of at most 100 objects and
// 1 MiB, all with the fence (R4), each conditioned on the object that it was
// planned for; a plan of one transaction moves the applied commit in that very
// transaction. So a part that is done already is not planned again, and a kill at
// any point loses nothing (R2).
//
// One loop works one key, the Source. A look at it first goes after the newest
// commit, and only then heals a bounded number of objects that have changed, so a
// push never waits for a resync; a commit that is stuck is left the moment a newer
// one is there (R13).
//
// # Further sources
//
// Each Source has a Syncer of its own. The main one's apply makes, changes and removes
// the others' objects (furtherplan.go) as it does with what a commit declares. A
// further one writes only to the namespaces that its Source names, and no source
// writes what another declares. Every write of a Syncer is on the condition that its
// Source is as it was read: so marking that as deleted ends them, and what the source
// has made can be let go.
//
// # Receipts
//
// The Noter completes each Receipt (how the rollout went, images, finished Jobs),
// writes it as a note on its commit and says it as a commit status; the Publisher
// brings the notes to the forge. Both read the store, and what they write outside
// of it is an intent there first (R4): the Receipt, and the CommitStatus. Log, At
// and DoneBefore read the notes back: the form is in docs/receipts.md.
//
// # Invariants
//
//   - The applied commit moves to descendants only (R1), except to the one commit
//     that an operator has allowed (Orders.Allow of the Source).
//   - Who may sign the commits after the applied one is decided by the applied one;
//     that, too, an operator can set aside for one commit. A signature that cannot be
//     checked does not count.
//   - While a pause holds, only done records are written. It counts from the
//     transaction on that writes it, also in the middle of a commit.
//   - A commit with a problem changes nothing (R2).
//   - Only a commit that was read, rendered and found good deletes (R3). A folder
//     that is not there is a problem; another folder that declares nothing is
//     refused; a folder whose manifests were removed is a removal.
//   - What a commit deletes beyond the limit, and every Namespace or claim, needs a
//     trailer in a commit after the applied one; so does replacing what cannot be
//     changed in place. docs/judging.md has the rules.
//   - A declared Job that has finished runs again only when its manifest changes
//     (R3): its done record says so when its TTL or a user has deleted it, and the
//     receipts when the cluster is new. To run it again by hand, delete the record. A change that a Job cannot take in
//     place, and any change of a finished one, replaces it.
//   - The base of the three-way merge is the manifest at the commit in the
//     object's own provenance (D6), which the keep refs hold.
//
// # Example
//
//	s := syncer.New(syncer.Config{Store: st, Commits: &syncer.Checkout{…}, Fence: leader.Fence, Log: log})
//	st.OnEvents(s.Handle)                                   // on every server
//	verdict, err := s.Judge(ctx, syncer.Candidate{Commit: c}) // on every server
//	err = s.Run(ctx)                                        // on the leader
//	n := syncer.NewNoter(syncer.NoterConfig{Syncer: s, Notes: repository, …})
//	st.OnEvents(n.Handle)                                   // on every server
//	err = n.Run(ctx)                                        // on the leader
package syncer
