package git

import (
	"context"
	"fmt"
	"strings"
)

// maxSteps bounds what is said of the way back from a commit, in bytes.
const maxSteps = 100

// Find returns the commit that a person means by name: a hash or the first 7 or
// more digits of one, a branch, a tag, or a full ref name; with ~N or ^N after it, one
// of its ancestors as git counts them. The error is ErrNotFound when there is no such
// commit, or more than one.
func (r *Repository) Find(ctx context.Context, name string) (string, error) {
	name, steps := CutSteps(name)
	if strings.Trim(steps, "~^0123456789") != "" || len(steps) > maxSteps {
		return "", fmt.Errorf("commit %.100q: %w", name+steps, ErrNotFound)
	}
	var names []string
	if hex := strings.ToLower(name); len(hex) >= 7 && len(hex) <= 40 && strings.Trim(hex, "0123456789abcdef") == "" {
		names = append(names, hex)
	}
	for _, ref := range []string{name, "refs/heads/" + name, "refs/tags/" + name} {
		if checkRef(ref) == nil {
			names = append(names, ref)
		}
	}
	found := make([]string, len(names))
	for i := range names {
		names[i] += steps + "^{commit}"
	}
	err := r.info(ctx, names, func(i int, h header) error {
		if h.kind == "commit" {
			found[i] = h.hash
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("find commit %.100q: %w", name+steps, err)
	}
	for _, hash := range found {
		if hash != "" {
			return hash, nil
		}
	}
	return "", fmt.Errorf("commit %.100q: %w", name+steps, ErrNotFound)
}

// CutSteps takes the way back, such as ~2 or ^2, from the name of a commit.
func CutSteps(name string) (base, steps string) {
	if i := strings.IndexAny(name, "~^"); i >= 0 {
		return name[:i], name[i:]
	}
	return name, ""
}
