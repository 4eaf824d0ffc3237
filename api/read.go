package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
)

// Document is one document of a file, read as strictly as a manifest and of no
// kind yet.
type Document struct {
	// Value is what it holds: map[string]any, []any, string, bool, int64 and
	// float64, one inside the other.
	Value any
	First Place // of the first key
	path  string
	doc   document
}

// Documents reads every document of a file, those that hold nothing left out.
func Documents(path string, data []byte) ([]Document, []Problem) {
	var docs []Document
	var problems []Problem
	eachDocument(path, data, func(p Problem) { problems = append(problems, p) }, func(doc document, v any) bool {
		docs = append(docs, Document{Value: v, First: doc.first(path), path: path, doc: doc})
		return len(problems) < maxProblems
	})
	return docs, problems
}

// Unparsed finds the documents of a file that are neither YAML nor JSON, whatever they
// are meant as.
func Unparsed(path string, data []byte) (problems []Problem) {
	for _, doc := range split(data) {
		if doc.blank() {
			continue
		}
		if _, _, err := doc.parse(); err != nil && len(problems) < maxProblems {
			problems = append(problems, doc.parseProblem(path, err))
		}
	}
	return problems
}

// Place gives the place of a field, or of what is nearest above it. found says
// that the document has the field itself.
func (d Document) Place(field string) (at Place, found bool) {
	root := d.doc.mapped().root
	if root == nil || field == "" {
		return d.First, field == ""
	}
	p, rest := root.find(field)
	if p == root {
		return d.First, false
	}
	return Place{d.path, p.line, p.column}, rest == ""
}

// Into decodes the document into a struct, a pointer to which is v, and finds
// every field that the struct does not have and every value of the wrong type.
// read says that v holds what the document says.
func (d Document) Into(v any) (problems []Problem, read bool) {
	fail := func(field, reason string) []Problem {
		at, _ := d.Place(field)
		return []Problem{Problem{Field: field, Reason: reason}.At(at)}
	}
	m, ok := runtime.DeepCopyJSONValue(d.Value).(map[string]any) // the shape drops nulls
	if !ok {
		return fail("", "must be a map, not "+noun(d.Value)), false
	}
	var s shape
	s.value("", reflect.TypeOf(v), m)
	for _, p := range s.problems {
		problems = append(problems, fail(p.Field, p.Reason)...)
	}
	if s.broken {
		return problems, false
	}
	data, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return append(problems, fail("", "cannot be read as "+strings.ToLower(reflect.TypeOf(v).Elem().Name()))...), false
	}
	return problems, true
}

// eachDocument reads the documents of a file in their order, until visit returns
// false. Blank ones and those that hold null are left out.
func eachDocument(path string, data []byte, report func(Problem), visit func(doc document, v any) bool) {
	if len(data) > MaxFileBytes {
		report(Problem{Path: path, Reason: fmt.Sprintf("the file has %d bytes; at most %d can be read: split it", len(data), MaxFileBytes)})
		return
	}
	docs := split(data)
	if len(docs) > MaxDocuments {
		report(Problem{Path: path, Reason: fmt.Sprintf("the file has %d documents; at most %d can be read: split it", len(docs), MaxDocuments)})
		return
	}
	unreadable := 0
	for _, doc := range docs {
		if doc.blank() {
			continue
		}
		v, twice, err := doc.value()
		if err != nil {
			report(doc.parseProblem(path, err))
			if unreadable++; unreadable >= maxProblems {
				return
			}
			continue
		}
		if twice {
			for _, p := range doc.duplicates(path) {
				report(p)
			}
		}
		if v != nil && !visit(doc, v) {
			return
		}
	}
}

// duplicates reports the keys that stand twice. A key after a merge key may
// override what the merge brought.
func (d document) duplicates(path string) []Problem {
	var problems []Problem
	for _, t := range slices.Compact(d.mapped().twice) {
		reason := fmt.Sprintf("key already set in line %d", t.first)
		if t.merge {
			reason += `; put "<<" before it`
		}
		problems = append(problems, Problem{Path: path, Line: t.line, Column: t.column, Field: t.field, Reason: reason})
	}
	return problems
}

func (d document) blank() bool {
	for line := range bytes.Lines(d.text) {
		t := bytes.TrimSpace(line)
		if len(t) > 0 && t[0] != '#' && !bytes.Equal(t, []byte("---")) {
			return false
		}
	}
	return true
}

// first is the place of the first key: past markers, comments and blanks.
func (d document) first(path string) Place {
	line := d.line
	for text := range bytes.Lines(d.text) {
		t := bytes.TrimSpace(text)
		if len(t) > 0 && t[0] != '#' && t[0] != '%' && !bytes.Equal(t, []byte("---")) && !bytes.HasPrefix(t, []byte("--- #")) {
			at := bytes.Index(text, t)
			if rest, ok := bytes.CutPrefix(t, []byte("--- ")); ok {
				at += len(t) - len(bytes.TrimLeft(rest, " \t"))
			}
			column := utf8.RuneCount(text[:at]) + 1
			if line == d.line {
				column += d.column
			}
			return Place{path, line, column}
		}
		if bytes.HasSuffix(text, []byte("\n")) {
			line++
		}
	}
	return Place{path, d.line, d.column + 1}
}

// origin tells where the objects of the document stand.
func (d document) origin(path string) origin {
	first := sync.OnceValue(func() Place { return d.first(path) })
	return origin{first: first(), find: func(at string) func(string) Place {
		root := sync.OnceValue(func() *place {
			root := d.mapped().root
			if root == nil {
				return nil
			}
			p, _ := root.find(strings.TrimSuffix(at, "."))
			return p
		})
		return func(field string) Place {
			p := root()
			if p == nil || field == "" && at == "" {
				return first()
			}
			found, _ := p.find(field)
			if rest, ok := strings.CutPrefix(field, "data"); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				if in, _ := p.find("stringData" + rest); in != p && (found == p || found == p.fields["data"] && in != p.fields["stringData"]) {
					found = in
				}
			}
			if found == p && at == "" {
				return first()
			}
			return Place{path, found.line, found.column}
		}
	}}
}
