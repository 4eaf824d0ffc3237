package live

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"headway.dev/headway/api"
	headway "headway.dev/headway/internal/schema"
	"headway.dev/headway/syncer/live/splice"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Compare finds the declared fields of a manifest whose live value is another, and
// returns nil when there are none. A live object that is nil has been deleted.
//
// Values are compared as Kubernetes decodes and defaults them, so "1000m" is "1".
// What the manifest does not declare is never looked at (D6).
func Compare(m *api.Manifest, live api.Object) (*Drift, error) {
	d := &Drift{Manifest: m, Live: live}
	if live == nil {
		return d, nil
	}
	t, err := headway.TypeOf(m.Kind)
	if err != nil {
		return nil, err
	}
	want, err := fieldsOf(m.Object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Object(), err)
	}
	is, err := fieldsOf(live)
	if err != nil {
		return nil, fmt.Errorf("%s: live object: %w", d.Object(), err)
	}
	c := comparer{schema: t.Schema}
	c.walk(nil, t.TypeRef, declared(m), want, is)
	if c.err != nil {
		return nil, fmt.Errorf("%s: %w", d.Object(), c.err)
	}
	for _, f := range c.fields {
		if f.Hidden = hidden(m, f.Path); f.Hidden {
			f.Declared, f.Live = nil, nil
		}
		d.Fields = append(d.Fields, f)
	}
	if len(d.Fields) == 0 {
		return nil, nil
	}
	return d, nil
}

// fieldsOf gives the fields of an object in JSON's types. Its error quotes nothing.
func fieldsOf(obj api.Object) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, errors.New("its fields cannot be read")
	}
	return fields, nil
}

// declared is what a manifest wants of the live object: all of the document but
// what says which object it is, and its status.
func declared(m *api.Manifest) map[string]any {
	out := maps.Clone(m.Declared)
	for _, name := range []string{"apiVersion", "kind", "status"} {
		delete(out, name)
	}
	if meta, ok := out["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		for _, name := range []string{"name", "namespace", "generateName"} {
			delete(meta, name)
		}
		out["metadata"] = meta
	}
	return out
}

// comparer walks a manifest. Everywhere it goes, raw is the value as the document
// has it, want the same after decoding and defaulting, and is the live one; nil
// stands for no value.
type comparer struct {
	schema *schema.Schema
	fields []Field
	err    error // the first
}

func (c *comparer) resolve(ref schema.TypeRef) schema.Atom {
	atom, _ := c.schema.Resolve(ref) // an unknown type is one value
	return atom
}

// child is the type of a map's value.
func child(m *schema.Map, name string) schema.TypeRef {
	if m == nil {
		return schema.TypeRef{}
	}
	if f, ok := m.FindField(name); ok {
		return f.Type
	}
	return m.ElementType
}

func (c *comparer) walk(path fieldpath.Path, ref schema.TypeRef, raw, want, is any) {
	atom := c.resolve(ref)
	switch raw := raw.(type) {
	case nil: // says nothing
		return
	case map[string]any:
		if atom.Map == nil || atom.Map.ElementRelationship == schema.Atomic {
			break
		}
		if is == nil {
			break // missing as a whole
		}
		w, _ := want.(map[string]any)
		i, _ := is.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(raw)) {
			c.walk(fieldNamed(path, name), child(atom.Map, name), raw[name], w[name], i[name])
		}
		return
	case []any:
		if atom.List == nil || atom.List.ElementRelationship != schema.Associative {
			break
		}
		w, _ := want.([]any)
		i, _ := is.([]any)
		if len(raw) == 0 {
			return // declares no item
		}
		if len(w) != len(raw) || len(i) == 0 {
			break
		}
		c.items(path, atom.List, raw, w, i)
		return
	}
	if c.equal(ref, want, is) {
		return
	}
	f := Field{Path: path, Declared: raw, Missing: is == nil}
	if !f.Missing {
		f.Live = c.project(ref, raw, want, is)
	}
	c.fields = append(c.fields, f)
}

// items compares a list whose items are known by keys, or are a set.
func (c *comparer) items(path fieldpath.Path, list *schema.List, raw, want, is []any) {
	there := map[string]int{}
	for i, v := range is {
		if pe, ok := c.element(list, v); ok {
			if _, twice := there[pe.String()]; !twice {
				there[pe.String()] = i
			}
		}
	}
	type pair struct {
		raw, is int
		pe      fieldpath.PathElement
	}
	var pairs []pair
	var missing []Field
	seen := map[string]bool{}
	for i, v := range want {
		pe, ok := c.element(list, v)
		if !ok || seen[pe.String()] {
			if c.err == nil {
				c.err = fmt.Errorf("%s has an item without its keys, or two with the same", Field{Path: path}.Name())
			}
			return
		}
		seen[pe.String()] = true
		if at, ok := there[pe.String()]; ok {
			pairs = append(pairs, pair{i, at, pe})
		} else {
			missing = append(missing, Field{Path: append(slices.Clip(path), pe), Declared: raw[i], Missing: true})
		}
	}
	ordered := slices.IsSortedFunc(pairs, func(a, b pair) int { return a.is - b.is })
	if ordered {
		for _, p := range pairs {
			c.walk(append(slices.Clip(path), p.pe), list.ElementType, raw[p.raw], want[p.raw], is[p.is])
		}
		c.fields = append(c.fields, missing...)
		return
	}
	// Another order is another list: each of its items as it is live.
	slices.SortFunc(pairs, func(a, b pair) int { return a.is - b.is })
	f := Field{Path: path, Declared: raw, Order: true}
	var items []any
	for _, p := range pairs {
		v, err := c.overlay(list.ElementType, raw[p.raw], want[p.raw], is[p.is])
		if err != nil && c.err == nil {
			c.err = err
		}
		items = append(items, v)
	}
	f.Live = items
	c.fields = append(c.fields, f)
}

// overlay is raw with the live values of what it declares.
func (c *comparer) overlay(ref schema.TypeRef, raw, want, is any) (any, error) {
	inner := comparer{schema: c.schema}
	inner.walk(nil, ref, raw, want, is)
	var edits []splice.Edit
	for _, f := range inner.fields {
		if len(f.Path) == 0 {
			return f.Live, inner.err
		}
		edits = append(edits, splice.Edit{Path: f.Path, Value: f.Live, Delete: f.Missing})
	}
	if inner.err != nil {
		return nil, inner.err
	}
	return splice.Apply(raw, edits)
}

// element is what makes an item of a list the one it is; ok is false when it has
// not all the keys.
func (c *comparer) element(list *schema.List, v any) (pe fieldpath.PathElement, ok bool) {
	m, isMap := v.(map[string]any)
	if !isMap {
		if _, nested := v.([]any); nested || v == nil {
			return pe, false
		}
		return fieldpath.ValueElement(value.NewValueInterface(v)), true
	}
	atom := c.resolve(list.ElementType)
	var keys value.FieldList
	for _, name := range list.Keys {
		key := m[name]
		if key == nil && atom.Map != nil {
			if f, known := atom.Map.FindField(name); known {
				key = f.Default
			}
		}
		if key == nil { // Kubernetes leaves an empty key out
			key = ""
		}
		keys = append(keys, value.Field{Name: name, Value: value.NewValueInterface(key)})
	}
	keys.Sort()
	return fieldpath.PathElement{Key: &keys}, len(keys) > 0
}
