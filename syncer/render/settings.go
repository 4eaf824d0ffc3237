package render

import (
	"cmp"
	"path"

	"headway.dev/headway/api"
)

// Options says what part of the tree to render, and how.
type Options struct {
	Path             string // folder in the tree; "" for all of it
	DefaultNamespace string // of namespaced objects that name none; "" means "default"
	// Ignore leaves files out, in gitignore's syntax, relative to Path. A file that
	// is left out is no manifest and no kustomization to start from; one that is
	// not may still use it.
	Ignore []string
	Paths  []api.PathConfig // for parts of Path; the longest that fits decides
	Cache  *Cache           // may be nil
	// AllowStored names the kinds that may be declared although nothing acts on them,
	// as api.Config has it.
	AllowStored []string
}

// settings answer for each file of the source. Paths are relative to the source's.
type settings struct {
	namespaces map[string]string // by folder or file; "" is the source's own
	ignore     ignore
}

func newSettings(o Options) settings {
	s := settings{namespaces: map[string]string{"": cmp.Or(o.DefaultNamespace, "default")}, ignore: ignore{patterns: map[string][]pattern{}, folders: map[string]bool{}}}
	s.ignore.add("", o.Ignore)
	for _, p := range o.Paths {
		at := path.Clean("/" + p.Path)[1:]
		if p.DefaultNamespace != "" {
			s.namespaces[at] = p.DefaultNamespace
		}
		s.ignore.add(at, p.Ignore)
	}
	return s
}

func (s *settings) defaultNamespace(p string) string {
	if p == "." {
		p = ""
	}
	for ; ; p = parent(p) {
		if namespace, ok := s.namespaces[p]; ok {
			return namespace
		}
	}
}

func (s *settings) ignored(p string) bool { return s.ignore.left(p) }
