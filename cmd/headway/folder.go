package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"

	"headway.dev/headway/syncer/render"
)

// folder is a folder of this machine as a commit would hold it: without .git,
// links as links, a repository inside as a submodule. What .gitignore leaves out is
// in it. Nothing outside the folder is read, whatever its links say.
type folder struct {
	root  *os.Root
	files []render.File
}

// Bounds of what is read. A commit's file may be as large (syncer/git).
const (
	maxFileBytes = 16 << 20
	maxEntries   = 2 * render.MaxFiles // folders count, too
)

// openFolder lists a folder. close must follow.
func openFolder(dir string) (*folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &folder{root: root}
	left := maxEntries
	if err := f.list(".", &left); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return f, nil
}

// close ends reading; nothing was written that could be lost.
func (f *folder) close() { _ = f.root.Close() }

// list adds what is in a folder. Links to folders are not followed.
func (f *folder) list(dir string, left *int) error {
	open, err := f.root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := open.ReadDir(*left + 1)
	if err = errors.Join(ignoreEOF(err), open.Close()); err != nil {
		return err
	}
	if *left -= len(entries); *left < 0 {
		return fmt.Errorf("more than %d files and folders", maxEntries)
	}
	if dir != "." {
		for _, e := range entries {
			if e.Name() == ".git" {
				f.files = append(f.files, render.File{Path: dir, Mode: render.Submodule})
				return nil
			}
		}
	}
	for _, e := range entries {
		file := render.File{Path: path.Join(dir, e.Name())}
		switch {
		case e.Name() == ".git":
			continue
		case e.IsDir():
			if err := f.list(file.Path, left); err != nil {
				return err
			}
			continue
		case e.Type()&os.ModeSymlink != 0:
			file.Mode = render.Symlink
		case !e.Type().IsRegular():
			continue // a socket, a device: git does not hold it
		default:
			info, err := e.Info()
			if err != nil {
				return err
			}
			file.Size = info.Size()
		}
		f.files = append(f.files, file)
	}
	return nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Files implements render.Tree.
func (f *folder) Files() iter.Seq2[render.File, error] {
	return func(yield func(render.File, error) bool) {
		for _, file := range f.files {
			if !yield(file, nil) {
				return
			}
		}
	}
}

// Read implements render.Tree.
func (f *folder) Read(name string) ([]byte, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := f.root.Readlink(name)
		return []byte(target), err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", name)
	}
	open, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer open.Close()
	data, err := io.ReadAll(io.LimitReader(open, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxFileBytes)
	}
	return data, err
}
