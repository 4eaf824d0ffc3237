package render

import (
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"headway.dev/headway/api"
)

// maxChanges bounds the files in which a tree may differ from one that was rendered
// before: beyond it a new start costs less.
const maxChanges = 100

// rendering is what a tree without any problem declares, as the start for others
// that differ in a few plain files. It is shared and must not be changed.
type rendering struct {
	name     string // of the tree
	opts     Options
	index    *index
	result   Result
	objects  map[identified]*api.Manifest
	units    map[string]found // which folders have a kustomization
	asked    map[string]bool  // what kustomizations depend on
	foreign  []api.Foreign    // in the order of path and place
	warnings []api.Problem    // of the kustomizations
	bytes    int
}

// rendering is what is kept of a render. It is nil where a file has effects in other
// places, by a link or by a problem.
func (r *renderer) rendering(name string) *rendering {
	if len(r.problems.list) > 0 || r.index.links || r.index.unnamed {
		return nil
	}
	r.index.folder("") // made now, for all
	ix := *r.index
	ix.tree, ix.kept = nil, nil
	out := &rendering{name: name, opts: r.opts, index: &ix, result: r.result, objects: r.objects, units: map[string]found{}, asked: r.consumed, foreign: r.foreign, warnings: r.warnings, bytes: r.bytes}
	out.opts.Cache = nil
	for dir, f := range r.units {
		out.units[dir] = found{dir: f.dir, path: f.path, left: f.left}
	}
	return out
}

// follow gives what a tree declares that has some other files, which ix knows. It
// says false when these cannot be looked at alone, or when there is a problem: only
// a render of everything tells it right.
func (b *rendering) follow(ix *index, opts Options) (result Result, ok bool, err error) {
	plain := opts
	if plain.Cache = nil; !reflect.DeepEqual(plain, b.opts) {
		return result, false, nil
	}
	r := newRenderer(ix, opts)
	r.units, r.bytes = b.units, b.bytes
	var changed []string
	for _, p := range slices.Sorted(maps.Keys(ix.over)) {
		alone, read := b.alone(r, p)
		if !alone {
			return result, false, nil
		}
		if read {
			changed = append(changed, p)
		}
	}
	manifests, ok, err := b.replace(r, changed)
	if !ok || err != nil {
		return result, false, err
	}
	read := func(p string) bool { _, again := slices.BinarySearch(changed, p); return again }
	skipped := r.result.Skipped
	for _, n := range b.result.Skipped {
		if !read(n.Path) {
			skipped = append(skipped, n)
		}
	}
	for _, f := range b.foreign {
		if !read(f.Place.Path) {
			r.foreign = append(r.foreign, f)
		}
	}
	told := r.judgeStored(manifests)
	slices.SortStableFunc(skipped, func(a, b Notice) int { return strings.Compare(a.Path, b.Path) })
	switch {
	case len(r.problems.list) > 0, r.bytes > maxDeclared,
		len(ix.files)+len(ix.over) > MaxFiles, ix.names > maxPathBytes,
		r.settings.ignore.exhausted():
		return result, false, nil
	}
	return Result{Manifests: manifests, Skipped: skipped, Warnings: warnings(told, b.warnings, manifests), Read: r.result.Read, Units: b.result.Units}, true, nil
}

// alone says whether a change has no effect beyond its own file, and whether that
// may be one of manifests.
func (b *rendering) alone(r *renderer, p string) (alone, read bool) {
	_, was := b.index.files[p]
	f, is := r.index.file(p)
	dir, base := path.Dir(p), path.Base(p)
	switch {
	case b.asked[p] || kustomizationName(base) || base == "Chart.yaml",
		is && (f.Mode != Regular || f.Hash == "" || illegal(p) != ""),
		!was && (!b.index.folder(dir) || b.index.folder(p)), // a folder comes or goes
		!is && b.emptied(r.index, dir):
		return false, false
	}
	if !was {
		r.index.names += len(p)
	}
	below, inside := relative(r.root, p)
	if !inside || strings.HasPrefix(below, ".") || strings.Contains(below, "/.") || !manifestName(p) || r.settings.ignored(below) {
		return true, false
	}
	owned := r.owner(candidate{at: p}) != ""
	return !owned, !owned
}

// emptied says whether nothing may be left of a folder.
func (b *rendering) emptied(ix *index, dir string) bool {
	left := len(b.index.below(dir))
	for p, f := range ix.over {
		if f == nil && (dir == "." || strings.HasPrefix(p, dir+"/")) {
			left--
		}
	}
	return left <= 0
}

// replace puts the manifests of files that changed in the place of those before; it
// says false when one of them has a problem.
func (b *rendering) replace(r *renderer, changed []string) (all []*api.Manifest, ok bool, err error) {
	rest := b.result.Manifests
	all = make([]*api.Manifest, 0, len(rest)+len(changed))
	gone, come := map[identified]bool{}, map[identified]bool{}
	var added []*api.Manifest
	for _, p := range changed {
		r.bytes -= int(b.index.files[p].Size)
		from, _ := slices.BinarySearchFunc(rest, p, func(m *api.Manifest, p string) int { return strings.Compare(m.Path, p) })
		all, rest = append(all, rest[:from]...), rest[from:]
		for len(rest) > 0 && rest[0].Path == p {
			gone[identify(rest[0])] = true
			rest = rest[1:]
		}
		f, is := r.index.file(p)
		if !is {
			continue
		}
		r.bytes += int(f.Size)
		manifests, err := r.content(candidate{path: p, at: p, real: p})
		if err != nil || len(r.problems.list) > 0 {
			return nil, false, err
		}
		start := len(all)
		all = each(all, manifests)
		slices.SortStableFunc(all[start:], compareManifests)
		added = append(added, all[start:]...)
	}
	for _, m := range added {
		id := identify(m)
		if id.name != "" && (come[id] || b.objects[id] != nil && !gone[id]) {
			return nil, false, nil // it stands twice
		}
		come[id] = true
	}
	return append(all, rest...), true, nil
}
