package git

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Edit is one file that is to differ from a base tree. A file that is there keeps
// its mode; a new one is an ordinary file.
type Edit struct {
	Path    string // from the root, with slashes
	Content []byte
	Delete  bool // the file goes; folders that become empty go with it
}

// Bounds of one graft.
const (
	maxEdits     = 20_000
	maxEditBytes = 64 << 20 // of all contents together
	maxPath      = 4096
)

// graft returns the tree that base becomes by the edits, and adds the objects
// that it needs to into. It reads and writes the folders on the way to the edited
// files only; every other entry stays byte for byte what it was. The empty hash
// is the empty tree, as a base and as an answer.
func (o *Objects) graft(ctx context.Context, base string, edits []Edit, into *additions) (string, error) {
	if len(edits) > maxEdits {
		return "", fmt.Errorf("%d files are edited at once, at most %d can be", len(edits), maxEdits)
	}
	sorted := slices.Clone(edits)
	slices.SortFunc(sorted, func(a, b Edit) int { return strings.Compare(a.Path, b.Path) })
	total, written := 0, map[string]bool{}
	for i, e := range sorted {
		if err := checkPath(e.Path); err != nil {
			return "", err
		}
		for dir := e.Path; ; {
			slash := strings.LastIndexByte(dir, '/')
			if slash < 0 {
				break
			}
			if dir = dir[:slash]; written[dir] {
				return "", fmt.Errorf("file %s: %s is written as a file too", e.Path, dir)
			}
		}
		written[e.Path] = !e.Delete
		if i > 0 && sorted[i-1].Path == e.Path {
			return "", fmt.Errorf("file %s is edited twice", e.Path)
		}
		if len(e.Content) > maxBlob {
			return "", fmt.Errorf("file %s: %d bytes is too large, at most %d are written", e.Path, len(e.Content), maxBlob)
		}
		if total += len(e.Content); total > maxEditBytes {
			return "", fmt.Errorf("more than %d bytes are edited at once", maxEditBytes)
		}
	}
	return o.graftFolder(ctx, base, "", sorted, into)
}

// graftFolder does the edits below the folder dir ("" or with a slash at its end).
func (o *Objects) graftFolder(ctx context.Context, hash, dir string, edits []Edit, into *additions) (string, error) {
	folder, err := o.folder(ctx, hash, into)
	if err != nil {
		return "", fmt.Errorf("folder %s: %w", strings.TrimSuffix(dir, "/"), err)
	}
	find := folder.index(len(edits))
	changed := false
	for len(edits) > 0 {
		name, _, below := strings.Cut(edits[0].Path[len(dir):], "/")
		n := 1
		if below {
			prefix := dir + name + "/"
			for n < len(edits) && strings.HasPrefix(edits[n].Path, prefix) {
				n++
			}
		}
		i := find(name)
		var old, now rawEntry
		if i >= 0 {
			old = folder[i]
		}
		if below {
			now, err = o.graftBelow(ctx, old, dir+name, edits[:n], into)
		} else {
			now, err = graftFile(old, edits[0], into)
		}
		if err != nil {
			return "", err
		}
		now.name = name
		if i < 0 {
			folder = append(folder, now)
		} else {
			changed = changed || folder[i] != now
			folder[i] = now
		}
		changed = changed || i < 0
		edits = edits[n:]
	}
	folder = slices.DeleteFunc(folder, func(e rawEntry) bool { return e.hash == "" })
	switch {
	case !changed:
		return hash, nil
	case len(folder) == 0:
		return "", nil
	}
	return into.addTree(folder), nil
}

func (o *Objects) graftBelow(ctx context.Context, old rawEntry, dir string, edits []Edit, into *additions) (rawEntry, error) {
	if old.hash != "" && old.mode != rawDir {
		return old, fmt.Errorf("file %s: %s is no folder but a %s", edits[0].Path, dir, old.kind())
	}
	hash, err := o.graftFolder(ctx, old.hash, dir+"/", edits, into)
	return rawEntry{mode: rawDir, hash: hash}, err
}

func graftFile(old rawEntry, e Edit, into *additions) (rawEntry, error) {
	if old.hash != "" && old.kind() != "file" {
		return old, fmt.Errorf("file %s: it is a %s, which is not edited", e.Path, old.kind())
	}
	if e.Delete {
		if old.hash == "" {
			return old, fmt.Errorf("file %s: it is to be deleted: %w", e.Path, ErrNotFound)
		}
		return rawEntry{}, nil
	}
	now := old
	if old.hash == "" {
		now.mode = rawFile
	}
	now.hash = hashOf("blob", e.Content)
	if now.hash != old.hash {
		into.add("blob", e.Content)
	}
	return now, nil
}

// checkPath lets only paths pass that git itself would check out.
func checkPath(path string) error {
	bad := path == "" || len(path) > maxPath || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f })
	if strings.Count(path, "/") > maxDepth {
		bad = true
	}
	for part := range strings.SplitSeq(path, "/") {
		bad = bad || part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git")
	}
	if bad {
		return fmt.Errorf("path %.200q: not the path of a file in a repository", path)
	}
	return nil
}

// rawEntry is one line of a tree object as it stands there.
type rawEntry struct{ mode, name, hash string }

// Modes as they stand in trees.
const (
	rawDir  = "40000"
	rawFile = "100644"
)

// kind is git's type of the entry in words.
func (e rawEntry) kind() string {
	switch {
	case e.mode == rawDir:
		return "folder"
	case e.mode == "120000":
		return "symbolic link"
	case e.mode == "160000":
		return "submodule"
	}
	return "file"
}

type rawTree []rawEntry

// splitTree reads "<mode> <name>\0<20 bytes of hash>" repeated.
func splitTree(raw []byte) (rawTree, error) {
	var entries rawTree
	for len(raw) > 0 {
		mode, rest, ok := bytes.Cut(raw, []byte{' '})
		if !ok || len(mode) > 6 {
			return nil, fmt.Errorf("damaged entry %d", len(entries))
		}
		name, rest, ok := bytes.Cut(rest, []byte{0})
		if !ok || len(rest) < 20 {
			return nil, fmt.Errorf("damaged entry %d", len(entries))
		}
		entries = append(entries, rawEntry{mode: string(mode), name: string(name), hash: hex.EncodeToString(rest[:20])})
		raw = rest[20:]
	}
	return entries, nil
}

// find returns the index of the entry of that name, or -1.
func (t rawTree) find(name string) int {
	return slices.IndexFunc(t, func(e rawEntry) bool { return e.name == name })
}

// index returns a function that finds an entry by its name, or -1. lookups says
// how often it will be asked.
func (t rawTree) index(lookups int) func(name string) int {
	if lookups < 8 {
		return t.find
	}
	at := make(map[string]int, len(t))
	for i, e := range t {
		at[e.name] = i
	}
	return func(name string) int {
		if i, ok := at[name]; ok {
			return i
		}
		return -1
	}
}

// encode returns the tree object, in git's order: by name, where a folder's name
// counts as if it ended in a slash.
func (t rawTree) encode() []byte {
	key := func(e rawEntry) string {
		if e.mode == rawDir {
			return e.name + "/"
		}
		return e.name
	}
	slices.SortFunc(t, func(a, b rawEntry) int { return strings.Compare(key(a), key(b)) })
	var out bytes.Buffer
	for _, e := range t {
		sum, _ := hex.DecodeString(e.hash) // of splitTree, or of hashOf
		out.WriteString(e.mode + " " + e.name + "\x00")
		out.Write(sum)
	}
	return out.Bytes()
}

// folder reads one tree object, from new ones too. The empty hash is the empty tree.
func (o *Objects) folder(ctx context.Context, hash string, new *additions) (rawTree, error) {
	if t, ok := new.trees[hash]; ok || hash == "" {
		return slices.Clone(t), nil
	}
	var folder rawTree
	err := o.contents(ctx, []string{hash}, func(_ int, h header, body io.Reader) error {
		if h.kind != "tree" {
			return fmt.Errorf("tree %s: %w", hash, ErrNotFound)
		}
		if h.size > maxTree {
			return fmt.Errorf("tree %s: %d bytes is too large, at most %d are read", hash, h.size, maxTree)
		}
		raw, err := io.ReadAll(body)
		if err == nil {
			folder, err = splitTree(raw)
		}
		if err != nil {
			return fmt.Errorf("tree %s: %w", hash, err)
		}
		for i := range folder { // old tools wrote 040000, which git's checks refuse
			folder[i].mode = strings.TrimLeft(folder[i].mode, "0")
		}
		return nil
	})
	return folder, err
}
