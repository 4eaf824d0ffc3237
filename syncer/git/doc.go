// Package git is the only package that speaks git. It hosts the repository that
// a team pushes to, follows a repository on a forge, reads commits, trees and
// history, verifies signatures, writes receipts and the live ref, and keeps the
// commits that the store still names.
//
// # The hosted repository
//
// The truth of a hosted ref is a key in the store, reached through the interface
// Refs; the bare repository is a cache of objects beside it. A push goes
//
//	client → Hosted.ServeHTTP → git receive-pack
//	       → pre-receive hook (the keeper binary) → unix socket → Hosted
//
// and Hosted screens the updates, lets Config.Judge read the pushed tree out of
// git's quarantine, makes the pushed objects permanent, moves the keys in one
// transaction and only then answers "accept". Invariants:
//
//   - A key never names a commit whose objects could still be lost. Git keeps the
//     objects of a push in a quarantine that it deletes when it is killed, so
//     they are linked into the object store, and its folders synced, before the
//     key moves. What a kill leaves behind is at worst an unreferenced pack.
//   - A bare ref that differs from its key is brought to the key: on start, after
//     a push that git did not finish, and before the next request is served.
//   - A refused push changes neither a key nor a ref nor the object store.
//   - Only refs that no push is moving at that moment are reconciled, so that
//     reconciling never takes the ref away under git.
//   - A client that leaves stops nothing: what it has sent completely is judged
//     and accepted as if it were still there.
//
// Every write to a repository goes through the git program with the ref's old
// value. Reading goes through one `git cat-file --batch-command` per repository
// (Objects), which sees new packs and survives gc, and through the same program
// with git's quarantine in its environment for a push under judgement. It ends
// when nobody has read for a while.
//
// A push with -o dry-run is judged and then refused; any other push option is
// refused by name.
//
// # A repository on a forge
//
// A Forge is one repository that is hosted elsewhere, behind http, ssh or on this
// machine, and a bare clone of it that nobody else touches. One fetch brings the
// refs of all sources. Its own refs are pushed there with a lease: a ref of the
// forge moves only from where we left it. Host keys are never trusted on first use.
//
// # Our own refs
//
//	refs/heads/headway/<cluster>/live    the applied commit's tree as it really is
//	refs/notes/headway/<cluster>         a note for each commit: its receipt
//	refs/headway/<cluster>/keep/…        commits that the store names
//	refs/headway/<cluster>/stray/…       hosted refs that lost their keys
//	refs/headway/<cluster>/tips/…        what was fetched last, per ref
//	refs/headway/<cluster>/pushed/…      where we left our refs on the forge
//
// In the place of <cluster> a further source has <cluster>.<source> (Forge.As), so that
// any number of sources and clusters can follow one repository.
//
// Nobody may push to them, and those below refs/headway are hidden. WriteNote and
// WriteLive make the new objects themselves, let git check and store them in one
// go, and move the ref from its old value (R4). They read and write the folders on
// the way to what changes, and nothing else: neither the number of notes nor the
// size of the tree matters. Both may be called again: what is done already is not
// done twice.
//
// # Example
//
//	h, err := git.Open(ctx, git.Config{Dir: "/var/lib/headway/git/main.git", …})
//	go h.Run(ctx)
//	http.Handle("/main.git/", h)
//	tree, err := h.Tree(ctx, commit, "deploy")
//	files, err := tree.Files(ctx)
//	err = h.WriteNote(ctx, commit, receipt, as, time.Now(), stillLeader)
//
//	f, err := git.OpenForge(ctx, git.ForgeConfig{URL: "git@example.org:team/repo.git", …})
//	commit, err := f.Fetch(ctx, "refs/heads/main", 0)
//	err = f.Push(ctx, stillLeader)
package git
