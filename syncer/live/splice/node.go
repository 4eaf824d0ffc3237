package splice

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

type kind int

const (
	scalar kind = iota
	mapping
	sequence
	alias
)

type style int // of a scalar

const (
	bare style = iota
	single
	double
	literal
	folded
)

// node is a value's place in the text.
type node struct {
	kind    kind
	style   style
	flow    bool // a map or list in brackets
	col     int  // of a block map or list: the column of its keys or dashes, from 0
	start   int  // its first byte, an anchor or a tag among it
	props   int  // past the anchor and the tag; start when there are none
	body    int  // the first byte of the value itself
	head    int  // of a block scalar: past its header
	end     int  // past its last byte
	entries []entry
	anchor  bool
	target  *node // of an alias
}

// entry is a key with its value, or an item.
type entry struct {
	start int    // of the key, the dash, or the item of a flow list
	after int    // past the colon or the dash; start in a flow list
	name  string // of the key, as Kubernetes reads it
	merge bool   // the key is "<<"
	value *node
}

// locate finds the values of a text that has one document and can be read.
func locate(text []byte, json bool) (*node, error) {
	if json {
		return locateJSON(text)
	}
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(text, &root); err != nil || len(root.Content) == 0 {
		return nil, errors.New("its values cannot be located")
	}
	l := locator{text: text, lines: lineStarts(text), seen: map[*yamlv3.Node]*node{}}
	out := l.node(root.Content[0], 0)
	return out, l.err
}

type locator struct {
	text  []byte
	lines []int // offset of each line
	seen  map[*yamlv3.Node]*node
	err   error // the first
}

func (l *locator) fail(n *yamlv3.Node) {
	if l.err == nil {
		l.err = fmt.Errorf("line %d of the document: the value cannot be located", n.Line)
	}
}

// offset of a node; the parser counts columns in characters, from 1.
func (l *locator) offset(n *yamlv3.Node) int {
	if n.Line < 1 || n.Line > len(l.lines) {
		l.fail(n)
		return 0
	}
	at := l.lines[n.Line-1]
	for range n.Column - 1 {
		if at >= len(l.text) {
			l.fail(n)
			return len(l.text)
		}
		_, size := utf8.DecodeRune(l.text[at:])
		at += size
	}
	return at
}

func (l *locator) at(i int) byte {
	if i < 0 || i >= len(l.text) {
		return 0
	}
	return l.text[i]
}

// node locates n. at is where an empty value would stand.
func (l *locator) node(n *yamlv3.Node, at int) *node {
	out := &node{anchor: n.Anchor != "", start: l.offset(n)}
	l.seen[n] = out
	empty := n.Kind == yamlv3.ScalarNode && n.Value == "" && n.Style&(yamlv3.DoubleQuotedStyle|yamlv3.SingleQuotedStyle|yamlv3.LiteralStyle|yamlv3.FoldedStyle) == 0
	if empty && l.at(out.start) != '&' && l.at(out.start) != '!' {
		out.start = at
	}
	out.props, out.body = l.properties(out.start)
	if empty {
		out.body, out.end = out.props, out.props
		return out
	}
	switch n.Kind {
	case yamlv3.ScalarNode:
		l.scalar(n, out)
	case yamlv3.AliasNode:
		out.kind, out.end, out.target = alias, out.body+1, l.seen[n.Alias]
		for l.at(out.end) == '_' || l.at(out.end) == '-' || isAlnum(l.at(out.end)) {
			out.end++
		}
		if l.at(out.body) != '*' || out.target == nil {
			l.fail(n)
		}
	case yamlv3.MappingNode:
		out.kind, out.flow = mapping, n.Style&yamlv3.FlowStyle != 0
		l.mapping(n, out)
	case yamlv3.SequenceNode:
		out.kind, out.flow = sequence, n.Style&yamlv3.FlowStyle != 0
		l.sequence(n, out)
	default:
		l.fail(n)
	}
	return out
}

// properties skips anchors and tags: past the last, and at the value.
func (l *locator) properties(i int) (past, value int) {
	past = i
	for l.at(i) == '&' || l.at(i) == '!' {
		verbatim := l.at(i) == '!' && l.at(i+1) == '<'
		for c := l.at(i); i < len(l.text) && !isSpace(c) && (verbatim || !isFlow(c)); c = l.at(i) {
			if i++; c == '>' {
				verbatim = false
			}
		}
		past = i
		i = l.skip(i)
	}
	return past, i
}

// skip passes white space, line ends and comments.
func (l *locator) skip(i int) int {
	for i < len(l.text) {
		switch c := l.text[i]; {
		case isSpace(c):
			i++
		case c == '#' && (i == 0 || isSpace(l.text[i-1])):
			for i < len(l.text) && l.text[i] != '\n' && l.text[i] != '\r' {
				i++
			}
		default:
			return i
		}
	}
	return i
}

func (l *locator) scalar(n *yamlv3.Node, out *node) {
	i := out.body
	switch {
	case n.Style&yamlv3.DoubleQuotedStyle != 0:
		out.style = double
		for i++; i < len(l.text) && l.text[i] != '"'; i++ {
			if l.text[i] == '\\' {
				i++
			}
		}
		out.end = i + 1
	case n.Style&yamlv3.SingleQuotedStyle != 0:
		out.style = single
		for i++; i < len(l.text) && (l.text[i] != '\'' || l.at(i+1) == '\''); i++ {
			if l.text[i] == '\'' {
				i++
			}
		}
		out.end = i + 1
	case n.Style&(yamlv3.LiteralStyle|yamlv3.FoldedStyle) != 0:
		if out.style = literal; n.Style&yamlv3.FoldedStyle != 0 {
			out.style = folded
		}
		for i < len(l.text) && !isSpace(l.text[i]) {
			i++
		}
		out.head = i
		l.block(n, out)
	default:
		out.end = l.words(n.Value, i)
		if out.end < 0 {
			l.fail(n)
			out.end = i
		}
	}
	if out.end > len(l.text) {
		l.fail(n)
		out.end = len(l.text)
	}
}

// words finds the end of a value that starts at or behind i: the text has its
// words in order, and only white space between them. It returns -1 if not so.
func (l *locator) words(value string, i int) int {
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' }) {
		at := i
		for at < len(l.text) && isSpace(l.text[at]) {
			at++
		}
		if !strings.HasPrefix(string(l.text[at:min(at+len(word), len(l.text))]), word) {
			return -1
		}
		i = at + len(word)
	}
	return i
}

// block finds the end of a block scalar: the end of its last line, without the
// line end; of its last blank line if its header says to keep those.
func (l *locator) block(n *yamlv3.Node, out *node) {
	header := eol(l.text, out.head)
	out.end = header
	if strings.TrimSpace(n.Value) != "" {
		last := l.words(n.Value, header)
		if last < 0 {
			l.fail(n)
			return
		}
		out.end = eol(l.text, last)
	}
	if strings.IndexByte(string(l.text[out.body:out.head]), '+') < 0 {
		return
	}
	for next := newline(l.text, out.end); next > out.end; next = newline(l.text, out.end) {
		end := eol(l.text, next)
		if strings.TrimSpace(string(l.text[next:end])) != "" || next == len(l.text) {
			return
		}
		out.end = end
	}
}

func (l *locator) mapping(n *yamlv3.Node, out *node) {
	at := out.body + 1
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := l.node(n.Content[i], at)
		e := entry{start: key.start, merge: n.Content[i].Tag == "!!merge", name: l.name(n.Content[i]), after: key.end}
		if i == 0 && !out.flow {
			out.col = n.Content[i].Column - 1
		}
		if colon := l.skip(key.end); l.at(colon) == ':' {
			e.after = colon + 1
		}
		e.value = l.node(n.Content[i+1], e.after)
		out.entries = append(out.entries, e)
		out.end = e.value.end
		at = out.end
	}
	if out.flow {
		l.closing(n, out, '{', '}')
	}
}

func (l *locator) sequence(n *yamlv3.Node, out *node) {
	at := out.body + 1
	if !out.flow {
		out.col = utf8.RuneCount(l.text[bol(l.text, out.body):out.body])
	}
	for i, c := range n.Content {
		e := entry{}
		if out.flow {
			e.value = l.node(c, at)
			e.start, e.after = e.value.start, e.value.start
		} else {
			if e.start = out.body; i > 0 {
				e.start = l.dash(c, out)
			}
			if l.at(e.start) != '-' {
				l.fail(c)
			}
			e.after = e.start + 1
			e.value = l.node(c, e.after)
		}
		out.entries = append(out.entries, e)
		out.end = e.value.end
		at = out.end
	}
	if out.flow {
		l.closing(n, out, '[', ']')
	}
}

// dash finds the dash of an item that is not the first: in the item's line or
// above it, in the column of the list.
func (l *locator) dash(item *yamlv3.Node, list *node) int {
	for line := min(item.Line, len(l.lines)); line > 0 && l.lines[line-1] >= list.end; line-- {
		at := l.lines[line-1]
		rest := l.text[at:]
		if len(rest) > list.col && rest[list.col] == '-' && strings.Trim(string(rest[:list.col]), " ") == "" {
			return at + list.col
		}
	}
	l.fail(item)
	return 0
}

// closing finds the bracket at the end of a flow map or list. A pair in a list,
// [a: b], is a map without brackets.
func (l *locator) closing(n *yamlv3.Node, out *node, open, shut byte) {
	if l.at(out.body) != open {
		return
	}
	i := out.body + 1
	if len(out.entries) > 0 {
		i = out.end
	}
	if i = l.skip(i); l.at(i) == ',' {
		i = l.skip(i + 1)
	}
	if l.at(i) != shut {
		l.fail(n)
		return
	}
	out.end = i + 1
}

var plainName = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./-]*$`)

// name is a key as Kubernetes reads it: yes is "true".
func (l *locator) name(n *yamlv3.Node) string {
	for n.Kind == yamlv3.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	if n.Style&(yamlv3.SingleQuotedStyle|yamlv3.DoubleQuotedStyle|yamlv3.LiteralStyle|yamlv3.FoldedStyle) != 0 {
		return n.Value
	}
	switch strings.ToLower(n.Value) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null", ".inf", ".nan":
	default:
		if plainName.MatchString(n.Value) {
			return n.Value
		}
	}
	var v any
	if yamlv2.Unmarshal([]byte("- "+n.Value), &v) != nil {
		return n.Value
	}
	if list, ok := v.([]any); ok && len(list) == 1 {
		switch k := list[0].(type) {
		case int:
			return strconv.Itoa(k)
		case int64:
			return strconv.FormatInt(k, 10)
		case float64:
			return strconv.FormatFloat(k, 'g', -1, 32)
		case bool:
			return strconv.FormatBool(k)
		}
	}
	return n.Value
}
