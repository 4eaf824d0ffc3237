package splice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// writer makes text of values, in the manner of a document.
type writer struct {
	json   bool
	nl     string
	step   int    // columns of one level
	unit   string // JSON: the white space of one level
	dash   bool   // the dashes of a list stand in the column of its key
	quoted bool   // no block texts
	long   bool   // JSON: values inside values on lines of their own
}

// newWriter learns the manner of a text from its first map in a map and its first
// list in a map.
func newWriter(text []byte, root *node, json bool) writer {
	w := writer{json: json, nl: "\n", step: 2, unit: "  ", dash: true, long: json && bytes.IndexByte(text, '\n') >= 0}
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		w.nl = "\r\n"
	}
	step, dash := false, false
	var walk func(n *node)
	walk = func(n *node) {
		for _, e := range n.entries {
			if step && dash {
				return
			}
			if v := e.value; n.kind == mapping && !n.flow && !v.flow && len(v.entries) > 0 {
				switch {
				case v.kind == mapping && !step && v.col > n.col:
					w.step, step = v.col-n.col, true
				case v.kind == sequence && !dash:
					w.dash, dash = v.col == n.col, true
				}
			}
			walk(e.value)
		}
	}
	walk(root)
	if json {
		for _, e := range root.entries {
			if line := text[bol(text, e.start):e.start]; len(line) > 0 && len(bytes.TrimLeft(line, " \t")) == 0 {
				w.unit = string(line)
				break
			}
		}
	}
	return w
}

// value writes v as a value in a block map or list: what stands in the line of
// its key or dash, and the lines below, which begin in column col.
func (w writer) value(v any, s style, col int, p place) (head string, below []string) {
	if !small(v) {
		if _, ok := v.([]any); ok && w.dash && !p.item {
			col = p.col
		}
		return "", w.block(v, col)
	}
	text, ok := v.(string)
	if !ok {
		return w.flow(v, s, ""), nil
	}
	if !w.quoted && (s == literal || s == folded || s == bare && strings.Contains(strings.TrimRight(text, "\n"), "\n")) {
		if head, below, ok := blockString(text, s, col, col-p.col); ok {
			return head, below
		}
		s = double
	}
	return scalarText(text, s, false), nil
}

// block writes a map or list that is not empty as lines that begin in column col.
func (w writer) block(v any, col int) (lines []string) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range keys(v) {
			lines = append(lines, w.entry(name, v[name], col)...)
		}
	case []any:
		for _, e := range v {
			lines = append(lines, w.item(e, col)...)
		}
	}
	return lines
}

// keys are the keys of a map in the order to write them: first those that say
// what the rest is about, as people do.
func keys(m map[string]any) []string {
	names := slices.Sorted(maps.Keys(m))
	at := 0
	for _, first := range []string{"apiVersion", "kind", "metadata", "name"} {
		if i := slices.Index(names, first); i >= 0 {
			names = slices.Insert(slices.Delete(names, i, i+1), at, first)
			at++
		}
	}
	return names
}

// YAML writes a map or a list that is not empty as a document of its own.
func YAML(v any) ([]byte, error) {
	made, err := plain(v, 0)
	if err != nil {
		return nil, err
	}
	if small(made) {
		return nil, errors.New("nothing to write")
	}
	return []byte(strings.Join(writer{nl: "\n", step: 2, dash: true}.block(made, 0), "\n") + "\n"), nil
}

// entry writes a key and its value.
func (w writer) entry(name string, v any, col int) []string {
	head, below := w.value(v, bare, col+w.step, place{col: col})
	line := strings.Repeat(" ", col) + w.key(name, false) + ":"
	if head != "" {
		line += " " + head
	}
	return append([]string{line}, below...)
}

// item writes an item of a list.
func (w writer) item(v any, col int) []string {
	dash := strings.Repeat(" ", col) + "- "
	if !small(v) {
		lines := w.block(v, col+2)
		lines[0] = dash + lines[0][col+2:]
		return lines
	}
	head, below := w.value(v, bare, col+w.step, place{col: col, item: true})
	return append([]string{dash + head}, below...)
}

// flow writes v in one line, but for JSON in lines that begin with indent.
func (w writer) flow(v any, s style, indent string) string {
	if w.json {
		return w.asJSON(v, indent)
	}
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, name := range keys(v) {
			parts = append(parts, w.key(name, true)+": "+w.flow(v[name], bare, ""))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, w.flow(e, bare, ""))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return scalarText(v, s, true)
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	}
	panic(fmt.Sprintf("splice: a value of type %T", v)) // plain has seen to that
}

func (w writer) key(name string, flow bool) string {
	if w.json {
		return quoteJSON(name)
	}
	if plainSafe(name) {
		return name
	}
	return doubleQuoted(name)
}

func (w writer) asJSON(v any, indent string) string {
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, name := range keys(v) {
			parts = append(parts, quoteJSON(name)+": "+w.asJSON(v[name], indent+w.unit))
		}
		return w.brackets('{', parts, '}', indent)
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, w.asJSON(e, indent+w.unit))
		}
		return w.brackets('[', parts, ']', indent)
	case string:
		return quoteJSON(v)
	}
	return writer{}.flow(v, bare, "")
}

func (w writer) brackets(open byte, parts []string, shut byte, indent string) string {
	if len(parts) == 0 || !w.long {
		return string(open) + strings.Join(parts, ", ") + string(shut)
	}
	inner := w.nl + indent + w.unit
	return string(open) + inner + strings.Join(parts, ","+inner) + w.nl + indent + string(shut)
}

func quoteJSON(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("splice: a string that JSON cannot hold: " + err.Error()) // there is none
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// floatText writes a number that is read as a float again.
func floatText(v float64) string {
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	if i := strings.IndexByte(s, 'e'); i >= 0 && !strings.Contains(s[:i], ".") {
		s = s[:i] + ".0" + s[i:] // YAML 1.1 asks for the point
	}
	return s
}

// plain makes a new value of JSON's types.
func plain(v any, depth int) (any, error) {
	if depth > 200 {
		return nil, errors.New("the new value is nested deeper than 200 levels")
	}
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			e, err := plain(e, depth+1)
			if err != nil {
				return nil, err
			}
			out[k] = e
		}
		return out, nil
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			e, err := plain(e, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, e)
		}
		return out, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, errors.New("the new value is not a number")
		}
		return v, nil
	case nil, string, bool, int64:
		return v, nil
	}
	return nil, fmt.Errorf("a new value of type %T cannot stand in a file", v)
}
