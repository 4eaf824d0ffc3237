package splice

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"
)

// editor turns changes of values into patches of the text.
type editor struct {
	text    []byte
	w       writer // in the manner of the text
	patches []patch
	err     error // the first
}

// patch replaces the bytes from start to end.
type patch struct {
	start, end int
	text       string
}

// place is what surrounds a value.
type place struct {
	after int  // past the colon or the dash before it
	col   int  // column of the keys or dashes around it
	item  bool // of a list
	flow  bool // inside brackets
}

func newEditor(text []byte, root *node, json bool) *editor {
	return &editor{text: text, w: newWriter(text, root, json)}
}

func (e *editor) patch(start, end int, text string) {
	e.patches = append(e.patches, patch{start, end, text})
}

func (e *editor) fail(reason string) {
	if e.err == nil {
		e.err = errors.New(reason)
	}
}

// change makes old, the value at n, become want. c says what of it changes.
func (e *editor) change(n *node, old, want any, c *change, p place) {
	if c == nil || equal(old, want) {
		return
	}
	if c.set {
		note := c.note
		if c = diff(old, want); c.set {
			e.replace(n, want, p, note)
			return
		}
	}
	switch n.kind {
	case mapping:
		old, okOld := old.(map[string]any)
		want, okWant := want.(map[string]any)
		if okOld && okWant && len(n.entries) > 0 && len(want) > 0 {
			e.fields(n, old, want, c, p)
			return
		}
	case sequence:
		old, okOld := old.([]any)
		want, okWant := want.([]any)
		if okOld && okWant && len(old) == len(n.entries) && len(old) > 0 && len(want) > 0 {
			e.items(n, old, want, c, p)
			return
		}
	}
	e.replace(n, want, p, "")
}

func inside(n *node, entry entry, p place) place {
	return place{after: entry.after, col: n.col, item: n.kind == sequence, flow: p.flow || n.flow}
}

// fields changes what is in a map. Its keys are old's, but for those that come by
// a merge key.
func (e *editor) fields(n *node, old, want map[string]any, c *change, p place) {
	gone := make([]bool, len(n.entries))
	own := map[string]bool{}
	for i, entry := range n.entries {
		if entry.merge {
			continue
		}
		own[entry.name] = true
		switch f := c.fields[entry.name]; {
		case f == nil:
		case f.remove:
			gone[i] = true
		default:
			e.change(entry.value, old[entry.name], want[entry.name], f, inside(n, entry, p))
		}
	}
	var made []string
	unmerge := false
	for name, f := range c.fields {
		if own[name] {
			continue
		}
		if f.remove { // it can only come by a merge key
			unmerge = true
		} else if v, merged := old[name]; !merged || !equal(v, want[name]) {
			made = append(made, name)
		}
	}
	if unmerge {
		made = e.unmerge(n, gone, own, want)
	}
	slices.Sort(made)
	if !slices.Contains(gone, false) {
		e.replace(n, want, p, "")
		return
	}
	e.removals(n, gone, p)
	for _, name := range made {
		note := ""
		if f := c.fields[name]; f != nil {
			note = f.note
		}
		e.addKey(n, gone, name, want[name], note, p)
	}
}

// unmerge takes the merge keys out of a map and names the keys to write instead.
func (e *editor) unmerge(n *node, gone []bool, own map[string]bool, want map[string]any) []string {
	for i, entry := range n.entries {
		gone[i] = gone[i] || entry.merge
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !own[name] {
			names = append(names, name)
		}
	}
	return names
}

// items changes what is in a list.
func (e *editor) items(n *node, old, want []any, c *change, p place) {
	gone := make([]bool, len(n.entries))
	for i := range n.entries {
		f := c.items[i]
		gone[i] = f != nil && f.remove
	}
	if !slices.Contains(gone, false) {
		e.replace(n, want, p, "")
		return
	}
	for i, entry := range n.entries {
		if f := c.items[i]; f != nil && !f.remove {
			e.change(entry.value, old[i], f.apply(old[i]), f, inside(n, entry, p))
		}
	}
	e.removals(n, gone, p)
	for _, i := range slices.Sorted(maps.Keys(c.insert)) {
		for _, v := range c.insert[i] {
			e.addItem(n, gone, i, v, p)
		}
	}
}

// lost finds the aliases that stay and whose anchor the patches take away. A merge
// key also loses a map that is written anew: it may be no map any more.
func (e *editor) lost(root *node) map[*node]bool {
	cut := func(from, to int) bool {
		return slices.ContainsFunc(e.patches, func(p patch) bool { return p.start <= from && to <= p.end })
	}
	lost := map[*node]bool{}
	var walk func(n *node, merge bool)
	walk = func(n *node, merge bool) {
		if t := n.target; n.kind == alias && t != nil && !cut(n.start, n.end) {
			if cut(t.start, t.start+1) || merge && cut(t.body, t.end) {
				lost[n] = true
			}
		}
		for _, entry := range n.entries {
			walk(entry.value, merge && n.kind == sequence || entry.merge)
		}
	}
	walk(root, false)
	return lost
}

// writeOut puts the value v in the place of those aliases that are inside n.
func (e *editor) writeOut(n *node, v any, aliases map[*node]bool, p place) {
	if aliases[n] {
		e.replace(n, v, p, "")
		return
	}
	m, isMap := v.(map[string]any)
	list, isList := v.([]any)
	own, unmerge := map[string]bool{}, false
	for i, entry := range n.entries {
		switch {
		case entry.merge:
			if unmerge = unmerge || aliases[entry.value]; entry.value.kind == sequence {
				for _, from := range entry.value.entries {
					unmerge = unmerge || aliases[from.value]
				}
			}
		case n.kind == mapping && isMap:
			own[entry.name] = true
			e.writeOut(entry.value, m[entry.name], aliases, inside(n, entry, p))
		case n.kind == sequence && isList && i < len(list):
			e.writeOut(entry.value, list[i], aliases, inside(n, entry, p))
		}
	}
	if !unmerge || !isMap {
		return
	}
	gone := make([]bool, len(n.entries))
	names := e.unmerge(n, gone, own, m)
	if !slices.Contains(gone, false) {
		e.replace(n, v, p, "")
		return
	}
	e.removals(n, gone, p)
	for _, name := range names {
		e.addKey(n, gone, name, m[name], "", p)
	}
}

// result is the text with the patches done.
func (e *editor) result() ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	slices.SortStableFunc(e.patches, func(a, b patch) int { return cmp.Or(a.start-b.start, a.end-b.end) })
	var out bytes.Buffer
	done := 0
	for _, p := range e.patches {
		if p.start < done || p.end < p.start || p.end > len(e.text) {
			return nil, errors.New("cannot be edited in place: two changes meet")
		}
		out.Write(e.text[done:p.start])
		out.WriteString(p.text)
		done = p.end
	}
	out.Write(e.text[done:])
	return out.Bytes(), nil
}
