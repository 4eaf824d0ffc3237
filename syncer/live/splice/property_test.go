package splice_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/live/splice"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// rounded is v as the text has it.
func rounded(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = rounded(e)
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, rounded(e))
		}
		return out
	case float64:
		var f float64
		if _, err := fmt.Sscanf(fmt.Sprintf("%.6f", v), "%g", &f); err != nil {
			panic(err)
		}
		return f
	}
	return v
}

// place is a value inside a value.
type place struct {
	path  fieldpath.Path
	name  string
	value any
	only  bool // of its map or list
	in    string
}

func places(v any, at place) (out []place) {
	add := func(pe fieldpath.PathElement, name string, e any, n int) {
		p := place{path: append(slices.Clone(at.path), pe), name: at.name + "/" + name, value: e, only: n == 1, in: at.name}
		out = append(append(out, p), places(e, p)...)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			add(fieldpath.FieldNameElement(k), k, v[k], len(v))
		}
	case []any:
		for i, e := range v {
			add(fieldpath.IndexElement(i), fmt.Sprint(i), e, len(v))
		}
	}
	return out
}

// repeat puts some of the values of m into it again, so that there is something to
// share.
func repeat(t *rapid.T, m map[string]any) map[string]any {
	for range rapid.IntRange(0, 2).Draw(t, "repeats") {
		p := rapid.SampledFrom(places(m, place{})).Draw(t, "repeated")
		again := p.value
		if inner, ok := again.(map[string]any); ok && rapid.Bool().Draw(t, "with more") {
			more := maps.Clone(inner)
			more["more"] = int64(1)
			again = more
		}
		m[rapid.SampledFrom([]string{"again", "zagain", "a"}).Draw(t, "as")] = again
	}
	return m
}

// TestProperty makes a text, edits it, and finds exactly the edited value and
// every other line as it was.
func TestProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := rounded(objects(3).Filter(func(v any) bool { return len(v.(map[string]any)) > 1 }).Draw(t, "value"))
		root = repeat(t, root.(map[string]any))
		s := &sheet{t: t, spans: map[string][2]int{}, inner: map[string]bool{}, first: map[string]bool{}, share: rapid.Bool().Draw(t, "anchors")}
		s.comment(0)
		s.add("")
		s.fields("", root.(map[string]any), "", 0)
		s.comment(0)
		nl := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "line end")
		text := strings.Join(s.lines, nl) + rapid.SampledFrom([]string{"", nl}).Draw(t, "end")
		if got := readOne(t, text); !reflect.DeepEqual(got, root) {
			t.Fatalf("the test writes wrong:\n%s\nreads %#v\nnot   %#v", text, got, root)
		}

		edits, touched := drawEdits(t, root, s)
		want, err := splice.Apply(root, edits)
		if err != nil {
			t.Fatal(err)
		}
		out, err := splice.File([]byte(text), edits)
		if err != nil {
			t.Fatalf("%v\n%s\nedits %v", err, text, edits)
		}
		if got := readOne(t, string(out)); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\nbecame\n%s\nreads %#v\nnot   %#v", text, out, got, want)
		}
		if s.share { // other lines change with an anchor
			return
		}
		rest := strings.Split(string(out), nl)
		for i, line := range s.lines {
			if touched[i] {
				continue
			}
			at := slices.Index(rest, line)
			if at < 0 {
				t.Fatalf("line %d %q was changed or moved:\n%s\nbecame\n%s\nedits %v", i+1, line, text, out, edits)
			}
			rest = rest[at+1:]
		}
	})
}

// drawEdits draws some edits and the lines that they may change.
func drawEdits(t *rapid.T, root any, s *sheet) (edits []splice.Edit, touched map[int]bool) {
	touched = map[int]bool{}
	all := places(root, place{})
	taken := func(name string) bool {
		return slices.ContainsFunc(edits, func(e splice.Edit) bool {
			other := nameOf(e.Path)
			return strings.HasPrefix(name+"/", other+"/") || strings.HasPrefix(other+"/", name+"/")
		})
	}
	touch := func(name string) {
		for s.inner[name] && s.inner[name[:strings.LastIndex(name, "/")]] {
			name = name[:strings.LastIndex(name, "/")]
		}
		span, ok := s.spans[name]
		if !ok {
			span = [2]int{0, len(s.lines) - 1}
		}
		for i := span[0]; i <= span[1]; i++ {
			touched[i] = true
		}
	}
	for range rapid.IntRange(1, 3).Draw(t, "edits") {
		p := rapid.SampledFrom(all).Draw(t, "place")
		if taken(p.name) {
			continue
		}
		e := splice.Edit{Path: p.path}
		what := rapid.SampledFrom([]string{"set", "set", "delete", "insert"}).Draw(t, "what")
		if m, ok := p.value.(map[string]any); what == "insert" && ok && len(m) > 0 && m["new"] == nil {
			e.Path, e.Value = append(slices.Clone(p.path), fieldpath.FieldNameElement("new")), rapid.Map(values(2), rounded).Draw(t, "new")
			if s.inner[p.name] {
				touch(p.name)
			}
			edits = append(edits, e)
			continue
		}
		touch(p.name)
		if what != "delete" {
			e.Value = rapid.Map(values(2), rounded).Draw(t, "new")
			edits = append(edits, e)
			continue
		}
		if slices.ContainsFunc(all, func(o place) bool { return o.in == p.in && o.name != p.name && taken(o.name) }) || p.only && len(p.path) == 1 {
			continue
		}
		e.Delete = true
		edits = append(edits, e)
		if p.only {
			touch(p.in)
		}
		if s.first[p.name] && !p.only { // the next comes up behind the dash
			for i := s.spans[p.name][1] + 1; i < len(s.lines); i++ {
				touched[i] = true
				if strings.TrimSpace(s.lines[i]) != "" {
					break
				}
			}
		}
	}
	return edits, touched
}

func nameOf(path fieldpath.Path) (name string) {
	for _, pe := range path {
		if pe.FieldName != nil {
			name += "/" + *pe.FieldName
		} else {
			name += fmt.Sprint("/", *pe.Index)
		}
	}
	return name
}

func readOne(t interface{ Fatalf(string, ...any) }, text string) any {
	docs, err := api.Texts([]byte(text))
	if err != nil {
		t.Fatalf("%v", err)
	}
	docs = slices.DeleteFunc(docs, api.Text.Blank)
	if len(docs) != 1 {
		t.Fatalf("%d documents in %q", len(docs), text)
	}
	v, err := docs[0].Value()
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

// TestPropertyJSON does the same to JSON.
func TestPropertyJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := objects(3).Filter(func(v any) bool { return len(v.(map[string]any)) > 0 }).Draw(t, "value")
		indent := rapid.SampledFrom([]string{"", "  ", "\t"}).Draw(t, "indent")
		text, err := json.Marshal(root)
		if indent != "" {
			text, err = json.MarshalIndent(root, "", indent)
		}
		if err != nil {
			t.Fatal(err)
		}
		root = readOne(t, string(text))
		p := rapid.SampledFrom(places(root, place{})).Draw(t, "place")
		e := splice.Edit{Path: p.path, Value: values(2).Draw(t, "new")}
		e.Delete = rapid.Bool().Draw(t, "delete") && !(p.only && len(p.path) == 1)
		want, err := splice.Apply(root, []splice.Edit{e})
		if err != nil {
			t.Fatal(err)
		}
		out, err := splice.File(text, []splice.Edit{e})
		if err != nil {
			t.Fatalf("%v\n%s\nedit %v", err, text, e)
		}
		if !json.Valid(out) {
			t.Fatalf("not JSON: %s", out)
		}
		if got := readOne(t, string(out)); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\nbecame\n%s\nreads %#v\nnot   %#v", text, out, got, want)
		}
	})
}
