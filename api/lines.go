package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
)

// place is where a value of a document stands, with the places inside it.
type place struct {
	line   int // of the key or of the list item, in the file
	column int // the same, in characters
	fields map[string]*place
	items  []*place
}

// duplicate is a key that stands twice in one map.
type duplicate struct {
	field        string
	line, column int
	first        int  // line of the first
	merge        bool // the second comes by "<<" after the key itself
}

// places maps the document. A good manifest never pays for it.
func (d document) places() mapped {
	if d.json {
		m := jsonMapper{text: d.text, line: d.line, column: d.column, dec: json.NewDecoder(bytes.NewReader(d.text))}
		m.dec.UseNumber()
		if root := m.value("", 0); root != nil {
			return mapped{root, m.twice}
		}
		return mapped{}
	}
	var node yamlv3.Node
	if err := yamlv3.Unmarshal(d.text, &node); err != nil || len(node.Content) == 0 {
		return mapped{}
	}
	m := yamlMapper{line: d.line, left: maxNodes}
	root := m.value(node.Content[0], node.Content[0], "", 0)
	return mapped{root, m.twice}
}

type yamlMapper struct {
	line  int
	left  int
	twice []duplicate
}

// value maps n; at is what stands for it: its key or itself.
func (m *yamlMapper) value(n, at *yamlv3.Node, path string, depth int) *place {
	out := &place{line: m.line + at.Line - 1, column: at.Column}
	if m.left--; m.left < 0 || depth > maxDepth {
		return out
	}
	for n.Kind == yamlv3.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	switch n.Kind {
	case yamlv3.MappingNode:
		out.fields = map[string]*place{}
		merged := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, val := n.Content[i], n.Content[i+1]
			if key.Tag == "!!merge" {
				for name, p := range m.merged(val, key, path, depth) {
					if first, ok := out.fields[name]; ok && !merged[name] {
						m.twice = append(m.twice, duplicate{field: join(path, name), line: m.line + key.Line - 1, column: key.Column, first: first.line, merge: true})
						continue
					}
					out.fields[name], merged[name] = p, true
				}
				continue
			}
			name := key.Value
			if key.Kind == yamlv3.AliasNode && key.Alias != nil {
				name = key.Alias.Value
			}
			if first, ok := out.fields[name]; ok && !merged[name] {
				m.twice = append(m.twice, duplicate{field: join(path, name), line: m.line + key.Line - 1, column: key.Column, first: first.line})
			}
			delete(merged, name)
			out.fields[name] = m.value(val, key, join(path, name), depth+1)
		}
	case yamlv3.SequenceNode:
		for i, item := range n.Content {
			out.items = append(out.items, m.value(item, item, path+nth(i), depth+1))
		}
	}
	return out
}

// merged gives the fields that a merge key brings: those of one map or of
// several, the earlier ones before the later ones.
func (m *yamlMapper) merged(n, at *yamlv3.Node, path string, depth int) map[string]*place {
	for n.Kind == yamlv3.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	out := map[string]*place{}
	from := []*yamlv3.Node{n}
	if n.Kind == yamlv3.SequenceNode {
		from = n.Content
	}
	for _, f := range from {
		for name, p := range m.value(f, at, path, depth+1).fields {
			if out[name] == nil {
				out[name] = p
			}
		}
	}
	return out
}

type jsonMapper struct {
	text   []byte
	line   int
	column int // characters before at in its line
	dec    *json.Decoder
	at     int // bytes already counted
	twice  []duplicate
}

// next moves to the token that is read next.
func (m *jsonMapper) next() (line, column int) {
	to := int(m.dec.InputOffset())
	for to < len(m.text) && strings.IndexByte(" \t\r\n,:", m.text[to]) >= 0 {
		to++
	}
	passed := m.text[m.at:to]
	if n := bytes.Count(passed, []byte("\n")); n > 0 {
		m.line += n
		m.column = 0
		passed = passed[bytes.LastIndexByte(passed, '\n')+1:]
	}
	m.column += utf8.RuneCount(passed)
	m.at = to
	return m.line, m.column + 1
}

// value reads one value; its place is that of its first token.
func (m *jsonMapper) value(path string, depth int) *place {
	line, column := m.next()
	t, err := m.dec.Token()
	if err != nil || depth > maxDepth {
		return nil
	}
	out := &place{line: line, column: column}
	switch t {
	case json.Delim('{'):
		out.fields = map[string]*place{}
		for m.dec.More() {
			line, column := m.next()
			k, err := m.dec.Token()
			name, ok := k.(string)
			if err != nil || !ok {
				return nil
			}
			p := m.value(join(path, name), depth+1)
			if p == nil {
				return nil
			}
			if first, ok := out.fields[name]; ok {
				m.twice = append(m.twice, duplicate{field: join(path, name), line: line, column: column, first: first.line})
			}
			p.line, p.column = line, column
			out.fields[name] = p
		}
	case json.Delim('['):
		for i := 0; m.dec.More(); i++ {
			p := m.value(path+nth(i), depth+1)
			if p == nil {
				return nil
			}
			out.items = append(out.items, p)
		}
	default:
		return out
	}
	if _, err := m.dec.Token(); err != nil {
		return nil
	}
	return out
}

// find follows a field path as far as the document goes and returns the last
// place it found and what of the path is left. It reads both ways to write a map
// key: labels.app and labels[example.com/app].
func (p *place) find(field string) (last *place, rest string) {
	at := p
	for field != "" {
		next, rest := at.step(field)
		if next == nil {
			return at, field
		}
		at, field = next, rest
	}
	return at, ""
}

func (p *place) step(field string) (*place, string) {
	if rest, ok := strings.CutPrefix(field, "["); ok {
		key, rest, ok := strings.Cut(rest, "]")
		if !ok {
			return nil, ""
		}
		rest = strings.TrimPrefix(rest, ".")
		if i, ok := atoi(key); ok && i < len(p.items) {
			return p.items[i], rest
		}
		return p.fields[key], rest
	}
	end := strings.IndexAny(field, ".[")
	if end < 0 {
		return p.fields[field], ""
	}
	return p.fields[field[:end]], strings.TrimPrefix(field[end:], ".")
}

// compositeKey finds the first map or list that stands where a key should, such
// as an unquoted {{ template }}. It returns 0 when there is none.
func compositeKey(text []byte) (line, column int) {
	var node yamlv3.Node
	if err := yamlv3.Unmarshal(text, &node); err != nil {
		return 0, 0
	}
	left := maxNodes
	var walk func(n *yamlv3.Node, depth int) *yamlv3.Node
	walk = func(n *yamlv3.Node, depth int) *yamlv3.Node {
		if left--; left < 0 || depth > maxDepth {
			return nil
		}
		for i, c := range n.Content {
			if n.Kind == yamlv3.MappingNode && i%2 == 0 && c.Kind != yamlv3.ScalarNode && c.Kind != yamlv3.AliasNode {
				return c
			}
			if found := walk(c, depth+1); found != nil {
				return found
			}
		}
		return nil
	}
	if found := walk(&node, 0); found != nil {
		return found.Line, found.Column
	}
	return 0, 0
}
