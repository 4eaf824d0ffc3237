package render

import (
	"fmt"
	"path"
	"slices"

	"headway.dev/headway/api"
)

// source is a file that a kustomization uses, read strictly.
type source struct {
	path     string
	text     []byte
	docs     []api.Document
	problems []api.Problem
	measure  measure
}

// newSource reads a file as YAML or JSON documents. kustomize's own reader takes
// a key that stands twice, and is not bounded.
func newSource(p string, data []byte) *source {
	s := &source{path: p, text: data}
	s.docs, s.problems = api.Documents(p, data)
	for _, d := range s.docs {
		s.measure.add(d.Value)
	}
	s.measure.bytes = max(s.measure.bytes, len(data))
	return s
}

// measure is what values take, their anchors expanded.
type measure struct {
	bytes   int // as text, about
	values  int
	longest int // bytes of the longest text
	widest  int // entries of the largest map or list
}

func (m *measure) add(v any) {
	m.values++
	m.bytes += 4
	switch v := v.(type) {
	case string:
		m.bytes += len(v)
		m.longest = max(m.longest, len(v))
	case []any:
		m.widest = max(m.widest, len(v))
		for _, e := range v {
			m.add(e)
		}
	case map[string]any:
		m.widest = max(m.widest, len(v))
		for k, e := range v {
			m.bytes += len(k)
			m.longest = max(m.longest, len(k))
			m.add(e)
		}
	}
}

func measured(v any) measure {
	var m measure
	m.add(v)
	return m
}

// source reads a file that a kustomization uses, once for all of them.
func (r *renderer) source(p string) (*source, error) {
	if s, ok := r.sources[p]; ok {
		return s, nil
	}
	f, _ := r.index.file(p)
	if f.Size > api.MaxFileBytes {
		return &source{path: p, problems: []api.Problem{tooLarge(p, int(f.Size))}}, nil
	}
	key := cacheKey{of: consumed, path: p, hash: f.Hash}
	e, ok := r.opts.Cache.get(key)
	if !ok {
		data, err := r.index.read(p)
		if err != nil {
			return nil, err
		}
		e = entry{bytes: len(data)}
		if why := foreign(data); why != "" {
			e.source = &source{path: p, text: data, problems: []api.Problem{{Path: p, Line: 1, Reason: why + "; a kustomization uses it"}}}
		} else {
			e.source = newSource(p, data)
		}
		r.opts.Cache.put(key, e)
		r.result.Read++
	}
	r.sources[p] = e.source
	return e.source, nil
}

// described is the kustomization of a folder, read.
type described struct {
	at string         // its name in the folder; "" when there is none
	k  *kustomization // nil: none
}

// kustomization reads that of a folder of the tree, once; nil when there is none.
// touch is told what the answer depends on, each time.
func (r *renderer) kustomization(dir string, touch func(string)) (*kustomization, error) {
	if d, ok := r.described[dir]; ok {
		if d.at == "" {
			return nil, nil
		}
		_, _, err := r.index.resolve(d.at, touch)
		if err == errOutside || err == errLoop {
			err = nil // among the problems of k
		}
		return d.k, err
	}
	d, err := r.describe(dir, touch)
	if err != nil {
		return nil, err
	}
	r.described[dir] = d
	return d.k, nil
}

func (r *renderer) describe(dir string, touch func(string)) (described, error) {
	var at []string
	for _, name := range names() {
		p := path.Join(dir, name)
		if f, ok := r.index.file(p); ok && f.Mode != Submodule {
			at = append(at, p)
		}
	}
	if len(at) == 0 {
		return described{}, nil
	}
	real, kind, err := r.index.resolve(at[0], touch)
	switch {
	case err != nil && err != errOutside && err != errLoop:
		return described{}, err
	case err != nil || kind != file:
		k := &kustomization{dir: dir, file: at[0], problems: []api.Problem{{Path: at[0], Reason: "the symbolic link leads to no file of this repository"}}}
		return described{at[0], k}, nil
	}
	f, _ := r.index.file(real)
	key := cacheKey{of: describes, path: at[0] + "\x00" + real, hash: f.Hash}
	e, ok := r.opts.Cache.get(key)
	if !ok {
		s, err := r.source(real)
		if err != nil {
			return described{}, err
		}
		e = entry{kustomization: newKustomization(dir, s), bytes: len(s.text)}
		r.opts.Cache.put(key, e)
	}
	k := e.kustomization
	if len(at) > 1 {
		both := *k
		both.problems = append(slices.Clone(k.problems), api.Problem{Path: at[1], Line: 1, Reason: fmt.Sprintf("the folder has two kustomizations, this one and %s: remove one", at[0])})
		k = &both
	}
	return described{at[0], k}, nil
}
