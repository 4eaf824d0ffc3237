package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// shape compares a document with the Go type of its kind and finds everything
// that does not fit, where Kubernetes' decoder stops at the first: unknown
// fields, and values of the wrong type. On the way it puts the document into its
// plain form: a field whose value is null is the same as no field.
type shape struct {
	problems []Problem // Field and Reason only
	broken   bool      // a problem after which the document cannot be decoded
}

func (s *shape) wrong(path, format string, args ...any) {
	s.broken = true
	s.add(path, format, args...)
}

func (s *shape) add(path, format string, args ...any) {
	if len(s.problems) < maxProblems {
		s.problems = append(s.problems, Problem{Field: path, Reason: fmt.Sprintf(format, args...)})
	}
}

// value checks v against t and returns its plain form.
func (s *shape) value(path string, t reflect.Type, v any) any {
	if v == nil {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		return s.value(path, t.Elem(), v)
	}
	if reflect.PointerTo(t).Implements(unmarshaler()) {
		s.custom(path, t, v)
		return v
	}
	switch t.Kind() {
	case reflect.Struct:
		m, ok := v.(map[string]any)
		if !ok {
			s.wrong(path, "must be a map, not %s", noun(v))
			return v
		}
		s.structure(path, t, m)
	case reflect.Map:
		m, ok := v.(map[string]any)
		if !ok {
			s.wrong(path, "must be a map, not %s", noun(v))
			return v
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if m[k] == nil && t.Elem().Kind() == reflect.String {
				m[k] = ""
			}
			m[k] = s.value(path+"["+k+"]", t.Elem(), m[k])
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			s.bytes(path, v)
			return v
		}
		l, ok := v.([]any)
		if !ok {
			s.wrong(path, "must be a list, not %s", noun(v))
			return v
		}
		for i := range l {
			l[i] = s.value(path+nth(i), t.Elem(), l[i])
		}
	default:
		s.scalar(path, t, v)
	}
	return v
}

func (s *shape) structure(path string, t reflect.Type, m map[string]any) {
	known := fieldsOf(t)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		ft, ok := known[name]
		if !ok {
			at := join(path, name)
			if near := nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
				s.add(at, "unknown field: did you mean %q?", near)
			} else {
				s.add(at, "unknown field")
			}
			continue
		}
		if m[name] == nil {
			delete(m, name)
			continue
		}
		m[name] = s.value(join(path, name), ft, m[name])
	}
}

// custom lets a type that reads itself (a quantity, a time, a port that may be a
// name) judge its own value.
func (s *shape) custom(path string, t reflect.Type, v any) {
	data, err := json.Marshal(v)
	if err == nil {
		err = reflect.New(t).Interface().(json.Unmarshaler).UnmarshalJSON(data)
	}
	if err != nil {
		s.wrong(path, "%v", err)
	}
}

func (s *shape) bytes(path string, v any) {
	text, ok := v.(string)
	if !ok {
		s.wrong(path, "must be base64 text, not %s", noun(v))
		return
	}
	if _, err := base64.StdEncoding.DecodeString(text); err != nil {
		s.wrong(path, "must be base64: %v", err)
	}
}

func (s *shape) scalar(path string, t reflect.Type, v any) {
	switch t.Kind() {
	case reflect.String:
		if _, ok := v.(string); ok {
			return
		}
		hint := ""
		switch v.(type) {
		case bool, int64, float64:
			hint = ": put it in quotes"
		}
		s.wrong(path, "must be a string, not %s%s", noun(v), hint)
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			s.wrong(path, "must be true or false, not %s", noun(v))
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, ok := v.(int64)
		if f, isFloat := v.(float64); isFloat && f == math.Trunc(f) && math.Abs(f) < 1e18 {
			n, ok = int64(f), true
		}
		if _, text := v.(string); text {
			s.wrong(path, "must be a number, not a string: remove the quotes")
		} else if !ok {
			s.wrong(path, "must be a whole number, not %s", noun(v))
		} else if reflect.New(t).Elem().OverflowInt(n) {
			s.wrong(path, "must be a number of %d bits", t.Bits())
		}
	case reflect.Float32, reflect.Float64:
		switch v.(type) {
		case int64, float64:
		default:
			s.wrong(path, "must be a number, not %s", noun(v))
		}
	case reflect.Interface:
	default:
		s.wrong(path, "has the type %s, which no manifest can hold", t)
	}
}

// noun names the type of a value, never the value: it may be a secret.
func noun(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64:
		return "a number"
	case float64:
		if v == math.Trunc(v) {
			return "a number"
		}
		return "a fraction"
	case []any:
		return "a list"
	default:
		return "a map"
	}
}

func unmarshaler() reflect.Type { return reflect.TypeFor[json.Unmarshaler]() }

// fieldsOf gives the JSON fields of a struct type.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := structFields()[t]; ok {
		return known
	}
	return collect(t)
}

// structFields holds the fields of every struct type that a declarable kind is
// made of.
var structFields = sync.OnceValue(func() map[reflect.Type]map[string]reflect.Type {
	out := map[reflect.Type]map[string]reflect.Type{}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(t.Elem())
		case reflect.Struct:
			if out[t] != nil || reflect.PointerTo(t).Implements(unmarshaler()) {
				return
			}
			out[t] = collect(t)
			for _, ft := range out[t] {
				visit(ft)
			}
		}
	}
	for _, k := range table() {
		visit(reflect.TypeOf(k.Prototype))
	}
	return out
})

func collect(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			maps.Copy(out, collect(inner))
		case name == "":
			out[f.Name] = f.Type
		default:
			out[name] = f.Type
		}
	}
	return out
}
