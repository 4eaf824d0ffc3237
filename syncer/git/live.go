package git

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// appliedTrailer names the applied commit in a live commit, and the commit that
// a note is of in a commit of the notes. We alone set it.
const appliedTrailer = "Headway-Commit"

// LiveCommit is one commit of the live ref: the tree of the applied commit with
// the edits that make its declared fields what they really are.
type LiveCommit struct {
	Old      string // where the live ref is; "" when there is none yet
	Applied  string // the applied commit, whose tree is the base
	Edits    []Edit // none when all is in sync: the tree is then the applied one's
	Message  string // without trailers
	Trailers []Trailer

	Author, Committer   Identity
	Authored, Committed time.Time
}

// Live returns the commit of the live ref, or ErrNotFound.
func (r *Repository) Live(ctx context.Context) (string, error) { return r.Resolve(ctx, r.liveRef()) }

// WriteLive writes a commit and moves the live ref from c.Old to it. The parents
// are the previous live commit and, when it is the first or its applied commit was
// another one, the applied commit. The trailer Headway-Commit is set to the latter.
//
// It costs the folders on the way to the edited files, whatever else the tree
// holds. A commit that would change neither the tree nor the applied commit is
// not written: the answer is c.Old. The same call again is answered as the first
// one was. The error is ErrMoved when the ref is elsewhere.
//
// ready, unless it is nil, is called when all is there for the ref to move; its
// error ends the call, and the ref stays (R4).
func (r *Repository) WriteLive(ctx context.Context, c LiveCommit, ready func(context.Context) error) (commit string, err error) {
	commit, err = r.writeLive(ctx, c, ready)
	if err != nil {
		return "", fmt.Errorf("write the live ref: %w", err)
	}
	return commit, nil
}

func (r *Repository) writeLive(ctx context.Context, c LiveCommit, ready func(context.Context) error) (string, error) {
	base, err := r.Commit(ctx, c.Applied)
	if err != nil {
		return "", err
	}
	var objects additions
	tree, err := r.graft(ctx, base.Tree, c.Edits, &objects)
	if err != nil {
		return "", err
	}
	if tree == "" {
		tree = objects.addTree(nil)
	}
	d := draft{
		tree: tree, author: c.Author, authored: c.Authored, committer: c.Committer, committed: c.Committed,
		parents: []string{c.Applied},
	}
	if c.Old != "" {
		previous, err := r.Commit(ctx, c.Old)
		if err != nil {
			return "", fmt.Errorf("the previous live commit: %w", err)
		}
		same := value(previous.Trailers, appliedTrailer) == c.Applied
		if same && previous.Tree == tree {
			return c.Old, r.expect(ctx, r.liveRef(), c.Old)
		}
		if d.parents = []string{c.Old}; !same {
			d.parents = append(d.parents, c.Applied)
		}
	}
	if d.message, err = messageOf(c); err != nil {
		return "", err
	}
	raw, err := d.encode()
	if err != nil {
		return "", err
	}
	commit := objects.add("commit", raw)
	now, err := r.at(ctx, r.liveRef())
	switch {
	case err != nil:
		return "", err
	case now == commit: // written by an earlier call whose answer was lost
		return commit, nil
	case now != c.Old:
		return "", moved(r.liveRef(), now, c.Old)
	}
	if err := r.store(ctx, &objects); err != nil {
		return "", err
	}
	if ready != nil {
		if err := ready(ctx); err != nil {
			return "", err
		}
	}
	return commit, r.swap(ctx, r.liveRef(), c.Old, commit)
}

// expect says whether a ref is where it is believed to be.
func (o *Objects) expect(ctx context.Context, ref, hash string) error {
	now, err := o.at(ctx, ref)
	if err == nil && now != hash {
		err = moved(ref, now, hash)
	}
	return err
}

func messageOf(c LiveCommit) (string, error) {
	if slices.ContainsFunc(c.Trailers, func(t Trailer) bool { return strings.EqualFold(t.Key, appliedTrailer) }) {
		return "", fmt.Errorf("the trailer %s is set by the live ref itself", appliedTrailer)
	}
	if strings.TrimSpace(c.Message) == "" {
		return "", errors.New("it needs a message")
	}
	trailers := append([]Trailer{{Key: appliedTrailer, Value: c.Applied}}, c.Trailers...)
	return withTrailers(c.Message, trailers)
}
