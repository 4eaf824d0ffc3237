package git

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Change is one file that differs between two trees. A File without a Hash is
// absent on that side.
type Change struct {
	Path     string
	Old, New File
}

// Diff returns the files that differ from a to b, sorted by path; a nil tree is
// an empty one. Folders with the same hash are not read.
func (o *Objects) Diff(ctx context.Context, a, b *Tree) ([]Change, error) {
	var root pair
	if a != nil {
		root.old = a.Hash
	}
	if b != nil {
		root.new = b.Hash
	}
	if root.old == root.new {
		return nil, nil
	}
	var changes []Change
	err := o.walk(ctx, []pair{root}, 2*maxFiles, func(c Change) error {
		changes = append(changes, c)
		return nil
	})
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return changes, err
}

// pair is a folder on both sides; an empty hash means that it is absent there.
type pair struct{ path, old, new string }

// walk visits every file that differs between the sides of the pairs, one level
// of folders after the other, so that each level costs one round trip to git. most bounds the files and folders.
func (o *Objects) walk(ctx context.Context, level []pair, most int, visit func(Change) error) error {
	seen, bytes := 0, 0
	tooLong := func(folder string) error {
		return fmt.Errorf("%w: the paths of its files have more than %d bytes, folder %.200q", ErrTooLarge, maxPaths, folder)
	}
	for depth := 0; len(level) > 0; depth++ {
		if depth > maxDepth {
			return fmt.Errorf("%w: folder %.200s is nested deeper than %d", ErrTooLarge, level[0].path, maxDepth)
		}
		hashes := make([]string, 0, 2*len(level))
		for _, p := range level {
			hashes = append(hashes, p.old, p.new)
		}
		trees, err := o.trees(ctx, hashes)
		if err != nil {
			return err
		}
		var next []pair
		for _, p := range level {
			if n := max(len(trees[p.old]), len(trees[p.new])); n*len(p.path) > maxPaths { // before they are made
				return tooLong(p.path)
			}
			changes, below := compare(p, trees[p.old], trees[p.new])
			next = append(next, below...)
			if seen += len(changes) + len(below); seen > most {
				return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, most)
			}
			for _, b := range below {
				bytes += len(b.path)
			}
			for _, c := range changes {
				if bytes += len(c.Path); bytes > maxPaths {
					return tooLong(p.path)
				}
				if err := visit(c); err != nil {
					return err
				}
			}
		}
		level = next
	}
	return nil
}

// compare returns the files that differ between two folders, and the folders
// below them that differ.
func compare(p pair, old, new []entry) (changes []Change, below []pair) {
	for len(old) > 0 && len(new) > 0 && old[0] == new[0] {
		old, new = old[1:], new[1:]
	}
	for len(old) > 0 && len(new) > 0 && old[len(old)-1] == new[len(new)-1] {
		old, new = old[:len(old)-1], new[:len(new)-1]
	}
	before := make(map[string]entry, len(old))
	for _, e := range old {
		before[e.name] = e
	}
	join := func(name string) string {
		if p.path == "" {
			return name
		}
		return p.path + "/" + name
	}
	differ := func(name string, a, b entry) {
		if a.hash == b.hash && a.mode == b.mode {
			return
		}
		c, d := Change{Path: join(name)}, pair{path: join(name)}
		if a.mode == ModeDir {
			d.old = a.hash
		} else if a.hash != "" {
			c.Old = File{Path: c.Path, Mode: a.mode, Hash: a.hash, Size: a.size}
		}
		if b.mode == ModeDir {
			d.new = b.hash
		} else if b.hash != "" {
			c.New = File{Path: c.Path, Mode: b.mode, Hash: b.hash, Size: b.size}
		}
		if c.Old.Hash != "" || c.New.Hash != "" {
			changes = append(changes, c)
		}
		if d.old != d.new {
			below = append(below, d)
		}
	}
	for _, e := range new {
		differ(e.name, before[e.name], e)
		delete(before, e.name)
	}
	for _, e := range old {
		if left, ok := before[e.name]; ok {
			differ(e.name, left, entry{})
			delete(before, e.name)
		}
	}
	return changes, below
}
