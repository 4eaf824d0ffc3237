package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Reconcile brings the refs of the bare repository to their keys, except those
// that a push is moving. A ref without a key goes; its commit stays under
// refs/headway/<cluster>/stray/, in case the store is what was lost. A key whose
// commit is not in the repository is an error, and changes nothing.
func (h *Hosted) Reconcile(ctx context.Context) error {
	h.reconciling.Lock()
	defer h.reconciling.Unlock()
	h.setDirty(false)
	err := h.reconcile(ctx)
	if err != nil && ctx.Err() == nil {
		err = h.reconcile(ctx) // a push may have moved a ref between our reading and writing
	}
	if err != nil {
		h.setDirty(true)
		// A git program that was killed may have left its lock file.
		err = errors.Join(err, sweep(h.config.Dir, 10*time.Second))
	}
	return err
}

func (h *Hosted) reconcile(ctx context.Context) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	// The refs first: a push that begins after this line is either in moving
	// before it moves its key, or its key is not yet in the list.
	bare, err := h.refs(ctx, "refs/")
	if err != nil {
		return fmt.Errorf("list the bare refs: %w", err)
	}
	keys, err := h.config.Refs.List(ctx)
	if err != nil {
		return fmt.Errorf("list the hosted refs: %w", err)
	}
	h.mu.Lock()
	moving := maps.Clone(h.moving)
	h.mu.Unlock()

	remove, set := diverging(bare, keys, moving, "refs/headway/"+h.cluster+"/stray/")
	var lost error
	if set, lost, err = h.present(ctx, set); err != nil {
		return err
	}
	// In two steps, for refs/heads/a must be gone before refs/heads/a/b comes.
	if err := h.edit(ctx, remove); err != nil {
		return errors.Join(lost, fmt.Errorf("remove bare refs without a key: %w", err))
	}
	if err := h.edit(ctx, set); err != nil {
		return errors.Join(lost, fmt.Errorf("bring bare refs to their keys: %w", err))
	}
	for _, e := range slices.Concat(remove, set) {
		h.config.Log.Info("bare ref brought to its key", "ref", e.ref, "from", e.old, "to", e.new)
	}
	return lost
}

// diverging decides how the bare refs become what the keys say.
func diverging(bare, keys map[string]string, moving map[string]int, stray string) (remove, set []edit) {
	for _, ref := range slices.Sorted(maps.Keys(bare)) {
		if owned(ref) || moving[ref] > 0 || keys[ref] != "" {
			continue
		}
		old := bare[ref]
		if bare[stray+old] == "" && !slices.ContainsFunc(remove, func(e edit) bool { return e.ref == stray+old }) {
			remove = append(remove, edit{ref: stray + old, new: old})
		}
		remove = append(remove, edit{ref: ref, old: old})
	}
	for _, ref := range slices.Sorted(maps.Keys(keys)) {
		if moving[ref] == 0 && bare[ref] != keys[ref] {
			set = append(set, edit{ref: ref, old: bare[ref], new: keys[ref]})
		}
	}
	return remove, set
}

// present drops the edits whose object is not in the repository, and names them.
func (h *Hosted) present(ctx context.Context, edits []edit) (found []edit, lost, err error) {
	names := make([]string, len(edits))
	for i, e := range edits {
		if checkRef(e.ref) != nil || !isHash(e.new) {
			return nil, nil, fmt.Errorf("the store has the ref %.100q at %.60q: not a ref and a commit", e.ref, e.new)
		}
		names[i] = e.new
	}
	err = h.info(ctx, names, func(i int, hd header) error {
		if hd.kind == "" {
			lost = errors.Join(lost, fmt.Errorf("%s is at %s, which is not in the repository %s; push it again to mend this",
				edits[i].ref, edits[i].new, h.config.Dir))
		} else {
			found = append(found, edits[i])
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look up the commits of the hosted refs: %w", err)
	}
	return found, lost, nil
}

func (h *Hosted) setDirty(dirty bool) {
	h.mu.Lock()
	h.dirty = dirty
	h.mu.Unlock()
}

// mend reconciles when something may be out of step. Its error is only logged:
// the request that follows may be the one that mends it.
func (h *Hosted) mend(ctx context.Context) {
	h.mu.Lock()
	dirty := h.dirty
	h.mu.Unlock()
	if !dirty {
		return
	}
	if err := h.Reconcile(ctx); err != nil {
		h.config.Log.Error("hosted refs do not match the store", "dir", h.config.Dir, "err", err)
	}
}

// hold marks the refs as being moved by a push.
func (h *Hosted) hold(updates []Update) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, u := range updates {
		h.moving[u.Ref]++
	}
}

// release ends the hold.
func (h *Hosted) release(updates []Update) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, u := range updates {
		if h.moving[u.Ref]--; h.moving[u.Ref] == 0 {
			delete(h.moving, u.Ref)
		}
	}
}

// settle ends the hold when git is done with the refs, and mends those that it
// did not move although their keys did.
func (h *Hosted) settle(ctx context.Context, updates []Update) {
	if len(updates) == 0 {
		return
	}
	h.release(updates)
	names := make([]string, len(updates))
	for i, u := range updates {
		names[i] = u.Ref
	}
	same := true
	err := h.info(ctx, names, func(i int, hd header) error {
		same = same && hd.hash == updates[i].New
		return nil
	})
	if err != nil || !same {
		h.setDirty(true)
		h.mend(ctx)
	}
}
