package syncer

import (
	"archive/tar"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/render"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of a Folder, which somebody sends.
const (
	MaxFolderFiles = 100_000
	MaxFolderBytes = 64 << 20 // of all contents
	maxPathBytes   = 4096
	maxPathDepth   = 64
)

// Folder is a tree of files that is in no repository: a work tree under judgement.
// Make it with NewFolder or ReadFolder.
type Folder struct {
	files map[string]folderFile
	bytes int
}

type folderFile struct {
	render.File
	data []byte
	left bool // the content is left out
}

// NewFolder is an empty one.
func NewFolder() *Folder { return &Folder{files: map[string]folderFile{}} }

// Add puts a file into the folder: its content, or where a symbolic link points
// to. size is that of a regular file whose content is left out since it is larger
// than api.MaxFileBytes; 0 for all others.
func (f *Folder) Add(path string, mode render.Mode, data []byte, size int64) error {
	if err := checkFolderPath(path); err != nil {
		return err
	}
	if _, twice := f.files[path]; twice {
		return fmt.Errorf("file %.200q stands in it twice", path)
	}
	if len(f.files) == MaxFolderFiles {
		return fmt.Errorf("more than %d files: leave out what is no manifest", MaxFolderFiles)
	}
	if f.bytes += len(data); f.bytes > MaxFolderBytes {
		return fmt.Errorf("more than %d bytes: leave out what is no manifest", MaxFolderBytes)
	}
	if size < 0 || size > 0 && (mode != render.Regular || len(data) > 0) {
		return fmt.Errorf("file %.200q: a size of %d does not fit it", path, size)
	}
	file := folderFile{File: render.File{Path: path, Mode: mode, Hash: blobHash(data), Size: int64(len(data))}, data: data}
	if size > 0 {
		file.left, file.Size, file.Hash = true, size, fmt.Sprintf("left-out-%d", size)
	}
	f.files[path] = file
	return nil
}

// checkFolderPath admits what a git tree may hold.
func checkFolderPath(path string) error {
	bad := path == "" || len(path) > maxPathBytes || strings.ContainsAny(path, "\n\x00") || strings.Count(path, "/") > maxPathDepth
	for part := range strings.SplitSeq(path, "/") {
		bad = bad || part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git")
	}
	if bad {
		return fmt.Errorf("file %.200q: no file of a repository can have this name", path)
	}
	return nil
}

// blobHash is git's hash of a file, so that what a repository has rendered is not
// rendered again.
func blobHash(data []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(data))
	h.Write(data) // never fails
	return hex.EncodeToString(h.Sum(nil))
}

// The form in which a folder is sent is a tar stream: regular files, symbolic
// links, and folders, which stand for submodules. paxSize is the size of a file
// whose content is left out.
const paxSize = "HEADWAY.size"

// Send writes the folder as a tar stream, sorted by path.
func (f *Folder) Send(w io.Writer) error {
	out := tar.NewWriter(w)
	for _, path := range slices.Sorted(maps.Keys(f.files)) {
		file := f.files[path]
		h := &tar.Header{Name: path, Mode: 0o644, Format: tar.FormatPAX}
		switch {
		case file.Mode == render.Symlink:
			h.Typeflag, h.Linkname = tar.TypeSymlink, string(file.data)
		case file.Mode == render.Submodule:
			h.Typeflag, h.Name = tar.TypeDir, path+"/"
		case file.left:
			h.Typeflag, h.PAXRecords = tar.TypeReg, map[string]string{paxSize: strconv.FormatInt(file.Size, 10)}
		default:
			h.Typeflag, h.Size = tar.TypeReg, file.Size
		}
		if err := out.WriteHeader(h); err != nil {
			return fmt.Errorf("send %.200q: %w", path, err)
		}
		if h.Size > 0 {
			if _, err := out.Write(file.data); err != nil {
				return fmt.Errorf("send %.200q: %w", path, err)
			}
		}
	}
	return out.Close()
}

// ReadFolder reads what Send wrote. It keeps to the bounds, whatever comes.
func ReadFolder(r io.Reader) (*Folder, error) {
	f := NewFolder()
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the folder: %w", err)
		}
		if err := f.receive(h, in); err != nil {
			return nil, fmt.Errorf("read the folder: %w", err)
		}
	}
}

func (f *Folder) receive(h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeSymlink:
		return f.Add(h.Name, render.Symlink, []byte(h.Linkname), 0)
	case tar.TypeDir:
		return f.Add(strings.TrimSuffix(h.Name, "/"), render.Submodule, nil, 0)
	case tar.TypeReg:
	default:
		return fmt.Errorf("entry %.200q has the type %q, which is not taken", h.Name, h.Typeflag)
	}
	var size int64
	if text, set := h.PAXRecords[paxSize]; set {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return fmt.Errorf("file %.200q: its size %.30q is no number", h.Name, text)
		}
		size = n
	}
	left := int64(MaxFolderBytes - f.bytes)
	data, err := io.ReadAll(io.LimitReader(content, left+1))
	if err != nil {
		return fmt.Errorf("file %.200q: %w", h.Name, err)
	}
	return f.Add(h.Name, render.Regular, data, size)
}

// Files implements render.Tree.
func (f *Folder) Files() iter.Seq2[render.File, error] {
	return func(yield func(render.File, error) bool) {
		for _, path := range slices.Sorted(maps.Keys(f.files)) {
			if !yield(f.files[path].File, nil) {
				return
			}
		}
	}
}

// Read implements render.Tree.
func (f *Folder) Read(path string) ([]byte, error) {
	file, ok := f.files[path]
	switch {
	case !ok:
		return nil, fmt.Errorf("file %s is not there", path)
	case file.left:
		return nil, fmt.Errorf("file %s has %d bytes, too many to be sent: leave it out, or judge a commit", path, file.Size)
	}
	return file.data, nil
}

// name stands for a commit's: it names the whole content.
func (f *Folder) name() string {
	h := sha1.New()
	for _, path := range slices.Sorted(maps.Keys(f.files)) {
		file := f.files[path]
		fmt.Fprintf(h, "%d %s %d %s\x00", file.Mode, file.Hash, file.Size, file.Path)
	}
	return folderName + hex.EncodeToString(h.Sum(nil))
}

const folderName = "folder-" // no commit's name begins so

// called is how messages name what is judged.
func called(commit string) string {
	if strings.HasPrefix(commit, folderName) {
		return "this folder"
	}
	return "commit " + short(commit)
}

// Trial is a folder to be judged as if it were the next commit.
type Trial struct {
	Folder *Folder
	// Head is the commit that the folder was made from, if it is known, and Trailers
	// are those of its message. They count unless Head is applied already.
	Head     string
	Trailers []Trailer
	Cache    *render.Cache
}

// JudgeFolder is Judge for a folder.
func (s *Syncer) JudgeFolder(ctx context.Context, t Trial) (*Verdict, error) {
	src := s.source()
	if src == nil {
		src = &api.Source{ObjectMeta: metav1.ObjectMeta{Name: s.cfg.Source}, Spec: s.cfg.Spec}
	}
	trial := &trial{Commits: s.cfg.Commits, name: t.Folder.name(), t: t}
	if applied := src.Status.Applied; applied != "" && t.Head != "" {
		known, err := s.cfg.Commits.IsAncestor(ctx, t.Head, applied)
		if err != nil {
			return nil, fmt.Errorf("compare commit %s with the applied commit %s: %w", short(t.Head), short(applied), err)
		}
		if known {
			trial.t.Trailers = nil
		}
	}
	v, err := s.judge(ctx, src, trial.name, trial)
	if err != nil {
		return nil, err
	}
	s.room(v)
	return v, nil
}

// trial is a repository with a folder as one more commit.
type trial struct {
	Commits
	name string
	t    Trial
}

// Author implements Commits.
func (c *trial) Author(ctx context.Context, commit string) (string, error) {
	if commit == c.name {
		return "", nil
	}
	return c.Commits.Author(ctx, commit)
}

// IsAncestor implements Commits: what comes next is a descendant.
func (c *trial) IsAncestor(ctx context.Context, ancestor, commit string) (bool, error) {
	if commit == c.name {
		return true, nil
	}
	return c.Commits.IsAncestor(ctx, ancestor, commit)
}

// Origins implements Commits: the folder changed whatever changed.
func (c *trial) Origins(ctx context.Context, from, to string) (map[string]Origin, error) {
	if to == c.name {
		return nil, nil
	}
	return c.Commits.Origins(ctx, from, to)
}

// Trailers implements Commits.
func (c *trial) Trailers(ctx context.Context, from, to string) ([]Trailer, error) {
	if to == c.name {
		return c.t.Trailers, nil
	}
	return c.Commits.Trailers(ctx, from, to)
}

// Render implements Commits.
func (c *trial) Render(ctx context.Context, commit, path string) (Rendered, error) {
	if commit == c.name {
		return renderTree(c.t.Folder, path, c.t.Cache)
	}
	return c.Commits.Render(ctx, commit, path)
}

// Unsigned implements Commits: a folder is signed when it is committed.
func (c *trial) Unsigned(ctx context.Context, from, root, to string, now time.Time) ([]git.Unsigned, error) {
	if to == c.name {
		return nil, nil
	}
	return c.Commits.Unsigned(ctx, from, root, to, now)
}

// Keep implements Commits.
func (c *trial) Keep(context.Context, []string) error {
	return errors.New("a folder under judgement keeps no commits")
}
