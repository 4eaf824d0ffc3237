package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"time"
)

// Bounds of a configuration.
const (
	minPoll         = time.Second
	maxPoll         = 24 * time.Hour
	maxConfigList   = 1_000 // entries of each list
	maxConfigText   = 2_048 // bytes of one text
	maxPatternText  = 1_000 // bytes of one pattern
	maxPatterns     = 1_000 // of all lists of patterns taken together
	maxPercent      = 100
	everyNamespace  = "*"
	apiVersionOfOwn = Group + "/" + Version
)

// DecodeConfig reads a ConfigFile, whose path is from the tree's root, as strictly
// as a manifest, and finds every problem. When there are any, the configuration
// that comes with them must not be used.
func DecodeConfig(file string, data []byte) (Config, []Problem) {
	c := DefaultConfig()
	if c.folder = path.Dir(file); c.folder == "." {
		c.folder = ""
	}
	d := configDecoder{file: file}
	if len(data) > MaxConfigBytes {
		d.add("", "the file has %d bytes; at most %d can be read", len(data), MaxConfigBytes)
		return c, d.problems
	}
	if m, ok := d.read(data); ok {
		d.decode(m, &c)
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	c.document = d.doc
	return c, d.problems
}

type configDecoder struct {
	file     string
	doc      *Document // nil while there is none
	problems []Problem
	held     int // patterns so far
}

func (d *configDecoder) add(field, format string, args ...any) {
	p := Problem{Path: d.file, Field: field, Reason: fmt.Sprintf(format, args...)}
	if d.doc != nil {
		at, _ := d.doc.Place(field)
		p = p.At(at)
	}
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, p)
	}
}

// read finds the one document of the file.
func (d *configDecoder) read(data []byte) (map[string]any, bool) {
	docs, problems := Documents(d.file, data)
	d.problems = problems
	switch {
	case len(docs) == 0 && len(problems) == 0:
		d.add("", "the file says nothing: write apiVersion: %s and kind: %s, or remove the file", apiVersionOfOwn, ConfigKind)
	case len(docs) > 1:
		d.doc = &docs[1]
		d.add("", "the file holds one document, and this is another: remove it")
	}
	if len(docs) == 0 {
		return nil, false
	}
	d.doc = &docs[0]
	m, ok := d.doc.Value.(map[string]any)
	if !ok {
		d.add("", "must be a map with apiVersion, kind and settings, not %s", noun(d.doc.Value))
	}
	return m, ok
}

// decode takes one setting after the other, so that one that cannot be read does
// not hide the problems of the others.
func (d *configDecoder) decode(m map[string]any, c *Config) {
	for _, name := range sorted(m) {
		one := map[string]any{name: m[name]}
		var s shape
		s.value("", reflect.TypeFor[Config](), one)
		for _, p := range s.problems {
			d.add(p.Field, "%s", p.Reason)
		}
		if s.broken || len(one) == 0 {
			continue
		}
		text, err := json.Marshal(one)
		if err == nil {
			err = json.Unmarshal(text, c)
		}
		if err != nil { // the shape fits, so this is not about the user's text
			d.add(name, "cannot be read: %v", err)
		}
	}
	for _, f := range []struct{ name, want string }{{"apiVersion", apiVersionOfOwn}, {"kind", ConfigKind}} {
		if got, ok := m[f.name].(string); m[f.name] == nil || ok && got != f.want {
			d.add(f.name, "must be %s", f.want)
		}
	}
	d.settings(c)
	d.paths(c)
	d.sources(c)
}

func (d *configDecoder) settings(c *Config) {
	d.drift("drift", c.Drift)
	d.label("defaultNamespace", c.DefaultNamespace)
	d.poll("pollInterval", c.PollInterval)
	if c.DeletionLimit.Objects < 0 {
		d.add("deletionLimit.objects", "must be 0 or more")
	}
	if p := c.DeletionLimit.Percent; p < 0 || p > maxPercent {
		d.add("deletionLimit.percent", "must be from 0 to %d", maxPercent)
	}
	for _, f := range []struct {
		name string
		path *string
	}{{"allowedSigners.ssh", &c.AllowedSigners.SSH}, {"allowedSigners.openpgp", &c.AllowedSigners.OpenPGP}} {
		if *f.path != "" {
			d.path(f.name, f.path, "repository")
		}
	}
	d.patterns("ignore", c.Ignore)
	d.allowStored("allowStored", c.AllowStored)
}

func (d *configDecoder) paths(c *Config) {
	if !d.count("paths", len(c.Paths)) {
		return
	}
	first := map[string]int{}
	for i := range c.Paths {
		p := &c.Paths[i]
		at := "paths" + nth(i) + "."
		switch ok := d.path(at+"path", &p.Path, "source"); {
		case ok && p.Path == "":
			d.add(at+"path", "must name a folder or a file below the source's root; what holds for all stands above")
		case ok:
			if j, twice := first[p.Path]; twice {
				d.add(at+"path", "%q is named already by paths[%d]", p.Path, j)
			} else {
				first[p.Path] = i
			}
		}
		if p.Drift != "" {
			d.drift(at+"drift", p.Drift)
		}
		if p.DefaultNamespace != "" {
			d.label(at+"defaultNamespace", p.DefaultNamespace)
		}
		d.patterns(at+"ignore", p.Ignore)
	}
}

func (d *configDecoder) sources(c *Config) {
	if !d.count("sources", len(c.Sources)) {
		return
	}
	first := map[string]int{}
	for i := range c.Sources {
		s := &c.Sources[i]
		at := "sources" + nth(i) + "."
		switch j, twice := first[s.Name]; {
		case s.Name == "":
			d.add(at+"name", "missing: every source has a name of its own")
		case s.Name == MainSource:
			d.add(at+"name", "%q is the source that this file stands in: choose another name", MainSource)
		case twice:
			d.add(at+"name", "%q is the name of sources[%d] already", s.Name, j)
		default:
			d.label(at+"name", s.Name)
		}
		if _, twice := first[s.Name]; !twice {
			first[s.Name] = i
		}
		if reason := repositoryProblem(s.Repository); reason != "" {
			d.add(at+"repository", "%s", reason)
		}
		var reason string
		if s.Ref, reason = completeRef(s.Ref); reason != "" {
			d.add(at+"ref", "%s", reason)
		}
		d.path(at+"path", &s.Path, "repository")
		d.namespaces(at+"namespaces", s.Namespaces)
		if s.PollInterval == nil {
			poll := c.PollInterval
			s.PollInterval = &poll
		} else {
			d.poll(at+"pollInterval", *s.PollInterval)
		}
	}
}
