package syncer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sort"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/render"
)

// Checkout reads commits out of a git repository and renders them.
type Checkout struct {
	Objects interface {
		Commit(ctx context.Context, hash string) (git.Commit, error)
		IsAncestor(ctx context.Context, a, b string) (bool, error)
		Tree(ctx context.Context, commit, dir string) (*git.Tree, error)
		Diff(ctx context.Context, a, b *git.Tree) ([]git.Change, error)
		ShowFile(ctx context.Context, commit, path string) ([]byte, error)
		SignersAt(ctx context.Context, commit, allowed, keyring string) (git.Signers, error)
		VerifyRange(ctx context.Context, from, to string, signers git.Signers, now time.Time) ([]git.Unsigned, error)
	}
	// Keeper is the repository; nil for a push under judgement.
	Keeper interface {
		Keep(ctx context.Context, commits []string) error
	}
	Cache *render.Cache // shared by all Checkouts of one repository
	// Unwritten is told what LiveEdits could not write into files; may be nil.
	Unwritten func([]api.Problem)
}

var _ Commits = (*Checkout)(nil)

// Author implements Commits.
func (c *Checkout) Author(ctx context.Context, commit string) (string, error) {
	read, err := c.Objects.Commit(ctx, commit)
	return read.Author, err
}

// IsAncestor implements Commits. A commit that the repository does not have is
// nobody's ancestor.
func (c *Checkout) IsAncestor(ctx context.Context, ancestor, commit string) (bool, error) {
	is, err := c.Objects.IsAncestor(ctx, ancestor, commit)
	if errors.Is(err, git.ErrNotFound) {
		return false, nil
	}
	return is, err
}

// maxOrigins bounds how many commits Origins walks back.
const maxOrigins = 200

// Origins implements Commits. It follows first parents: what a merge brings was
// changed by the merge.
func (c *Checkout) Origins(ctx context.Context, from, to string) (map[string]Origin, error) {
	commit, err := c.Objects.Commit(ctx, to)
	if err != nil {
		return nil, err
	}
	out := map[string]Origin{}
	for range maxOrigins {
		if len(commit.Parents) == 0 || commit.Parents[0] == from && len(out) == 0 {
			return out, nil // one commit: it changed all that changed
		}
		parent, err := c.Objects.Commit(ctx, commit.Parents[0])
		if err != nil {
			return nil, err
		}
		err = c.changed(ctx, parent, commit, out)
		if errors.Is(err, git.ErrTooLarge) || errors.Is(err, git.ErrDamaged) {
			return out, nil // a commit that was refused for that does not stop those that mend it (R13)
		}
		if err != nil {
			return nil, err
		}
		if parent.Hash == from {
			return out, nil
		}
		commit = parent
	}
	return out, nil
}

// changed notes commit as the origin of what it changed, where no newer one is
// noted.
func (c *Checkout) changed(ctx context.Context, parent, commit git.Commit, out map[string]Origin) error {
	before, err := c.Objects.Tree(ctx, parent.Hash, "")
	if err != nil {
		return err
	}
	after, err := c.Objects.Tree(ctx, commit.Hash, "")
	if err != nil {
		return err
	}
	changes, err := c.Objects.Diff(ctx, before, after)
	if err != nil {
		return err
	}
	for _, ch := range changes {
		if _, newer := out[ch.Path]; !newer {
			out[ch.Path] = Origin{Commit: commit.Hash, Author: commit.Author}
		}
	}
	return nil
}

// maxSpeakers bounds the commits whose trailers are read: the newest ones.
const maxSpeakers = 1000

// Trailers implements Commits.
func (c *Checkout) Trailers(ctx context.Context, from, to string) ([]Trailer, error) {
	line, err := c.line(ctx, from, to)
	if err != nil {
		return nil, err
	}
	var out []Trailer
	for _, commit := range line {
		for _, t := range commit.Trailers {
			out = append(out, Trailer{Commit: commit.Hash, Key: t.Key, Value: t.Value})
		}
	}
	return out, nil
}

// line is to and its first parents that from does not have in its history, newest
// first.
func (c *Checkout) line(ctx context.Context, from, to string) ([]git.Commit, error) {
	var line []git.Commit
	for hash := to; hash != from && len(line) < maxSpeakers; {
		commit, err := c.Objects.Commit(ctx, hash)
		if err != nil {
			return nil, err
		}
		line = append(line, commit)
		if from == "" || len(commit.Parents) == 0 {
			break
		}
		hash = commit.Parents[0]
	}
	last := len(line) - 1
	if last < 0 || from == "" || len(line[last].Parents) > 0 && line[last].Parents[0] == from {
		return line, nil
	}
	return c.apart(ctx, from, to, line)
}

// apart is line where first parents do not lead to from. After a move that is no
// step forward only what the commit says itself can be meant for it: the others may
// be copies of what was said long ago.
func (c *Checkout) apart(ctx context.Context, from, to string, line []git.Commit) ([]git.Commit, error) {
	if forward, err := c.IsAncestor(ctx, from, to); err != nil {
		return nil, err
	} else if !forward {
		back, err := c.IsAncestor(ctx, to, from)
		if err != nil || back {
			return nil, err
		}
		return line[:1], nil
	}
	// from came in by a merge: what from has in its history, too, is older than all
	// that it does not have.
	var failed error
	n := sort.Search(len(line), func(i int) bool {
		known, err := c.IsAncestor(ctx, line[i].Hash, from)
		failed = errors.Join(failed, err)
		return known
	})
	return line[:n], failed
}

// Keep implements Commits.
func (c *Checkout) Keep(ctx context.Context, commits []string) error {
	if c.Keeper == nil {
		return errors.New("a push under judgement keeps no commits")
	}
	return c.Keeper.Keep(ctx, commits)
}

// Render implements Commits.
func (c *Checkout) Render(ctx context.Context, commit, path string) (Rendered, error) {
	tree, err := c.Objects.Tree(ctx, commit, "")
	if err != nil {
		return Rendered{}, err
	}
	return renderTree(treeAt{ctx, tree, c.Objects}, path, c.Cache)
}

func renderTree(tree render.Tree, path string, cache *render.Cache) (Rendered, error) {
	result, config, problems, err := render.Source(tree, path, cache)
	if err != nil {
		return Rendered{}, err
	}
	if len(problems) == 0 {
		if problems, err = signersProblems(tree, &config); err != nil {
			return Rendered{}, err
		}
	}
	out := Rendered{Problems: problems, Warnings: result.Warnings, Manifests: result.Manifests, Config: &config, Read: result.Read, Built: result.Rendered}
	for _, n := range result.Skipped {
		out.Skipped = append(out.Skipped, api.Problem{Path: n.Path, Reason: n.Why})
	}
	return out, nil
}

// treeAt is a git tree as render wants it, for one call.
type treeAt struct {
	ctx     context.Context
	tree    *git.Tree
	objects interface {
		Diff(ctx context.Context, a, b *git.Tree) ([]git.Change, error)
	}
}

var _ render.Comparable = treeAt{}

// Name implements render.Comparable.
func (t treeAt) Name() string { return t.tree.Hash }

// Since implements render.Comparable.
func (t treeAt) Since(name string) ([]render.Change, error) {
	changes, err := t.objects.Diff(t.ctx, &git.Tree{Hash: name}, t.tree)
	if err != nil {
		return nil, err
	}
	out := make([]render.Change, 0, len(changes))
	for _, c := range changes {
		change := render.Change{Path: c.Path}
		if c.New.Hash != "" {
			f := fileOf(c.New)
			change.Now = &f
		}
		out = append(out, change)
	}
	return out, nil
}

// fileOf is a file as render wants it.
func fileOf(f git.File) render.File {
	mode := render.Regular
	switch f.Mode {
	case git.ModeSymlink:
		mode = render.Symlink
	case git.ModeSubmodule:
		mode = render.Submodule
	}
	return render.File{Path: f.Path, Mode: mode, Hash: f.Hash, Size: f.Size}
}

func (t treeAt) Files() iter.Seq2[render.File, error] {
	return func(yield func(render.File, error) bool) {
		files, err := t.tree.Files(t.ctx)
		switch {
		case errors.Is(err, git.ErrTooLarge):
			err = fmt.Errorf("%w: %w", err, render.ErrTooLarge)
		case errors.Is(err, git.ErrDamaged):
			err = fmt.Errorf("%w: %w", err, render.ErrDamaged)
		}
		if err != nil {
			yield(render.File{}, err)
			return
		}
		for _, f := range files {
			if !yield(fileOf(f), nil) {
				return
			}
		}
	}
}

func (t treeAt) Read(path string) ([]byte, error) { return t.tree.Read(t.ctx, path) }

// planLines bounds what an accepted push lists of its plan, and of its warnings.
const planLines = 20

// JudgePush is for git.Config.Judge: it reads the pushed objects before git has
// accepted them, and returns every problem as a line. What the push would change
// is written to progress; of a dry run, all of it.
func (s *Syncer) JudgePush(cache *render.Cache) func(ctx context.Context, p git.Push, progress io.Writer) ([]string, error) {
	return func(ctx context.Context, p git.Push, progress io.Writer) ([]string, error) {
		v, err := s.Judge(ctx, Candidate{Commit: p.New, Commits: &Checkout{Objects: p.Objects, Cache: cache}})
		if err != nil {
			return nil, err
		}
		most := planLines
		if p.DryRun() {
			most = 0
		}
		v.writeNotes(progress, most)
		if pause := paused(s.source(), s.cfg.Now()); pause != nil && v.OK() {
			if _, err := fmt.Fprintf(progress, "this cluster is %s; the commit is applied then\n", PauseText(pause)); err != nil {
				return nil, err
			}
		}
		return v.Lines(), nil
	}
}
