package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Identity is whom a commit names as its author or committer.
type Identity struct{ Name, Mail string }

// liveRef is the branch that shows what is really live.
func (r *Repository) liveRef() string { return "refs/heads/headway/" + r.cluster + "/live" }

// notesRef is the notes tree that holds the receipts.
func (r *Repository) notesRef() string { return "refs/notes/headway/" + r.cluster }

// at returns the object that a ref names, or "" when there is no such ref.
func (o *Objects) at(ctx context.Context, ref string) (hash string, err error) {
	err = o.info(ctx, []string{ref}, func(_ int, h header) error {
		hash = h.hash
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read %s: %w", ref, err)
	}
	return hash, nil
}

// swap moves one of our own refs. The error is ErrMoved when it is not at old.
func (r *Repository) swap(ctx context.Context, ref, old, new string) error {
	failed := r.edit(ctx, []edit{{ref: ref, old: old, new: new}})
	if failed == nil {
		return nil
	}
	now, err := r.at(ctx, ref)
	switch {
	case err != nil:
		return errors.Join(failed, err)
	case now == new: // git had done it before it failed
		return nil
	case now != old:
		return moved(ref, now, old)
	}
	return fmt.Errorf("move %s: %w", ref, failed)
}

func moved(ref, now, expected string) error {
	name := func(hash string) string {
		if hash == "" {
			return "absent"
		}
		return "at " + hash
	}
	return fmt.Errorf("%s is %s and not %s: %w", ref, name(now), name(expected), ErrMoved)
}

// maxMessage bounds the message of a commit that we write.
const maxMessage = 256 << 10

// draft is a commit that we write.
type draft struct {
	tree              string
	parents           []string
	author, committer Identity
	authored          time.Time
	committed         time.Time
	message           string
}

// encode returns the commit object.
func (d draft) encode() ([]byte, error) {
	author, err := d.author.line(d.authored)
	if err != nil {
		return nil, fmt.Errorf("author: %w", err)
	}
	committer, err := d.committer.line(d.committed)
	if err != nil {
		return nil, fmt.Errorf("committer: %w", err)
	}
	message := strings.Trim(printable(d.message), "\n")
	switch {
	case strings.TrimSpace(message) == "":
		return nil, errors.New("a commit needs a message")
	case len(message) > maxMessage:
		return nil, fmt.Errorf("a message of %d bytes is too long, at most %d are written", len(message), maxMessage)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", d.tree)
	for _, p := range d.parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s\ncommitter %s\n\n%s\n", author, committer, message)
	return b.Bytes(), nil
}

// line is the identity with a time as a commit has it, without what git would
// take for the end of a name or of a line.
func (i Identity) line(when time.Time) (string, error) {
	clean := func(s string) string {
		return strings.Trim(oneLine(strings.NewReplacer("<", "", ">", "").Replace(s)), " .,:;\"'\\")
	}
	name := clean(i.Name)
	if name == "" {
		return "", fmt.Errorf("the name %.100q says nothing", i.Name)
	}
	if when.Unix() < 0 {
		return "", fmt.Errorf("the time %s is before 1970", when)
	}
	return fmt.Sprintf("%s <%s> %d %s", name, clean(i.Mail), when.Unix(), when.Format("-0700")), nil
}
