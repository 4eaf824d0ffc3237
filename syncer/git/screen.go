package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// screen returns what is wrong with the updates themselves, whatever the tree
// says. It may set the old value of an update, see recover.
func (h *Hosted) screen(ctx context.Context, updates []Update, objects *Objects) ([]string, error) {
	keys, err := h.config.Refs.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the hosted refs: %w", err)
	}
	var problems []string
	for i := range updates {
		problem, err := h.screenOne(ctx, &updates[i], keys, objects)
		if err != nil {
			return nil, err
		}
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	return append(problems, collisions(updates, keys)...), nil
}

func (h *Hosted) screenOne(ctx context.Context, u *Update, keys map[string]string, objects *Objects) (string, error) {
	switch {
	case owned(u.Ref):
		return fmt.Sprintf("%s: Headway alone writes this ref; push to another name", u.Ref), nil
	case !strings.HasPrefix(u.Ref, "refs/heads/") && !strings.HasPrefix(u.Ref, "refs/tags/") && !strings.HasPrefix(u.Ref, "refs/notes/"):
		return fmt.Sprintf("%s: only branches (refs/heads/…), tags and notes are hosted", u.Ref), nil
	case u.Old != keys[u.Ref]:
		if err := h.recover(ctx, u, keys[u.Ref]); err != nil {
			if errors.Is(err, ErrMoved) {
				return fmt.Sprintf("%s: somebody else pushed meanwhile; git pull, then push again", u.Ref), nil
			}
			return "", err
		}
	}
	if strings.HasPrefix(u.Ref, "refs/heads/") && u.New != "" {
		if _, err := objects.Commit(ctx, u.New); err != nil {
			return fmt.Sprintf("%s: a branch needs a commit: %v", u.Ref, err), nil
		}
	}
	if u.Old == "" || !h.config.Follows(u.Ref) {
		return "", nil
	}
	if u.New != "" {
		descends, err := objects.IsAncestor(ctx, u.Old, u.New)
		if descends {
			return "", nil
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return "", err
		}
	}
	if h.config.AllowRewind != nil {
		allowed, err := h.config.AllowRewind(ctx, *u)
		if allowed || err != nil {
			return "", err
		}
	}
	if u.New == "" {
		return fmt.Sprintf("%s: the cluster follows this branch at %s; it cannot be deleted", u.Ref, u.Old), nil
	}
	return fmt.Sprintf("%s: the cluster is at %s, and %s does not descend from it: history that was pushed cannot be rewritten; "+
		"to go back, git revert; to allow this one move, headway sync --allow-rewind %s --why … on the server", u.Ref, u.Old, u.New, u.New), nil
}

// recover takes the key's value for the old one when the repository has lost the
// key's commit: git then cannot know the ref, and a push of the same history is
// what mends it. In every other case another push was faster.
func (h *Hosted) recover(ctx context.Context, u *Update, key string) error {
	if key == "" || u.New == "" {
		return ErrMoved
	}
	lost := false
	err := h.info(ctx, []string{key}, func(_ int, hd header) error {
		lost = hd.kind == ""
		return nil
	})
	if err != nil {
		return fmt.Errorf("look up %s: %w", key, err)
	}
	if !lost {
		return ErrMoved
	}
	u.Old = key
	return nil
}

// collisions names the refs that git could not store, for one would be a folder
// of the other (refs/heads/a and refs/heads/a/b). Git itself would find out only
// after the keys have moved.
func collisions(updates []Update, keys map[string]string) []string {
	after := maps.Clone(keys)
	if after == nil {
		after = map[string]string{}
	}
	for _, u := range updates {
		if after[u.Ref] = u.New; u.New == "" {
			delete(after, u.Ref)
		}
	}
	var problems []string
	for _, ref := range slices.Sorted(maps.Keys(after)) {
		for dir := ref; ; {
			i := strings.LastIndexByte(dir, '/')
			if i < 0 {
				break
			}
			if dir = dir[:i]; after[dir] != "" {
				problems = append(problems, fmt.Sprintf("%s: there is a ref %s; the two names exclude each other", ref, dir))
			}
		}
	}
	return problems
}
