package api

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Place is where something stands in the source's tree.
type Place struct {
	Path   string // file, from the tree's root
	Line   int    // from 1; 0 when not known
	Column int    // from 1, in characters; 0 when not known
}

// String returns the place as path:line:column, as far as it is known. What
// cannot be printed is escaped.
func (p Place) String() string {
	s := Printable(p.Path)
	if p.Line > 0 {
		s += fmt.Sprintf(":%d", p.Line)
		if p.Column > 0 {
			s += fmt.Sprintf(":%d", p.Column)
		}
	}
	return s
}

// Printable escapes what a terminal or a log would not show as it is: control
// characters, invisible ones, and bytes that are not UTF-8.
func Printable(s string) string {
	plain := true
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}

// Problem is one thing that is wrong with a manifest.
type Problem struct {
	Path   string // file in the source's tree
	Line   int    // from 1; 0 when no line can be known
	Column int    // from 1, in characters; 0 when not known
	Field  string // "spec.template.spec.containers[0].image"; "" for the document as a whole
	Reason string // what is wrong and what to do
}

// String returns the problem as path:line:column: field: reason, in one line.
func (p Problem) String() string {
	var parts []string
	for _, s := range []string{Place{p.Path, p.Line, p.Column}.String(), Printable(p.Field), Printable(p.Reason)} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// At gives the problem a place.
func (p Problem) At(at Place) Problem {
	p.Path, p.Line, p.Column = at.Path, at.Line, at.Column
	return p
}

// Manifest is one document that declares one object.
type Manifest struct {
	Object Object // decoded and defaulted, the v1 type
	Kind   Kind
	Path   string // file in the source's tree
	Line   int    // of the document's first key, from 1
	Column int    // of the same, from 1
	// Unit is the directory of the kustomization that rendered the object, "."
	// for the tree's root; "" for a document that is its own manifest.
	Unit string
	Hash string // ManifestHash
	// Declared is the document as written, after stringData is folded into data
	// and what asks a Service to be given an address or a port is left out:
	// maps, slices, strings, numbers, bools. The paths present in it are the
	// declared fields (D6).
	Declared map[string]any
	// Warnings say what of the document is ignored although it may stay.
	Warnings []Problem
	// Where gives the place that the value of a declared field comes from:
	// "spec.replicas" → line 7. For a rendered object that may be another file
	// than Path, such as a patch. The longest known prefix answers for a field
	// that the document does not have. May be nil; see Place.
	Where func(field string) Place
}

// Place gives the place of a declared field, or that of the document when no
// more is known.
func (m Manifest) Place(field string) Place {
	if m.Where != nil {
		if at := m.Where(field); at.Line > 0 {
			return at
		}
	}
	return Place{m.Path, m.Line, m.Column}
}
