package render

import (
	"errors"
	"fmt"
	"io/fs"
)

// Files gives the files of a tree by path, and what kustomize makes of its folders.
type Files struct{ index *index }

// NewFiles reads the entries of a tree, which must be one that Render accepts.
func NewFiles(tree Tree) (*Files, error) {
	ix, problems, err := readIndex(tree)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, errors.New(problems[0].String())
	}
	return &Files{index: ix}, nil
}

// Read gives the content of a file, symbolic links inside the tree followed. The
// error is fs.ErrNotExist when there is none.
func (f *Files) Read(p string) ([]byte, error) {
	at, what, err := f.index.resolve(p, nil)
	switch {
	case err != nil && err != errOutside && err != errLoop:
		return nil, err
	case err != nil || what != file:
		return nil, fmt.Errorf("%s: %w", p, fs.ErrNotExist)
	}
	return f.index.read(at)
}

// Build gives what `kustomize build` prints for a folder, with some files of the
// tree replaced or added. The bounds of Render hold. When nothing can be built, why
// says so in words that repeat no Secret's value (R14); an error means that the
// tree could not be read.
func (f *Files) Build(dir string, with map[string][]byte) (out []byte, why string, err error) {
	u := newRenderer(f.index.changed(with), Options{}).newUnit(dir)
	_, built, err := u.build()
	switch {
	case err != nil:
		return nil, "", err
	case len(u.problems.list) > 0:
		return nil, u.problems.list[0].String(), nil
	case built == nil:
		return nil, "there is no kustomization that can be read in " + dir, nil
	}
	if out, err = built.AsYaml(); err != nil {
		return nil, "what kustomize makes of " + dir + " cannot be written as YAML", nil // the error may quote it
	}
	return out, "", nil
}
