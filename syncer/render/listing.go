package render

import (
	"fmt"
	"slices"
	"strings"

	"headway.dev/headway/api"
)

// Comparable is a Tree that knows in what it differs from another one, so that a
// commit costs what it changed and not what there is.
type Comparable interface {
	Tree
	// Name names the whole content: trees of one name are equal.
	Name() string
	// Since lists the paths at which the tree of that name has something else, each
	// once. It may fail where Files does not, when that tree is gone.
	Since(name string) ([]Change, error)
}

// Change is a path at which two trees differ, and what stands there now; nil:
// nothing.
type Change struct {
	Path string
	Now  *File
}

// listing is what is known of a tree: the whole index, or in what it differs from
// one that was rendered before.
type listing struct {
	tree     Tree
	index    *index
	problems []api.Problem // why the tree as a whole is refused; there may be no index then
	before   *rendering    // nil: the index is the tree's own
}

// look looks at a tree.
func look(tree Tree, cache *Cache) (*listing, error) {
	l := &listing{tree: tree}
	before := cache.last()
	if t, ok := tree.(Comparable); ok && before != nil {
		// Without an answer the tree itself is read, and says what is wrong.
		if changes, err := t.Since(before.name); err == nil && len(changes) <= maxChanges {
			l.before, l.index = before, before.index.since(tree, changes)
			return l, nil
		}
	}
	return l, l.whole()
}

// whole reads all entries.
func (l *listing) whole() (err error) {
	l.before = nil
	l.index, l.problems, err = readIndex(l.tree)
	return err
}

// render renders the tree that was listed.
func (l *listing) render(opts Options) (Result, []api.Problem, error) {
	if l.before != nil {
		if result, ok, err := l.before.follow(l.index, opts); ok || err != nil {
			return result, nil, err
		}
		if err := l.whole(); err != nil {
			return Result{}, nil, err
		}
	}
	if len(l.problems) > 0 {
		return Result{}, l.problems, nil
	}
	opts.Cache.begin()
	r := newRenderer(l.index, opts)
	if err := r.render(); err != nil {
		return Result{}, nil, err
	}
	if t, ok := l.tree.(Comparable); ok {
		opts.Cache.keep(r.rendering(t.Name()))
	}
	slices.SortStableFunc(r.problems.list, comparePlaces)
	return r.result, r.problems.list, nil
}

// misplaced finds what is meant as a configuration and is not read as one.
func (l *listing) misplaced(root string) (problems []api.Problem) {
	for _, name := range l.index.own {
		if p, misplaced := api.MisplacedConfig(root, name); misplaced && len(problems) < MaxNotices {
			problems = append(problems, p)
		}
	}
	return problems
}

// config reads the configuration, nil when there is none; a reason says why it is
// not to be read.
func (l *listing) config(name string) (data []byte, reason string, err error) {
	f, ok := l.index.file(name)
	switch {
	case !ok:
		return nil, "", nil
	case f.Mode != Regular:
		return nil, "must be a file, not a link: write the configuration itself", nil
	case f.Size > api.MaxConfigBytes:
		return nil, fmt.Sprintf("the file has %d bytes; at most %d can be read", f.Size, api.MaxConfigBytes), nil
	}
	if data, err = l.tree.Read(name); err != nil {
		return nil, "", fmt.Errorf("read %s: %w", name, err)
	}
	return append([]byte{}, data...), "", nil
}

// ours says whether a file's name is like that of the configuration.
func ours(p string) bool {
	return strings.Contains(p[strings.LastIndexByte(p, '/')+1:], "headway")
}

// since is the index of a tree that differs from ix in few files. Its list of all
// files is that of ix.
func (ix *index) since(tree Tree, changes []Change) *index {
	out := *ix
	out.tree, out.kept, out.over = tree, &kept{files: map[string][]byte{}}, make(map[string]*File, len(changes))
	for _, c := range changes {
		out.over[c.Path] = c.Now
	}
	out.own = nil
	for _, p := range ix.own {
		if _, changed := out.over[p]; !changed {
			out.own = append(out.own, p)
		}
	}
	for _, c := range changes {
		if c.Now != nil && ours(c.Path) {
			out.own = append(out.own, c.Path)
		}
	}
	slices.Sort(out.own)
	return &out
}
