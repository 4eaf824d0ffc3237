package render

import (
	"path"
	"strings"

	"headway.dev/headway/api"
)

// Source renders the source whose root is the folder root of the tree, as the
// configuration that stands there wants it (api.ConfigFile). A mistake in what says
// how manifests are read is told alone: what they would say without it is no
// mistake of theirs.
func Source(tree Tree, root string, cache *Cache) (Result, api.Config, []api.Problem, error) {
	root = path.Clean("/" + root)[1:]
	l, err := look(tree, cache)
	if err != nil {
		return Result{}, api.DefaultConfig(), nil, err
	}
	if l.index == nil {
		return Result{}, api.DefaultConfig(), l.problems, nil
	}
	config, problems, err := readConfig(l, root)
	if err != nil {
		return Result{}, config, nil, err
	}
	for _, p := range problems {
		if p.Path == path.Join(root, api.ConfigFile) && shapes(p.Field) {
			return Result{}, config, problems, nil
		}
	}
	opts := Options{Path: root, DefaultNamespace: config.DefaultNamespace, Ignore: config.Ignore, Paths: config.Paths, Cache: cache, AllowStored: config.AllowStored}
	result, more, err := l.render(opts)
	return result, config, append(problems, more...), err
}

// shapes says whether a mistake in a field of the configuration may be one about
// how manifests are read. A name that is unknown may be meant as one that does.
func shapes(field string) bool {
	name, _, _ := strings.Cut(field, ".")
	name, _, _ = strings.Cut(name, "[")
	switch name {
	case "drift", "deletionLimit", "allowedSigners", "pollInterval", "sources":
		return false
	}
	return true
}

// readConfig reads the configuration of the source whose root is the folder root,
// and finds what is meant as one and is not read.
func readConfig(l *listing, root string) (api.Config, []api.Problem, error) {
	config := api.DefaultConfig()
	name := path.Join(root, api.ConfigFile)
	problems := l.misplaced(root)
	data, reason, err := l.config(name)
	switch {
	case err != nil:
		return config, nil, err
	case reason != "":
		return config, append(problems, api.Problem{Path: name, Reason: reason}), nil
	case data == nil:
		return config, problems, nil
	}
	config, wrong := api.DecodeConfig(name, data)
	problems = append(problems, wrong...)
	return config, append(problems, config.Missing(func(file string) bool {
		f, ok := l.index.file(file)
		return ok && f.Mode == Regular
	})...), nil
}
