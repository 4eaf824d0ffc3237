package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
)

// round is one fetch of all wanted refs.
type round struct {
	number  int // 1 is the first; 0 is none
	began   time.Time
	err     error // of the whole fetch
	fetched map[string]outcome
}

// outcome is what a round did for one ref.
type outcome struct {
	commit string
	err    error
}

// maxWanted bounds the refs that one fetch brings: those asked for last.
const maxWanted = 100

// Fetch brings a ref (main is refs/heads/main) and its history and returns its
// commit. One fetch brings every ref that any caller has asked for, and callers at
// the same time share it: whoever comes while one runs waits for the next, which
// serves all who wait. A fetch that began at most maxAge ago, and worked, answers
// at once; with 0 the answer is never older than the call.
//
// It asks the forge one question when nothing has changed. It does not mind a
// rewritten history; the caller compares (R1). A failed fetch changes nothing (R3).
func (f *Forge) Fetch(ctx context.Context, ref string, maxAge time.Duration) (commit string, err error) {
	if !strings.HasPrefix(ref, "refs/") {
		ref = "refs/heads/" + ref
	}
	if err := checkRef(ref); err != nil {
		return "", err
	}
	after, o, ok := f.ask(ref, maxAge)
	if ok {
		return o.commit, nil
	}
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case <-f.turn:
	}
	defer func() { f.turn <- struct{}{} }()
	o, shared := f.since(ref, after)
	if !shared {
		r := f.begin(ref)
		r.err = f.talk(ctx, func(ctx context.Context, t *talk) error { return f.fetch(ctx, t, r.fetched) })
		if r.err == nil || ctx.Err() == nil { // an error of ours is of no use to others
			f.mu.Lock()
			f.last = r
			f.mu.Unlock()
		}
		o = r.of(ref)
	}
	if o.err != nil {
		return "", fmt.Errorf("fetch %s of %s: %w", ref, f.address, o.err)
	}
	return o.commit, nil
}

// of returns what the round did for a ref.
func (r round) of(ref string) outcome {
	if r.err != nil {
		return outcome{err: r.err}
	}
	return r.fetched[ref]
}

// ask makes a ref wanted. It returns how many fetches have begun, or what a recent
// one did for the ref.
func (f *Forge) ask(ref string, maxAge time.Duration) (after int, o outcome, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	f.wanted[ref] = f.asked
	if len(f.wanted) > maxWanted {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(f.wanted)), func(a, b string) int { return f.wanted[a] - f.wanted[b] })
		delete(f.wanted, oldest)
	}
	o = f.last.of(ref)
	ok = maxAge > 0 && f.last.number > 0 && o.commit != "" && time.Since(f.last.began) <= maxAge
	return f.started, o, ok
}

// since returns what a fetch did for a ref that began after the one of that number.
func (f *Forge) since(ref string, after int) (o outcome, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o = f.last.of(ref)
	return o, f.last.number > after && o != outcome{}
}

// begin starts a round for the refs that are wanted now, and this one.
func (f *Forge) begin(ref string) round {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started++
	r := round{number: f.started, began: time.Now(), fetched: map[string]outcome{ref: {}}}
	for ref := range f.wanted {
		r.fetched[ref] = outcome{}
	}
	return r
}

// tip is the ref in the clone that holds what was fetched last of a ref.
func (f *Forge) tip(ref string) string {
	return "refs/headway/" + f.config.Cluster + "/tips/" + strings.TrimPrefix(ref, "refs/")
}

// fetch brings the refs that are the keys of fetched, and fills it.
func (f *Forge) fetch(ctx context.Context, t *talk, fetched map[string]outcome) error {
	session, refs, err := greet(ctx, t, f.upload, "read")
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // the pack is stored, or there is an error already
	wanted := map[string]string{}          // ref → object
	for ref := range fetched {
		hash, err := pick(refs, ref)
		if err != nil {
			fetched[ref] = outcome{err: err}
			continue
		}
		wanted[ref] = hash
	}
	tips := make(map[string]string, len(wanted))
	for ref, hash := range wanted {
		tips[f.tip(ref)] = hash
	}
	if err := f.take(ctx, t, session, refs, tips); err != nil {
		return err
	}
	for _, ref := range slices.Sorted(maps.Keys(wanted)) {
		commit, err := f.Resolve(ctx, f.tip(ref))
		if errors.Is(err, ErrNotFound) {
			err = errors.New("the ref does not name a commit")
		}
		fetched[ref] = outcome{commit, err}
	}
	return nil
}

// take brings the objects that refs of the clone (the keys) are to name, and moves
// these. Refs below tips that are in the way of a new one go.
func (f *Forge) take(ctx context.Context, t *talk, session transport.UploadPackSession, refs *packp.AdvRefs, moves map[string]string) error {
	have, err := f.refs(ctx, "refs/")
	if err != nil {
		return err
	}
	var missing []string
	for ref, hash := range moves {
		if have[ref] == hash || slices.Contains(missing, hash) {
			continue
		}
		whole, err := f.whole(ctx, hash)
		if err != nil {
			return err
		}
		if !whole {
			missing = append(missing, hash)
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		t.idle.Reset(f.config.Patience)
		if err := f.bring(ctx, session, refs, missing, t.idle); err != nil {
			return err
		}
	}
	var remove, set []edit
	for ref, hash := range moves {
		if have[ref] != hash {
			set = append(set, edit{ref: ref, old: have[ref], new: hash})
		}
		if have[ref] != "" || !strings.HasPrefix(ref, f.tip("")) {
			continue
		}
		for other, old := range have { // a branch a was, and a branch a/b is now
			if strings.HasPrefix(other, f.tip("")) && (strings.HasPrefix(ref, other+"/") || strings.HasPrefix(other, ref+"/")) {
				remove = append(remove, edit{ref: other, old: old})
			}
		}
	}
	if err := f.edit(ctx, remove); err != nil {
		return err
	}
	return f.edit(ctx, set)
}

// checkFormat refuses repositories whose objects have names of another kind.
func checkFormat(refs *packp.AdvRefs) error {
	if formats := refs.Capabilities.Get(capability.ObjectFormat); len(formats) > 0 && formats[0] != "sha1" {
		return fmt.Errorf("the repository uses %.20s object names; only sha1 can be followed", formats[0])
	}
	return nil
}

// pick finds the object that a followed ref names.
func pick(refs *packp.AdvRefs, ref string) (string, error) {
	if hash, ok := refs.References[ref]; ok {
		return hash.String(), nil
	}
	var near []string
	for name := range refs.References {
		if kind, _, _ := strings.Cut(strings.TrimPrefix(ref, "refs/"), "/"); strings.HasPrefix(name, "refs/"+kind+"/") {
			near = append(near, name)
		}
	}
	slices.Sort(near)
	if len(near) == 0 {
		return "", fmt.Errorf("the repository has no such ref: %w", ErrNotFound)
	}
	if len(near) > 10 {
		near = append(near[:10], "…")
	}
	return "", fmt.Errorf("the repository has no such ref, but %s: %w", strings.Join(near, ", "), ErrNotFound)
}

// whole says whether an object is here with everything that it needs.
func (f *Forge) whole(ctx context.Context, hash string) (bool, error) {
	there, err := f.at(ctx, hash)
	if err != nil || there == "" {
		return false, err
	}
	// It may be left over from a fetch that was killed: then fetch it again.
	return f.connected(ctx, hash) == nil, nil
}

// connected says whether everything that the objects reach is here.
func (f *Forge) connected(ctx context.Context, hashes ...string) error {
	args := append([]string{"rev-list", "--objects", "--quiet"}, hashes...)
	_, err := f.program.run(ctx, nil, append(args, "--not", "--all")...)
	return err
}

// maxHaves is how many commits that came from there the forge is told: the newest
// ones, so that one of them is known to it even after its branch was rewritten.
const maxHaves = 256

// haves lists commits that the forge had once. Ours of the live ref and the notes
// are left out but for those pushed last, or there were no others among so few.
func (f *Forge) haves(ctx context.Context) (map[string]struct{}, error) {
	out, err := f.program.run(ctx, nil, "rev-list", fmt.Sprintf("--max-count=%d", maxHaves), "--glob="+f.tip("")+"*", "--glob=refs/headway/*/keep/*")
	if err != nil {
		return nil, err
	}
	haves := map[string]struct{}{}
	for line := range strings.Lines(string(out)) {
		haves[strings.TrimSpace(line)] = struct{}{}
	}
	pushed, err := f.refs(ctx, "refs/headway/"+f.cluster+"/pushed/")
	for _, hash := range pushed {
		haves[hash] = struct{}{}
	}
	return haves, err
}

// bring fetches the wanted objects into a pack of their own.
func (f *Forge) bring(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, wanted []string, idle *time.Timer) error {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	for _, hash := range wanted {
		req.Wants = append(req.Wants, plumbing.NewHash(hash))
	}
	haves, err := f.haves(ctx)
	if err != nil {
		return err
	}
	for _, hash := range slices.Sorted(maps.Keys(haves)) {
		if !slices.Contains(wanted, hash) {
			req.Haves = append(req.Haves, plumbing.NewHash(hash))
		}
	}
	res, err := session.UploadPack(ctx, req)
	if err != nil {
		return explain(err, "read")
	}
	defer func() { _ = res.Close() }() // read to its end, or there is an error already
	var pack io.Reader = res
	if kind, ok := sidebandOf(req.Capabilities); ok {
		pack = sideband.NewDemuxer(kind, pack)
	}
	pack = &waking{pack, idle, f.config.Patience}
	_, err = f.program.run(ctx, pack, "index-pack", "--stdin", "--fix-thin", fmt.Sprintf("--max-input-size=%d", f.config.MaxFetch))
	if err != nil {
		if strings.Contains(err.Error(), "maximum allowed size") {
			return fmt.Errorf("too large: more than %d bytes", f.config.MaxFetch)
		}
		return err
	}
	if err := f.connected(ctx, wanted...); err != nil {
		return fmt.Errorf("the repository sent an incomplete history: %w", err)
	}
	return nil
}

// waking resets a timer whenever something comes, and stops it at the end.
type waking struct {
	io.Reader
	timer    *time.Timer
	patience time.Duration
}

func (w *waking) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if err != nil {
		w.timer.Stop()
	} else if n > 0 {
		w.timer.Reset(w.patience)
	}
	return n, err
}
