package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Bounds of what a tree may hold, for a repository is made by outsiders.
const (
	maxFiles  = 100_000 // and folders
	maxDepth  = 64
	maxTree   = 32 << 20 // bytes of one tree object
	maxBlob   = 16 << 20 // bytes of one file that is read
	maxCached = 50_000   // entries of trees that are remembered
	maxPaths  = 64 << 20 // bytes of all paths of one list
)

// ErrTooLarge says that a commit's tree is beyond these bounds. It is a fact about
// the commit: reading it again gives the same.
var ErrTooLarge = errors.New("the tree is too large")

// ErrDamaged says that a commit's tree is none that git writes. It is a fact about
// the commit, too.
var ErrDamaged = errors.New("the tree is damaged")

// Mode is git's mode of a file.
type Mode uint32

// The modes that git knows. A symlink's content is its target; a submodule has
// no content, its Hash names a commit of another repository.
const (
	ModeDir        Mode = 0o40000
	ModeFile       Mode = 0o100644
	ModeExecutable Mode = 0o100755
	ModeSymlink    Mode = 0o120000
	ModeSubmodule  Mode = 0o160000
)

func (m Mode) String() string { return fmt.Sprintf("%06o", uint32(m)) }

// File is one file of a tree.
type File struct {
	Path string // inside the Tree, with slashes
	Mode Mode
	Hash string // of the content
	Size int64  // of the content; 0 for a submodule
}

// Tree is a folder at a commit. It remembers the list of its files and, while
// they are read one after the other, the next few.
type Tree struct {
	Hash string // names the whole content; equal hashes are equal folders

	objects *Objects
	mu      sync.Mutex
	files   []File         // nil until listed
	ahead   map[int][]byte // contents read before they were asked for, by index in files
	last    int            // index of the file that was read last
	window  int            // how many were read at once
}

// Tree returns the folder dir ("" is the root) at a commit. The error is
// ErrNotFound when the commit or the folder is not there.
func (o *Objects) Tree(ctx context.Context, commit, dir string) (*Tree, error) {
	c, err := o.Commit(ctx, commit)
	if err != nil {
		return nil, err
	}
	clean := path.Clean("/" + dir)[1:]
	e, err := o.entry(ctx, c.Tree, clean)
	if err != nil {
		return nil, fmt.Errorf("folder %s at commit %s: %w", clean, commit, err)
	}
	if e.mode != ModeDir {
		return nil, fmt.Errorf("%s at commit %s is a file, a folder is needed: %w", clean, commit, ErrNotFound)
	}
	return &Tree{Hash: e.hash, objects: o}, nil
}

// entry finds what stands at a path of a tree; "" is the tree itself.
func (o *Objects) entry(ctx context.Context, tree, name string) (entry, error) {
	at := entry{mode: ModeDir, hash: tree}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" {
			continue
		}
		if at.mode != ModeDir {
			return entry{}, ErrNotFound
		}
		trees, err := o.trees(ctx, []string{at.hash})
		if err != nil {
			return entry{}, err
		}
		i := slices.IndexFunc(trees[at.hash], func(e entry) bool { return e.name == part })
		if i < 0 {
			return entry{}, ErrNotFound
		}
		at = trees[at.hash][i]
	}
	return at, nil
}

// Files lists every file below the tree, sorted by path. The caller must not
// change the slice.
func (t *Tree) Files(ctx context.Context) ([]File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list(ctx)
}

func (t *Tree) list(ctx context.Context) ([]File, error) {
	if t.files != nil {
		return t.files, nil
	}
	files := []File{}
	err := t.objects.walk(ctx, []pair{{new: t.Hash}}, maxFiles, func(c Change) error {
		files = append(files, c.New)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	t.files = files
	return files, nil
}

// Bounds of reading ahead: a round trip costs as much as reading many files.
const (
	maxAhead      = 256
	maxAheadBytes = 1 << 20
	maxSkipped    = 16 // files between two reads that still count as one after the other
)

// Read returns the content of one file. After Files, reading in its order is as
// fast as ReadAll; before, nothing but the way to the file is looked at.
func (t *Tree) Read(ctx context.Context, name string) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files == nil {
		return t.one(ctx, name)
	}
	i, ok := slices.BinarySearchFunc(t.files, name, func(f File, name string) int { return strings.Compare(f.Path, name) })
	if !ok {
		return nil, fmt.Errorf("file %s: %w", name, ErrNotFound)
	}
	if data, ok := t.ahead[i]; ok {
		delete(t.ahead, i)
		t.last = i
		return data, nil
	}
	if t.window = 2 * t.window; t.window == 0 || i <= t.last || i > t.last+maxSkipped {
		t.window = 1
	}
	t.window = min(t.window, maxAhead)
	t.last = i
	t.ahead = make(map[int][]byte, t.window)
	next := i
	err := t.ReadAll(ctx, t.batch(i), func(_ File, content []byte) error {
		t.ahead[next] = content
		next++
		return nil
	})
	if _, ok := t.ahead[i]; !ok && err != nil {
		t.window = 0
		return nil, err
	}
	// An error of a later file is that file's, when it is asked for.
	data := t.ahead[i]
	delete(t.ahead, i)
	return data, nil
}

// one reads a file of a tree that is not listed.
func (t *Tree) one(ctx context.Context, name string) (data []byte, err error) {
	e, err := t.objects.entry(ctx, t.Hash, name)
	if err == nil && e.mode == ModeDir {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", name, err)
	}
	f := File{Path: name, Mode: e.mode, Hash: e.hash, Size: e.size}
	err = t.ReadAll(ctx, []File{f}, func(_ File, content []byte) error {
		data = content
		return nil
	})
	return data, err
}

// batch returns the files from index i on that are read at once.
func (t *Tree) batch(i int) []File {
	end, bytes := i+1, t.files[i].Size
	for end < min(i+t.window, len(t.files)) {
		f := t.files[end]
		if bytes += f.Size; bytes > maxAheadBytes || f.Mode == ModeSubmodule {
			break
		}
		end++
	}
	return t.files[i:end]
}

// ReadAll gives the content of each of the files to each, in their order, with
// one round trip for all of them.
func (t *Tree) ReadAll(ctx context.Context, files []File, each func(File, []byte) error) error {
	names := make([]string, len(files))
	for i, f := range files {
		if f.Mode == ModeSubmodule {
			return fmt.Errorf("file %s: it is a submodule; those are not fetched", f.Path)
		}
		if f.Size > maxBlob {
			return fmt.Errorf("file %s: %d bytes is too large, at most %d are read", f.Path, f.Size, maxBlob)
		}
		names[i] = f.Hash
	}
	return t.objects.contents(ctx, names, func(i int, h header, body io.Reader) error {
		f := files[i]
		if h.kind != "blob" || h.size > maxBlob {
			return fmt.Errorf("file %s: object %s is missing or no file: %w", f.Path, f.Hash, ErrNotFound)
		}
		data := make([]byte, h.size)
		if _, err := io.ReadFull(body, data); err != nil {
			return fmt.Errorf("file %s: %w", f.Path, err)
		}
		return each(f, data)
	})
}

// entry is one line of a tree object.
type entry struct {
	name, hash string
	mode       Mode
	size       int64
}

// trees reads tree objects, with the sizes of their files; those in the cache
// are not read again. The empty hash is the empty tree.
func (o *Objects) trees(ctx context.Context, hashes []string) (map[string][]entry, error) {
	into := map[string][]entry{"": nil}
	var missing []string
	for _, h := range hashes {
		if _, ok := into[h]; ok {
			continue
		}
		if e, ok := o.cache.get(h); ok {
			into[h] = e
		} else {
			missing = append(missing, h)
		}
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	read := make([][]entry, len(missing))
	err := o.contents(ctx, missing, func(i int, h header, body io.Reader) error {
		if h.kind != "tree" {
			return fmt.Errorf("tree %s: %w", missing[i], ErrNotFound)
		}
		if h.size > maxTree {
			return fmt.Errorf("%w: folder %s has %d bytes of names, at most %d are read", ErrTooLarge, missing[i], h.size, maxTree)
		}
		raw, err := io.ReadAll(body)
		if err != nil {
			return fmt.Errorf("tree %s: %w", missing[i], err)
		}
		if read[i], err = parseTree(raw); err != nil {
			return fmt.Errorf("%w: folder %s: %w", ErrDamaged, missing[i], err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var blobs []string
	var sizes []*int64
	for _, entries := range read {
		for i, e := range entries {
			if e.mode != ModeDir && e.mode != ModeSubmodule {
				blobs, sizes = append(blobs, e.hash), append(sizes, &entries[i].size)
			}
		}
	}
	err = o.info(ctx, blobs, func(i int, h header) error {
		if h.kind != "blob" {
			return fmt.Errorf("object %s: %w", blobs[i], ErrNotFound)
		}
		*sizes[i] = h.size
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, h := range missing {
		into[h] = read[i]
		o.cache.put(h, read[i])
	}
	return into, nil
}

// parseTree reads a tree object. Whether a file can have the name that it has is for
// those who use the file to judge: history holds everything.
func parseTree(raw []byte) ([]entry, error) {
	lines, err := splitTree(raw)
	if err != nil {
		return nil, err
	}
	entries := make([]entry, len(lines))
	for i, l := range lines {
		bits, err := strconv.ParseUint(l.mode, 8, 32)
		if err != nil {
			return nil, fmt.Errorf("damaged mode of entry %d: %w", i, err)
		}
		if strings.Contains(l.name, "/") { // it would stand for another file
			return nil, fmt.Errorf("entry %d has the name %.200q", i, l.name)
		}
		e := entry{name: l.name, hash: l.hash}
		switch bits & 0o170000 {
		case 0o40000:
			e.mode = ModeDir
		case 0o120000:
			e.mode = ModeSymlink
		case 0o160000:
			e.mode = ModeSubmodule
		case 0o100000: // old tools wrote 100664 too
			e.mode = ModeFile
			if bits&0o100 != 0 {
				e.mode = ModeExecutable
			}
		default:
			return nil, fmt.Errorf("entry %d, %.200q, has the mode %o", i, l.name, bits)
		}
		entries[i] = e
	}
	return entries, nil
}

// treeCache remembers tree objects, which never change under their hash. It
// holds two generations and forgets the older one when the newer is full.
type treeCache struct {
	mu       sync.Mutex
	new, old map[string][]entry
	count    int // entries in new
}

func newTreeCache() *treeCache { return &treeCache{new: map[string][]entry{}} }

func (c *treeCache) get(hash string) ([]entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.new[hash]; ok {
		return e, true
	}
	e, ok := c.old[hash]
	if ok {
		c.add(hash, e)
	}
	return e, ok
}

func (c *treeCache) put(hash string, e []entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(hash, e)
}

func (c *treeCache) add(hash string, e []entry) {
	if c.count > maxCached/2 {
		c.new, c.old, c.count = map[string][]entry{}, c.new, 0
	}
	c.new[hash] = e
	c.count += len(e) + 1
}
