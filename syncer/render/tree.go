package render

import (
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"headway.dev/headway/api"
)

// Bounds of one tree.
const (
	MaxFiles     = 100_000
	MaxObjects   = 50_000
	MaxNotices   = 1_000 // problems and warnings, each
	maxPathBytes = 64 << 20
	maxHops      = 40        // symbolic links on the way to one file
	maxDeclared  = 512 << 20 // bytes of all that a tree declares
	maxKept      = 64 << 20  // bytes of files kept while one tree is rendered
)

// Mode is the kind of an entry of a tree.
type Mode int

const (
	Regular   Mode = iota // a file, executable or not
	Symlink               // its content is the target
	Submodule             // another repository's commit; it has no content here
)

// File is one entry of a tree, folders left out.
type File struct {
	Path string // from the tree's root, with slashes
	Mode Mode
	Hash string // of the content
	Size int64
}

// Tree is the content of a commit.
type Tree interface {
	// Files lists the tree in any order. It ends after an error; one that is
	// ErrTooLarge or ErrDamaged is about the commit and not about reading it.
	Files() iter.Seq2[File, error]
	Read(path string) ([]byte, error)
}

// ErrTooLarge is a tree that cannot be listed since it is too large.
var ErrTooLarge = errors.New("point the source at a repository of its own")

// ErrDamaged is a tree that cannot be listed since it is none that git writes.
var ErrDamaged = errors.New("write the folder anew, with git itself")

// index is a tree by path.
type index struct {
	tree    Tree
	files   map[string]File
	sorted  []File
	names   int               // bytes of all paths
	links   bool              // the tree has symbolic links or submodules
	unnamed bool              // a file has no hash: nothing can be remembered
	folders map[string]bool   // every folder; made when first asked for
	over    map[string]*File  // what stands in the place of files; nil: nothing
	with    map[string][]byte // contents of it
	kept    *kept
	own     []string // files that may be meant as Headway's, by their name
	modules map[string]string
}

// kept are contents that were read.
type kept struct {
	files map[string][]byte
	bytes int
}

// changed is the index with some files replaced or added; it shares the rest. Of
// below it knows nothing.
func (ix *index) changed(with map[string][]byte) *index {
	ix.folder("") // made once, for all
	out := *ix
	out.over, out.with, out.unnamed = make(map[string]*File, len(with)), with, true
	for p, data := range with {
		out.over[p] = &File{Path: p, Size: int64(len(data))}
	}
	return &out
}

// file is the entry at a path.
func (ix *index) file(p string) (File, bool) {
	if f, ok := ix.over[p]; ok {
		if f == nil {
			return File{}, false
		}
		return *f, true
	}
	f, ok := ix.files[p]
	return f, ok
}

// readIndex reads the tree's entries. A problem says that the tree as a whole is
// refused.
func readIndex(tree Tree) (*index, []api.Problem, error) {
	ix := &index{tree: tree, kept: &kept{files: map[string][]byte{}}}
	var problems []api.Problem
	for f, err := range tree.Files() {
		if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrDamaged) {
			return nil, []api.Problem{{Path: ".", Reason: err.Error()}}, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("list the tree: %w", err)
		}
		if why := illegal(f.Path); why != "" {
			if len(problems) < MaxNotices {
				problems = append(problems, api.Problem{Path: clipped(f.Path), Reason: why})
			}
			continue
		}
		ix.names += len(f.Path)
		if len(ix.sorted) >= MaxFiles || ix.names > maxPathBytes {
			return nil, []api.Problem{{Path: f.Path, Reason: fmt.Sprintf("the tree has more than %d files or %d bytes of names: point the source at a repository of its own", MaxFiles, maxPathBytes)}}, nil
		}
		ix.sorted = append(ix.sorted, f)
		if ours(f.Path) {
			ix.own = append(ix.own, f.Path)
		}
		ix.links = ix.links || f.Mode != Regular
		ix.unnamed = ix.unnamed || f.Hash == ""
	}
	byPath := func(a, b File) int { return strings.Compare(a.Path, b.Path) }
	if !slices.IsSortedFunc(ix.sorted, byPath) {
		slices.SortFunc(ix.sorted, byPath)
	}
	ix.files = make(map[string]File, len(ix.sorted))
	for _, f := range ix.sorted {
		ix.files[f.Path] = f
	}
	return ix, problems, nil
}

// Bounds of a name: what file systems take.
const (
	maxPart = 255  // bytes of a file's or a folder's own name
	maxPath = 4096 // bytes of a whole path
)

// illegal says why a path cannot be one of a tree; empty: it can. git refuses some of
// these when it checks what it is sent, which a forge may not have done, and takes
// the others, which nobody can check out or write in a manifest's place.
func illegal(p string) string {
	const rename = ": rename the file"
	if len(p) > maxPath {
		return fmt.Sprintf("the path has %d bytes, at most %d can be"+rename, len(p), maxPath)
	}
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git"):
			return "no file can have this name: a part of it is empty, a dot, two dots or .git"
		case len(part) > maxPart:
			return fmt.Sprintf("a part of the name has %d bytes, at most %d can be"+rename, len(part), maxPart)
		}
	}
	switch {
	case !utf8.ValidString(p):
		return "the name is not UTF-8" + rename
	case strings.ContainsFunc(p, unicode.IsControl):
		return "the name has control characters" + rename
	}
	return ""
}

// clipped is a name that may be of any length, for people.
func clipped(p string) string {
	const most = 200
	if len(p) > most {
		return p[:most] + "…"
	}
	return p
}

// folder says whether the tree has a folder p; "." and "" are the root.
func (ix *index) folder(p string) bool {
	if ix.folders == nil {
		ix.folders = map[string]bool{".": true, "": true}
		for _, f := range ix.sorted {
			for dir := path.Dir(f.Path); !ix.folders[dir]; dir = path.Dir(dir) {
				ix.folders[dir] = true
			}
		}
	}
	if ix.folders[p] {
		return true
	}
	for q, f := range ix.over {
		if f != nil && strings.HasPrefix(q, p+"/") {
			return true
		}
	}
	return false
}

// below lists the files in a folder and its folders, in order.
func (ix *index) below(dir string) []File {
	prefix := dir + "/"
	if dir == "." || dir == "" {
		return ix.sorted
	}
	from, _ := slices.BinarySearchFunc(ix.sorted, prefix, func(f File, p string) int { return strings.Compare(f.Path, p) })
	to := from
	for to < len(ix.sorted) && strings.HasPrefix(ix.sorted[to].Path, prefix) {
		to++
	}
	return ix.sorted[from:to]
}

// read gives the content of a regular file or the target of a link.
func (ix *index) read(p string) ([]byte, error) {
	if data, ok := ix.with[p]; ok {
		return data, nil
	}
	if data, ok := ix.kept.files[p]; ok {
		return data, nil
	}
	data, err := ix.tree.Read(p)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p, err)
	}
	if ix.kept.bytes+len(data) <= maxKept {
		ix.kept.files[p] = data
		ix.kept.bytes += len(data)
	}
	return data, nil
}

// fact is what the tree has at a path, as one word: it changes when the entry does.
func (ix *index) fact(p string) string {
	f, ok := ix.file(p)
	switch {
	case ok && f.Mode == Symlink:
		return "l" + f.Hash
	case ok && f.Mode == Submodule:
		return "s" + f.Hash
	case ok:
		return "f" + f.Hash
	case ix.folder(p):
		return "d"
	}
	return ""
}

// Why a path cannot be followed. The text continues "the symbolic link to X …".
var (
	errOutside = errors.New("leaves the repository: commit the file itself")
	errLoop    = errors.New("leads in a circle")
)

// kind is what a path leads to.
type kind int

const (
	nothing kind = iota
	file
	folder
	submodule // or a path into one
)

// resolve follows the links on a path and says what is there, and where it
// really stands ("." for the root). touch is told each entry that the answer
// depends on; it may be nil.
func (ix *index) resolve(p string, touch func(string)) (string, kind, error) {
	if touch == nil {
		touch = func(string) {}
	}
	if !ix.links { // the usual tree
		at := path.Join(".", p)
		if at == ".." || strings.HasPrefix(at, "../") {
			return "", nothing, errOutside
		}
		return ix.end(at, touch)
	}
	at, hops := ".", 0
	rest := strings.Split(p, "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return "", nothing, errOutside
			}
			at = path.Dir(at)
			continue
		}
		at = path.Join(at, part)
		f, ok := ix.file(at)
		switch {
		case ok && f.Mode == Symlink:
			touch(at)
			if hops++; hops > maxHops {
				return "", nothing, errLoop
			}
			target, err := ix.read(at)
			if err != nil {
				return "", nothing, err
			}
			if path.IsAbs(string(target)) || len(target) > 4096 {
				return "", nothing, errOutside
			}
			at = path.Dir(at)
			rest = append(strings.Split(string(target), "/"), rest...)
		case ok && f.Mode == Submodule:
			touch(at)
			return at, submodule, nil
		case ok && len(rest) > 0:
			touch(at)
			return at, nothing, nil
		}
	}
	return ix.end(at, touch)
}

// end says what a path without links leads to.
func (ix *index) end(at string, touch func(string)) (string, kind, error) {
	touch(at)
	switch _, ok := ix.file(at); {
	case ok:
		return at, file, nil
	case ix.folder(at):
		return at, folder, nil
	}
	for dir := path.Dir(at); dir != "."; dir = path.Dir(dir) {
		touch(dir) // were it a link, there might be something
	}
	return at, nothing, nil
}
