package render

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"headway.dev/headway/api"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// mount is where kustomize finds the tree. It is not the root, so that a path
// with too many ".." finds nothing.
const mount = "/tree"

// filesystem shows kustomize the tree, read-only, straight from git. It notes
// every path that was asked for: what the result depends on.
type filesystem struct {
	index *index
	touch func(string)
	// served stands for the content of some files.
	served map[string][]byte
	// failed is the first error of the tree itself: no verdict about the commit.
	failed error
}

var _ filesys.FileSystem = (*filesystem)(nil)

var errReadOnly = errors.New("a commit cannot be written to")

// at finds what stands at a path of kustomize's.
func (f *filesystem) at(p string) (string, kind) {
	p = path.Clean(p)
	inside, ok := strings.CutPrefix(p, mount)
	if !ok || inside != "" && inside[0] != '/' {
		return "", nothing
	}
	real, k, err := f.index.resolve(inside, f.touch)
	if err != nil {
		if !errors.Is(err, errOutside) && !errors.Is(err, errLoop) && f.failed == nil {
			f.failed = err
		}
		return "", nothing
	}
	return real, k
}

func outer(real string) string {
	if real == "." {
		return mount
	}
	return mount + "/" + real
}

// CleanedAbs implements filesys.FileSystem.
func (f *filesystem) CleanedAbs(p string) (filesys.ConfirmedDir, string, error) {
	real, k := f.at(p)
	switch k {
	case folder:
		return filesys.ConfirmedDir(outer(real)), "", nil
	case file:
		return filesys.ConfirmedDir(outer(path.Dir(real))), path.Base(real), nil
	}
	return "", "", fmt.Errorf("%q: %w", p, fs.ErrNotExist)
}

// ReadFile implements filesys.FileSystem.
func (f *filesystem) ReadFile(p string) ([]byte, error) {
	real, k := f.at(p)
	if k != file {
		return nil, fmt.Errorf("%q: %w", p, fs.ErrNotExist)
	}
	if data, ok := f.served[real]; ok {
		return bytes.Clone(data), nil
	}
	if at, _ := f.index.file(real); at.Size > api.MaxFileBytes {
		return nil, errors.New(tooLarge(real, int(at.Size)).String())
	}
	data, err := f.index.read(real)
	if err != nil {
		if f.failed == nil {
			f.failed = err
		}
		return nil, err
	}
	if why := foreign(data); why != "" {
		return nil, fmt.Errorf("%s: %s", real, why)
	}
	return bytes.Clone(data), nil // kustomize may do with it as it likes
}

// Exists implements filesys.FileSystem.
func (f *filesystem) Exists(p string) bool {
	_, k := f.at(p)
	return k == file || k == folder
}

// IsDir implements filesys.FileSystem.
func (f *filesystem) IsDir(p string) bool {
	_, k := f.at(p)
	return k == folder
}

// What follows would change the tree, or would make a result depend on what a
// folder holds; a build does neither.

func (f *filesystem) Create(string) (filesys.File, error)  { return nil, errReadOnly }
func (f *filesystem) Mkdir(string) error                   { return errReadOnly }
func (f *filesystem) MkdirAll(string) error                { return errReadOnly }
func (f *filesystem) RemoveAll(string) error               { return errReadOnly }
func (f *filesystem) WriteFile(string, []byte) error       { return errReadOnly }
func (f *filesystem) Open(string) (filesys.File, error)    { return nil, errors.ErrUnsupported }
func (f *filesystem) ReadDir(string) ([]string, error)     { return nil, errors.ErrUnsupported }
func (f *filesystem) Glob(string) ([]string, error)        { return nil, errors.ErrUnsupported }
func (f *filesystem) Walk(string, filepath.WalkFunc) error { return errors.ErrUnsupported }
