package render

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"headway.dev/headway/api"
)

// Bounds of the links to folders that are followed: how deep, one inside the
// other, and how many.
const (
	maxFollowed = 8
	maxLinks    = 10_000
)

// candidate is a file of the source, by the name that it has there.
type candidate struct {
	path string // in the source, through links to folders
	at   string // the tree's entry
	real string // the file whose content it is: another one for a link
	left bool   // an ignore pattern leaves it out
}

// candidates lists what of the tree is in the source's path: hidden files left
// out, links followed.
func (r *renderer) candidates() error {
	if r.root != "" && !r.index.folder(r.root) {
		real, k, err := r.index.resolve(r.root, nil)
		switch {
		case err != nil && err != errOutside && err != errLoop:
			return err
		case err != nil || k != folder:
			r.problem(api.Problem{Path: r.root, Reason: "no such folder in the commit; the source's path names it"})
			return nil
		}
		return r.follow(real, r.root, 0)
	}
	return r.follow(r.root, r.root, 0)
}

// follow adds the files of a folder under the name that it has in the source.
func (r *renderer) follow(dir, as string, depth int) error {
	if dir == "." {
		dir = ""
	}
	files := r.index.below(dir)
	r.files = slices.Grow(r.files, len(files))
	for _, f := range files {
		below := strings.TrimPrefix(strings.TrimPrefix(f.Path, dir), "/")
		if strings.HasPrefix(below, ".") || strings.Contains(below, "/.") {
			continue
		}
		name := f.Path
		if as != dir {
			name = path.Join(as, below)
		}
		c := candidate{path: name, at: f.Path, real: f.Path, left: r.settings.ignored(r.inSource(name))}
		if len(r.files) >= MaxFiles {
			r.problem(api.Problem{Path: name, Reason: fmt.Sprintf("symbolic links to folders lead to more than %d files", MaxFiles)})
			return nil
		}
		switch {
		case f.Mode == Submodule:
			if !c.left {
				r.late = append(r.late, late{name, r.index.submoduleReason(f.Path)})
			}
		case f.Mode == Symlink:
			if err := r.link(c, depth); err != nil {
				return err
			}
		default:
			r.files = append(r.files, c)
		}
	}
	return nil
}

// inSource is a path relative to the source's.
func (r *renderer) inSource(p string) string {
	below, ok := relative(r.root, p)
	if !ok {
		return p
	}
	return below
}

// link follows a symbolic link. One that leaves the tree means something else on
// every machine and is refused.
func (r *renderer) link(c candidate, depth int) error {
	if c.left {
		return nil
	}
	data, err := r.index.read(c.at)
	if err != nil {
		return err
	}
	target := fmt.Sprintf("the symbolic link to %s ", shown(string(data)))
	real, k, err := r.index.resolve(c.at, nil)
	switch {
	case err == errOutside || err == errLoop:
		r.problem(api.Problem{Path: c.path, Reason: target + err.Error()})
		return nil
	case err != nil:
		return err
	}
	name := path.Base(c.path)
	switch wanted := manifestName(name) || kustomizationName(name); {
	case k == submodule:
		r.late = append(r.late, late{c.path, target + "leads into a submodule: " + r.index.submoduleReason(real)})
	case k == folder && (real == "." || within(c.at, real)):
		r.skip(c.path, target+"leads to a folder that it is in itself")
	case k == folder && r.visible(real):
		r.skip(c.path, fmt.Sprintf("symbolic link to the folder %s, which is read itself", real))
	case k == folder && (depth >= maxFollowed || r.followed >= maxLinks):
		r.problem(api.Problem{Path: c.path, Reason: fmt.Sprintf("%sleads to links inside links, or is one of more than %d: name the folder itself", target, maxLinks)})
	case k == folder:
		r.followed++
		return r.follow(real, c.path, depth+1)
	case !wanted:
	case k == nothing:
		r.problem(api.Problem{Path: c.path, Reason: target + "leads nowhere"})
	case manifestName(name) && !kustomizationName(name) && manifestName(real) && r.visible(real):
		r.skip(c.path, fmt.Sprintf("symbolic link to %s, which is read itself", real))
	default:
		c.real = real
		r.files = append(r.files, c)
	}
	return nil
}

// visible says whether an entry of the tree is in the source by itself.
func (r *renderer) visible(p string) bool {
	below, ok := relative(r.root, p)
	if !ok {
		return false
	}
	return !strings.HasPrefix(below, ".") && !strings.Contains(below, "/.") && (below == "" || !r.settings.ignored(below))
}

// found is a folder of the source that has a kustomization.
type found struct {
	dir  string // in the tree
	path string // in the source
	left bool
	k    *kustomization
}

// kustomizations finds the folders of the source that have one, reads them, and
// says which of them the others use.
func (r *renderer) kustomizations() ([]found, error) {
	var all []found
	seen := map[string]int{}
	for _, c := range r.files {
		if !kustomizationName(path.Base(c.path)) {
			continue
		}
		dir := path.Dir(c.at)
		if i, ok := seen[dir]; ok {
			all[i].left = all[i].left && c.left
			continue
		}
		seen[dir] = len(all)
		all = append(all, found{dir: dir, path: path.Dir(c.path), left: c.left})
	}
	used := map[string]bool{}
	for i := range all {
		k, err := r.kustomization(all[i].dir, func(string) {})
		if err != nil {
			return nil, err
		}
		all[i].k = k
		if k == nil {
			continue
		}
		for _, ref := range k.refs {
			if ref.want > wantPlugin || ref.want == wantPlugin && inline(ref.value) {
				continue
			}
			real, kind, reason, err := r.index.target(k.dir, ref.value, nil)
			if err != nil {
				return nil, err
			}
			if reason == "" && kind == folder {
				used[real] = true
			}
		}
	}
	for _, f := range all {
		r.units[f.dir] = f
	}
	return slices.DeleteFunc(slices.Clone(all), func(f found) bool {
		return f.left || used[f.dir] || f.k != nil && f.k.component()
	}), nil
}

// circles refuses the kustomizations that no entry point reaches because they use
// each other: nobody would notice that they are not rendered.
func (r *renderer) circles() error {
	done := map[string]bool{}
	for _, dir := range slices.Sorted(maps.Keys(r.units)) {
		f := r.units[dir]
		if f.left || f.k == nil || f.k.component() || r.consumed[f.k.file] {
			continue
		}
		if err := r.circle(f.k, nil, done); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) circle(k *kustomization, way []string, done map[string]bool) error {
	if done[k.dir] || len(way) > maxUnitDepth {
		return nil
	}
	done[k.dir] = true
	way = append(way, k.dir)
	for _, ref := range k.refs {
		if ref.want > wantComponent {
			continue
		}
		real, kind, reason, err := r.index.target(k.dir, ref.value, nil)
		if err != nil {
			return err
		}
		if reason != "" || kind != folder {
			continue
		}
		if i := slices.Index(way, real); i >= 0 {
			r.problem(api.Problem{Field: ref.field, Reason: "kustomizations refer to each other in a circle: " + strings.Join(append(slices.Clone(way[i:]), real), " → ")}.At(ref.at))
			continue
		}
		next, err := r.kustomization(real, func(string) {})
		if err != nil {
			return err
		}
		if next == nil {
			continue
		}
		if err := r.circle(next, way, done); err != nil {
			return err
		}
	}
	return nil
}
