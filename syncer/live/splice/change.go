package splice

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// change says what becomes of a value: it goes, it is another, or something
// inside it changes.
type change struct {
	remove bool
	set    bool
	value  any
	note   string
	fields map[string]*change
	items  map[int]*change
	insert map[int][]any // new items before the one of that index
}

func (c *change) inner() bool { return len(c.fields)+len(c.items)+len(c.insert) > 0 }

// add puts an edit into the change of v.
func (c *change) add(v any, e Edit) error {
	made, err := plain(e.Value, 0)
	if err != nil {
		return err
	}
	at := c
	for i, pe := range e.Path {
		if at.set || at.remove {
			return errors.New("one edit is inside another")
		}
		switch {
		case pe.FieldName != nil:
			m, ok := v.(map[string]any)
			if !ok && v != nil {
				return fmt.Errorf("%s is not in the document: what holds it is no map", e.Path[:i+1])
			}
			next, there := m[*pe.FieldName]
			if !there && (e.Delete || i < len(e.Path)-1) {
				return fmt.Errorf("%s is not in the document", e.Path[:i+1])
			}
			if at.fields == nil {
				at.fields = map[string]*change{}
			}
			if at.fields[*pe.FieldName] == nil {
				at.fields[*pe.FieldName] = &change{}
			}
			at, v = at.fields[*pe.FieldName], next
		default:
			list, ok := v.([]any)
			n := Item(list, pe)
			if !ok || n < 0 {
				return fmt.Errorf("%s is not in the document", e.Path[:i+1])
			}
			if at.items == nil {
				at.items = map[int]*change{}
			}
			if at.items[n] == nil {
				at.items[n] = &change{}
			}
			at, v = at.items[n], list[n]
		}
	}
	if at.set || at.remove || at.inner() {
		return errors.New("one edit is inside another")
	}
	at.remove, at.set, at.note = e.Delete, !e.Delete, e.Note
	if at.set {
		at.value = made
	}
	return nil
}

// Item finds the item of a list that a path element means, or -1. A merge key
// that an item leaves out has its default there, so an item that has all keys is
// looked for first.
func Item(list []any, pe fieldpath.PathElement) int {
	switch {
	case pe.Index != nil:
		if *pe.Index >= 0 && *pe.Index < len(list) {
			return *pe.Index
		}
	case pe.Value != nil:
		return slices.IndexFunc(list, func(v any) bool { return value.Equals(value.NewValueInterface(v), *pe.Value) })
	case pe.Key != nil:
		for _, absent := range []bool{false, true} {
			for i, v := range list {
				if m, ok := v.(map[string]any); ok && keyed(m, *pe.Key, absent) {
					return i
				}
			}
		}
	}
	return -1
}

// Lookup finds the value at a path.
func Lookup(v any, path fieldpath.Path) (found any, ok bool) {
	for _, pe := range path {
		if pe.FieldName != nil {
			m, _ := v.(map[string]any)
			if v, ok = m[*pe.FieldName]; !ok {
				return nil, false
			}
			continue
		}
		list, _ := v.([]any)
		i := Item(list, pe)
		if i < 0 {
			return nil, false
		}
		v = list[i]
	}
	return v, true
}

func keyed(m map[string]any, keys value.FieldList, absent bool) bool {
	for _, k := range keys {
		v, ok := m[k.Name]
		if !ok && absent {
			continue
		}
		if !ok || !value.Equals(value.NewValueInterface(v), k.Value) {
			return false
		}
	}
	return true
}

// apply makes the new value; v is not changed.
func (c *change) apply(v any) any {
	switch {
	case c == nil:
		return v
	case c.set:
		return c.value
	case len(c.fields) > 0:
		out := map[string]any{}
		if m, ok := v.(map[string]any); ok {
			out = maps.Clone(m)
		}
		for name, f := range c.fields {
			if f.remove {
				delete(out, name)
				continue
			}
			out[name] = f.apply(out[name])
		}
		return out
	case c.inner():
		list, _ := v.([]any)
		out := make([]any, 0, len(list))
		for i, e := range list {
			out = append(out, c.insert[i]...)
			if f := c.items[i]; f == nil || !f.remove {
				out = append(out, f.apply(e))
			}
		}
		return append(out, c.insert[len(list)]...)
	}
	return v
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

// diff is the smallest change of old that makes it want; nil when they are equal.
func diff(old, want any) *change {
	if equal(old, want) {
		return nil
	}
	switch want := want.(type) {
	case map[string]any:
		old, ok := old.(map[string]any)
		if !ok {
			break
		}
		c := &change{fields: map[string]*change{}}
		for name, v := range old {
			if w, ok := want[name]; !ok {
				c.fields[name] = &change{remove: true}
			} else if f := diff(v, w); f != nil {
				c.fields[name] = f
			}
		}
		for name, w := range want {
			if _, ok := old[name]; !ok {
				c.fields[name] = &change{set: true, value: w}
			}
		}
		return c
	case []any:
		if old, ok := old.([]any); ok {
			return diffList(old, want)
		}
	}
	return &change{set: true, value: want}
}

// maxTable bounds the work of comparing two lists item by item.
const maxTable = 1 << 20

// diffList pairs the items that are the same, in order, and changes what is
// between them.
func diffList(old, want []any) *change {
	c := &change{items: map[int]*change{}, insert: map[int][]any{}}
	a, b := names(old), names(want)
	i, j := 0, 0
	pair := func(toI, toJ int) { // what is between two pairs
		for i < toI && j < toJ {
			if f := diff(old[i], want[j]); f != nil {
				c.items[i] = f
			}
			i, j = i+1, j+1
		}
		for ; i < toI; i++ {
			c.items[i] = &change{remove: true}
		}
		if j < toJ {
			c.insert[i] = append(c.insert[i], want[j:toJ]...)
			j = toJ
		}
	}
	for _, p := range common(a, b) {
		pair(p[0], p[1])
		if f := diff(old[i], want[j]); f != nil {
			c.items[i] = f
		}
		i, j = i+1, j+1
	}
	pair(len(old), len(want))
	return c
}

// names says for each item what makes it the same as another: its name if it has
// one, else all of it.
func names(list []any) []string {
	out := make([]string, len(list))
	for i, v := range list {
		if m, ok := v.(map[string]any); ok {
			if name, ok := m["name"].(string); ok {
				out[i] = "name " + name
				continue
			}
		}
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(fmt.Sprintf("%T", v)) // not a value of JSON: refused elsewhere
		}
		out[i] = string(text)
	}
	return out
}

// common is a longest common subsequence of a and b, as pairs of indices.
func common(a, b []string) (pairs [][2]int) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		pairs = append(pairs, [2]int{head, head})
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	x, y := a[head:len(a)-tail], b[head:len(b)-tail]
	if len(x) > 0 && len(y) > 0 && len(x) <= maxTable/len(y) {
		best := make([][]int, len(x)+1) // length for x[i:], y[j:]
		for i := range best {
			best[i] = make([]int, len(y)+1)
		}
		for i := len(x) - 1; i >= 0; i-- {
			for j := len(y) - 1; j >= 0; j-- {
				if best[i][j] = max(best[i+1][j], best[i][j+1]); x[i] == y[j] {
					best[i][j] = best[i+1][j+1] + 1
				}
			}
		}
		for i, j := 0, 0; i < len(x) && j < len(y); {
			switch {
			case x[i] == y[j]:
				pairs = append(pairs, [2]int{head + i, head + j})
				i, j = i+1, j+1
			case best[i+1][j] >= best[i][j+1]:
				i++
			default:
				j++
			}
		}
	}
	for k := tail; k > 0; k-- {
		pairs = append(pairs, [2]int{len(a) - k, len(b) - k})
	}
	return pairs
}
