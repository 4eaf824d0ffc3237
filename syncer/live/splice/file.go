package splice

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"headway.dev/headway/api"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Edit changes one value of a file.
type Edit struct {
	Document int // number of the document, as api.Texts counts
	// Path leads to the value: fields, list items by index, by their merge keys or
	// by their value. It is looked up in the document as it was before the edits.
	// The last field may be missing, and is made. Empty: the document itself.
	Path   fieldpath.Path
	Value  any    // map[string]any, []any, string, bool, number or nil
	Delete bool   // take the key, the item or the document away; Value is not used
	Note   string // a comment behind the value, where its style allows one
}

// File does the edits and returns the new bytes, or nil when no document with
// content is left. It is an error when one edit is inside another, or when a
// place is not there.
func File(data []byte, edits []Edit) ([]byte, error) {
	texts, err := api.Texts(data)
	if err != nil {
		return nil, err
	}
	byDocument := map[int][]Edit{}
	for _, e := range edits {
		if e.Document < 0 || e.Document >= len(texts) {
			return nil, fmt.Errorf("document %d is not in the file", e.Document)
		}
		byDocument[e.Document] = append(byDocument[e.Document], e)
	}
	var out bytes.Buffer
	done, content, left := 0, false, 0
	for i, t := range texts {
		from, to := t.Offset, t.Offset+len(t.Bytes)
		of := byDocument[i]
		switch {
		case len(of) == 0:
			content = content || !t.Blank()
			left++
		case slices.ContainsFunc(of, func(e Edit) bool { return len(e.Path) == 0 }):
			if len(of) > 1 || !of[0].Delete {
				return nil, errors.New("a document can be taken away, and nothing else be done to it as a whole")
			}
			out.Write(data[done:from])
			done = behind(data, to, t.JSON)
		default:
			text, err := document(t, of)
			if err != nil {
				return nil, err
			}
			out.Write(data[done:from])
			out.Write(text)
			done = to
			content = true
			left++
		}
	}
	out.Write(data[done:])
	if !content {
		return nil, nil
	}
	after, err := api.Texts(out.Bytes())
	if err != nil {
		return nil, err
	}
	if n := count(after); n != count(texts)-(len(texts)-left) {
		return nil, fmt.Errorf("the edited file would have %d documents", n)
	}
	return out.Bytes(), nil
}

// count is the number of documents with content.
func count(texts []api.Text) int {
	n := 0
	for _, t := range texts {
		if !t.Blank() {
			n++
		}
	}
	return n
}

// behind is where the file goes on after a document that ends at to is taken
// away: past a "..." line, or the white space up to the next JSON value.
func behind(data []byte, to int, json bool) int {
	rest := data[to:]
	if json {
		return to + len(rest) - len(bytes.TrimLeft(rest, " \t\r\n"))
	}
	line := rest
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		line = rest[:i+1]
	}
	if bytes.HasPrefix(line, []byte("...")) {
		return to + len(line)
	}
	return to
}

// Apply does the edits to a document's value and returns the new one; v is not
// changed. Document and Note of the edits are not looked at.
func Apply(v any, edits []Edit) (any, error) {
	c := &change{}
	for _, e := range edits {
		if err := c.add(v, e); err != nil {
			return nil, err
		}
	}
	return c.apply(v), nil
}

// maxRounds bounds how often the result is compared and mended: a value that an
// anchor shares takes two rounds, or three.
const maxRounds = 6

// document edits one document.
func document(t api.Text, edits []Edit) ([]byte, error) {
	old, err := t.Value()
	if err != nil {
		return nil, err
	}
	todo := &change{}
	for _, e := range edits {
		if err := todo.add(old, e); err != nil {
			return nil, err
		}
	}
	out, err := rewrite(t, old, todo, false)
	if err != nil {
		// What follows a block text may run into it: blanks at the end of a file.
		if quoted, err := rewrite(t, old, todo, true); err == nil {
			return quoted, nil
		}
	}
	return out, err
}

// rewrite makes old, the value of t, what todo says. quoted keeps from writing
// block texts.
func rewrite(t api.Text, old any, todo *change, quoted bool) ([]byte, error) {
	want, text := todo.apply(old), t.Bytes
	for range maxRounds {
		if equal(old, want) {
			return text, nil
		}
		root, err := locate(text, t.JSON)
		if err != nil {
			return nil, err
		}
		e := newEditor(text, root, t.JSON)
		e.w.quoted = quoted
		e.change(root, old, want, todo, place{})
		lost := e.lost(root)
		if len(lost) > 0 {
			// Someone else still uses an anchor that goes: write his values out
			// first, which changes nothing else.
			e.patches = nil
			e.writeOut(root, old, lost, place{})
		}
		if text, err = e.result(); err != nil {
			return nil, err
		}
		if old, err = read(text); err != nil {
			return nil, fmt.Errorf("the edited text: %w", err)
		}
		if len(lost) == 0 {
			todo = diff(old, want)
		}
	}
	return nil, errors.New("cannot be edited in place: the edited text does not read as it should")
}

// read is the value of a text of one document.
func read(text []byte) (any, error) {
	texts, err := api.Texts(text)
	if err != nil {
		return nil, err
	}
	texts = slices.DeleteFunc(texts, api.Text.Blank)
	if len(texts) != 1 {
		return nil, errors.New("is not one document")
	}
	return texts[0].Value()
}
