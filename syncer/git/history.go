package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// maxLog bounds how many commits one call returns.
const maxLog = 10_000

func checkLimit(n int) error {
	if n < 1 || n > maxLog {
		return fmt.Errorf("%d is no number of commits from 1 to %d", n, maxLog)
	}
	return nil
}

// Entry is one commit of a Log.
type Entry struct {
	Commit
	Note []byte // its receipt; nil when it has none
}

// Log returns a commit and those before it, at most n, along first parents.
func (r *Repository) Log(ctx context.Context, from string, n int) ([]Entry, error) {
	if err := checkLimit(n); err != nil {
		return nil, err
	}
	if _, err := r.Commit(ctx, from); err != nil {
		return nil, err
	}
	commits, _, err := r.history(ctx, from, n)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", from, err)
	}
	hashes := make([]string, len(commits))
	for i, c := range commits {
		hashes[i] = c.Hash
	}
	notes, err := r.readNotes(ctx, hashes)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(commits))
	for i, c := range commits {
		entries[i] = Entry{Commit: c, Note: notes[i]}
	}
	return entries, nil
}

// history reads n commits along first parents, and returns which one comes next,
// "" after the last.
func (o *Objects) history(ctx context.Context, from string, n int) (commits []Commit, next string, err error) {
	out, err := o.program.run(ctx, nil, "rev-list", "--first-parent", fmt.Sprintf("--max-count=%d", n), from, "--")
	if err != nil {
		return nil, "", err
	}
	hashes := strings.Fields(string(out))
	commits = make([]Commit, len(hashes))
	err = o.rawCommits(ctx, hashes, func(i int, raw []byte) error {
		c, err := parseCommit(raw)
		if err != nil {
			return fmt.Errorf("commit %s: %w", hashes[i], err)
		}
		c.Hash = hashes[i]
		commits[i] = c
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	if len(commits) == n {
		if parents := commits[n-1].Parents; len(parents) > 0 {
			next = parents[0]
		}
	}
	return commits, next, nil
}

// rawCommits reads commit objects, each up to maxCommit bytes.
func (o *Objects) rawCommits(ctx context.Context, hashes []string, each func(i int, raw []byte) error) error {
	return o.contents(ctx, hashes, func(i int, h header, body io.Reader) error {
		switch h.kind {
		case "":
			return fmt.Errorf("commit %s: %w", hashes[i], ErrNotFound)
		case "commit":
		default:
			return fmt.Errorf("commit %s: it is a %s", hashes[i], h.kind)
		}
		raw, err := io.ReadAll(io.LimitReader(body, maxCommit))
		if err != nil {
			return fmt.Errorf("commit %s: %w", hashes[i], err)
		}
		return each(i, raw)
	})
}

// ShowFile returns the content of one file at a commit, or ErrNotFound. It does
// not follow symbolic links: the content of one is where it points to.
func (o *Objects) ShowFile(ctx context.Context, commit, path string) ([]byte, error) {
	fail := func(err error) error { return fmt.Errorf("file %s at commit %s: %w", path, commit, err) }
	if err := checkPath(path); err != nil {
		return nil, err
	}
	dir, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	tree, err := o.Tree(ctx, commit, dir)
	if err != nil {
		return nil, err
	}
	folders, err := o.trees(ctx, []string{tree.Hash})
	if err != nil {
		return nil, fail(err)
	}
	for _, e := range folders[tree.Hash] {
		if e.name != name {
			continue
		}
		if e.mode == ModeDir {
			return nil, fail(fmt.Errorf("it is a folder: %w", ErrNotFound))
		}
		var content []byte
		f := File{Path: path, Mode: e.mode, Hash: e.hash, Size: e.size}
		err := tree.ReadAll(ctx, []File{f}, func(_ File, data []byte) error {
			content = data
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("at commit %s: %w", commit, err)
		}
		return content, nil
	}
	return nil, fail(ErrNotFound)
}

// Blamed is the commit that a line of a file comes from.
type Blamed struct {
	Commit   string
	Author   string // "Name <mail>"
	Authored time.Time
	Path     string // of the file in that commit
	Line     int    // in that file, from 1
}

// Bounds of one Blame.
const (
	blameTime     = 30 * time.Second
	maxBlameLines = 1000
)

// Blame says for each of the lines (from 1, in rising order) of a file at a commit
// which commit it comes from. It follows the file through renames. One call for
// many lines costs little more than one for a single line; a history in which it
// takes more than 30 seconds is an error.
func (o *Objects) Blame(ctx context.Context, commit, path string, lines ...int) ([]Blamed, error) {
	fail := func(err error) error { return fmt.Errorf("blame %s at commit %s: %w", path, commit, err) }
	content, err := o.ShowFile(ctx, commit, path)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 || len(lines) > maxBlameLines {
		return nil, fail(fmt.Errorf("%d lines are asked for, 1 to %d can be", len(lines), maxBlameLines))
	}
	count := bytes.Count(content, []byte{'\n'})
	if len(content) > 0 && content[len(content)-1] != '\n' {
		count++
	}
	args := []string{"blame", "--line-porcelain"}
	for i, line := range lines {
		switch {
		case line < 1 || line > count:
			return nil, fail(fmt.Errorf("it has no line %d but %d lines: %w", line, count, ErrNotFound))
		case i > 0 && line <= lines[i-1]:
			return nil, fail(errors.New("the lines are not in rising order"))
		}
		args = append(args, fmt.Sprintf("-L%d,%d", line, line))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, blameTime, fmt.Errorf("its history is too long: not found in %s", blameTime))
	defer cancel()
	out, err := o.program.run(ctx, nil, append(args, commit, "--", path)...)
	if err != nil {
		return nil, fail(err)
	}
	blamed, err := parseBlame(string(out))
	if err == nil && len(blamed) != len(lines) {
		err = fmt.Errorf("git blame answered for %d lines", len(blamed))
	}
	if err != nil {
		return nil, fail(err)
	}
	hashes := make([]string, len(blamed))
	for i, b := range blamed {
		hashes[i] = b.Commit
	}
	// From the commit itself: git blame would map names by the tree's .mailmap.
	err = o.rawCommits(ctx, hashes, func(i int, raw []byte) error {
		c, err := parseCommit(raw)
		blamed[i].Author, blamed[i].Authored = c.Author, c.Authored
		return err
	})
	if err != nil {
		return nil, fail(err)
	}
	return blamed, nil
}

// parseBlame reads commits, lines and paths from git blame --line-porcelain.
func parseBlame(out string) ([]Blamed, error) {
	var blamed []Blamed
	var b Blamed
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		key, val, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "\t"): // the line itself ends what is said of it
			blamed = append(blamed, b)
			b = Blamed{}
		case b.Commit == "":
			first, _, _ := strings.Cut(val, " ")
			n, err := strconv.Atoi(first)
			if !isHash(key) || err != nil {
				return nil, fmt.Errorf("git blame answered %.100q", line)
			}
			b.Commit, b.Line = key, n
		case key == "filename":
			b.Path = unquoted(val)
		}
	}
	return blamed, nil
}

// unquoted takes away the quotes that git puts around odd paths.
func unquoted(path string) string {
	if len(path) > 1 && path[0] == '"' {
		if plain, err := strconv.Unquote(path); err == nil {
			return plain
		}
	}
	return path
}
