package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// Bounds of the pack of one push to a forge. Over http it is held in memory.
const (
	maxPushPack = 512 << 20
	maxHTTPPack = 64 << 20
)

// own lists the refs of ours that a forge gets.
func (f *Forge) own() []string { return []string{f.liveRef(), f.notesRef()} }

// pushed is the ref in the clone that says where we left a ref of ours on the forge.
func (f *Forge) pushed(ref string) string {
	return "refs/headway/" + f.cluster + "/pushed/" + strings.TrimPrefix(ref, "refs/")
}

// Push brings the live ref and the notes of the clone to the forge, where they have
// changed. It asks the forge nothing when they have not. Just before something is
// sent, ready is called, unless it is nil; its error ends the push.
//
// A ref of the forge moves only from where we left it last (a lease): somebody
// else's commit is never overwritten. The error is
//   - ErrMoved when such a ref is elsewhere; Adopt may help,
//   - ErrNotAllowed when the credentials or the forge's rules do not let us, or when
//     the ref has moved since the forge listed it, which the next Push finds out,
//   - ErrUnreachable when there is no answer. What was sent may have arrived then;
//     the next Push finds that out.
func (f *Forge) Push(ctx context.Context, ready func(context.Context) error) error {
	have, err := f.refs(ctx, "refs/")
	if err != nil {
		return fmt.Errorf("push to %s: %w", f.address, err)
	}
	if !slices.ContainsFunc(f.own(), func(ref string) bool { return have[ref] != "" && have[ref] != have[f.pushed(ref)] }) {
		return nil
	}
	err = f.alone(ctx, func(ctx context.Context, t *talk) error { return f.push(ctx, t, ready) })
	if err != nil {
		return fmt.Errorf("push to %s: %w", f.address, err)
	}
	return nil
}

// alone runs one conversation about our own refs at a time.
func (f *Forge) alone(ctx context.Context, do func(ctx context.Context, t *talk) error) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.pushing:
	}
	defer func() { f.pushing <- struct{}{} }()
	return f.talk(ctx, do)
}

func (f *Forge) push(ctx context.Context, t *talk, ready func(context.Context) error) error {
	session, refs, err := greet(ctx, t, f.receive, "write to")
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // the answer is read, or there is an error already
	have, err := f.refs(ctx, "refs/")
	if err != nil {
		return err
	}
	moves, arrived, problem := f.lease(have, refs)
	if err := f.remember(ctx, have, arrived); err != nil {
		return errors.Join(problem, err)
	}
	if len(moves) == 0 {
		return problem
	}
	pack, err := f.packFor(ctx, moves, refs)
	if err != nil {
		return errors.Join(problem, err)
	}
	defer pack.Close()
	if ready != nil {
		if err := ready(ctx); err != nil {
			return errors.Join(problem, err)
		}
	}
	t.idle.Reset(f.config.Patience)
	sent, refused := f.send(ctx, session, refs, moves, pack, t)
	// What has arrived is remembered even if the caller is gone.
	return errors.Join(problem, refused, f.remember(context.WithoutCancel(ctx), have, sent))
}

// lease decides which refs to move on the forge, and which are there already
// because an answer was lost. A ref that somebody else has moved is a problem.
func (f *Forge) lease(have map[string]string, refs *packp.AdvRefs) (moves []edit, arrived map[string]string, problem error) {
	arrived = map[string]string{}
	for _, ref := range f.own() {
		there := ""
		if hash, ok := refs.References[ref]; ok {
			there = hash.String()
		}
		left := have[f.pushed(ref)]
		switch now := have[ref]; {
		case now == "" || now == left:
		case there == now:
			arrived[ref] = now
		case there != left:
			problem = errors.Join(problem, fmt.Errorf("somebody else has moved it: %w", moved(ref, there, left)))
		default:
			moves = append(moves, edit{ref: ref, old: left, new: now})
		}
	}
	return moves, arrived, problem
}

// remember notes where refs of ours are on the forge now; "" is nowhere.
func (f *Forge) remember(ctx context.Context, have, there map[string]string) error {
	var edits []edit
	for ref, hash := range there {
		if p := f.pushed(ref); have[p] != hash {
			edits = append(edits, edit{ref: p, old: have[p], new: hash})
		}
	}
	if err := f.edit(ctx, edits); err != nil {
		return fmt.Errorf("remember what was pushed: %w", err)
	}
	return nil
}

// packFor makes the pack that the forge lacks to make the moves.
func (f *Forge) packFor(ctx context.Context, moves []edit, refs *packp.AdvRefs) (io.ReadCloser, error) {
	const maxKnown = 1000 // refs of the forge that are looked up here
	known := map[string]struct{}{}
	for _, m := range moves {
		if m.old != "" {
			known[m.old] = struct{}{}
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(refs.References)) {
		if strings.HasPrefix(ref, "refs/heads/") && len(known) < maxKnown {
			known[refs.References[ref].String()] = struct{}{}
		}
	}
	names := slices.Sorted(maps.Keys(known))
	var in strings.Builder
	for _, m := range moves {
		fmt.Fprintln(&in, m.new)
	}
	err := f.info(ctx, names, func(i int, h header) error {
		if h.kind == "commit" {
			fmt.Fprintln(&in, "^"+names[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(f.config.Dir, "push-*.pack.lock") // a name that is swept
	if err != nil {
		return nil, fmt.Errorf("make the pack to push: %w", err)
	}
	err = os.Remove(file.Name()) // it goes when it is closed, whatever happens to us
	out := &room{Writer: file, left: f.config.MaxPush}
	if err == nil {
		err = f.program.runTo(ctx, strings.NewReader(in.String()), out, "pack-objects", "--quiet", "--stdout", "--revs", "--thin")
	}
	if out.full {
		err = f.tooLarge()
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the pack to push: %w", err), file.Close())
	}
	return file, nil
}

// tooLarge says that a pack is, and what to do.
func (f *Forge) tooLarge() error {
	hint := ""
	if f.scheme == "http" {
		hint = " over http, where it is held in memory: follow the repository over ssh"
	}
	return fmt.Errorf("what the forge lacks of the live ref and the notes is more than %d bytes, the most that is pushed at once%s", f.config.MaxPush, hint)
}

// room is a writer that takes no more than what is left.
type room struct {
	io.Writer
	left int64
	full bool
}

func (r *room) Write(b []byte) (int, error) {
	if int64(len(b)) > r.left {
		r.full = true
		return 0, errors.New("no room is left")
	}
	n, err := r.Writer.Write(b)
	r.left -= int64(n)
	return n, err
}

// send makes the moves. It returns which refs are where now, and what was refused.
func (f *Forge) send(ctx context.Context, session receiver, refs *packp.AdvRefs, moves []edit, pack io.Reader, t *talk) (sent map[string]string, refused error) {
	if !refs.Capabilities.Supports(capability.ReportStatus) {
		return nil, errors.New("the server does not say what becomes of a push, so nothing is pushed")
	}
	req := packp.NewReferenceUpdateRequestFromCapabilities(refs.Capabilities)
	for _, c := range []capability.Capability{capability.Sideband64k, capability.Sideband} {
		if refs.Capabilities.Supports(c) {
			_ = req.Capabilities.Set(c) // it takes no argument
			break
		}
	}
	said := &head{max: 2 << 10}
	req.Progress = said
	wake := func() { t.idle.Reset(f.config.Patience) }
	req.Packfile = io.NopCloser(&heard{pack, wake})
	for _, m := range moves {
		c := &packp.Command{Name: plumbing.ReferenceName(m.ref), New: plumbing.NewHash(m.new)}
		if m.old != "" {
			c.Old = plumbing.NewHash(m.old)
		}
		req.Commands = append(req.Commands, c)
	}
	report, err := session.ReceivePack(context.WithValue(ctx, wakeKey{}, wake), req)
	t.idle.Stop()
	if report == nil {
		if err == nil {
			err = ofClass(ErrUnreachable, "no answer")
		}
		return nil, explain(err, "write to")
	}
	if report.UnpackStatus != "ok" {
		return nil, fmt.Errorf("the forge cannot take the objects: %.300s", printable(report.UnpackStatus))
	}
	status := map[string]string{}
	for _, s := range report.CommandStatuses {
		status[s.ReferenceName.String()] = s.Status
	}
	sent = map[string]string{}
	for _, m := range moves {
		switch s, ok := status[m.ref]; {
		case ok && s == "ok":
			sent[m.ref] = m.new
		case !ok:
			refused = errors.Join(refused, fmt.Errorf("%s: the forge does not say what became of it", m.ref))
		default:
			refused = errors.Join(refused, refusal(m, s, strings.TrimSpace(said.String())))
		}
	}
	return sent, refused
}

// receiver is the part of a session that send needs.
type receiver interface {
	ReceivePack(context.Context, *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error)
}

// refusal says why the forge did not move a ref, in its own words. Whether somebody
// else has moved it they do not tell; the lease of the next push does.
func refusal(m edit, status, said string) error {
	status = oneLine(status)
	if said != "" {
		status += ": " + oneLine(said)
	}
	return ofClass(ErrNotAllowed, "%s: the forge refuses it: %s", m.ref, status)
}

// Adopt takes over the live ref and the notes that the forge has, for a clone that
// is new or was lost: the receipts of before are then there, and Push goes on from
// them. A ref of the clone moves only forward; when the two have gone different ways
// it stays, the others are taken over, and the error is ErrMoved. A ref that the
// forge does not have any more is made anew by the next Push.
func (f *Forge) Adopt(ctx context.Context) error {
	if err := f.alone(ctx, f.adopt); err != nil {
		return fmt.Errorf("take over our refs of %s: %w", f.address, err)
	}
	return nil
}

func (f *Forge) adopt(ctx context.Context, t *talk) error {
	session, refs, err := greet(ctx, t, f.upload, "read")
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // the pack is stored, or there is an error already
	// First beside ours, so that they can be compared.
	theirs := map[string]string{}
	bring := map[string]string{}
	for _, ref := range f.own() {
		theirs[ref] = ""
		if hash, ok := refs.References[ref]; ok {
			theirs[ref] = hash.String()
			bring["refs/headway/"+f.cluster+"/adopt/"+strings.TrimPrefix(ref, "refs/")] = hash.String()
		}
	}
	if err := f.take(ctx, t, session, refs, bring); err != nil {
		return err
	}
	have, err := f.refs(ctx, "refs/")
	if err != nil {
		return err
	}
	var failed error
	for _, ref := range f.own() {
		failed = errors.Join(failed, f.follow(ctx, ref, have, theirs[ref]))
	}
	var leave []edit
	for ref := range bring {
		leave = append(leave, edit{ref: ref, old: have[ref]})
	}
	return errors.Join(failed, f.edit(ctx, leave))
}

// follow moves one ref of ours to where the forge has it, unless ours is ahead.
func (f *Forge) follow(ctx context.Context, ref string, have map[string]string, their string) error {
	our, left := have[ref], have[f.pushed(ref)]
	behind, ahead, err := f.compare(ctx, our, their)
	switch {
	case err != nil:
		return err
	case !behind && !ahead:
		return fmt.Errorf("%s is at %s there and at %s here, and neither comes from the other: two clusters write it under one name, or one was set back; give one another name, or delete the ref there: %w",
			ref, their, our, ErrMoved)
	}
	var edits []edit
	if their != left {
		edits = append(edits, edit{ref: f.pushed(ref), old: left, new: their})
	}
	if behind {
		edits = append(edits, edit{ref: ref, old: our, new: their})
	}
	return f.edit(ctx, edits)
}

// compare says whether a ref of ours is behind the forge's, or has all of it.
func (f *Forge) compare(ctx context.Context, our, their string) (behind, ahead bool, err error) {
	switch {
	case their == "" || their == our:
		return false, true, nil
	case our == "":
		return true, false, nil
	}
	if behind, err = f.IsAncestor(ctx, our, their); err != nil {
		return false, false, err
	}
	ahead, err = f.IsAncestor(ctx, their, our)
	return behind, ahead, err
}

// heard calls wake whenever something is read.
type heard struct {
	io.Reader
	wake func()
}

func (h *heard) Read(b []byte) (int, error) {
	h.wake()
	return h.Reader.Read(b)
}

// wakeKey is the key of a context's wake function, for bodies that net/http sends.
type wakeKey struct{}
