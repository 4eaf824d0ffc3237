package api

import (
	"bytes"
	"errors"
	"fmt"
)

// Text is one document of a file, as it stands there.
type Text struct {
	Offset int    // of its first byte in the file, past a byte order mark
	Bytes  []byte // a part of the file's bytes, from its "---" line on if it has one
	JSON   bool   // JSON throughout; else YAML
	doc    document
}

// Texts cuts a file into its documents as DecodeFile does. Documents without
// content are among them.
func Texts(data []byte) ([]Text, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("the file has %d bytes; at most %d can be read", len(data), MaxFileBytes)
	}
	docs := split(ended(data))
	if len(docs) > MaxDocuments {
		return nil, fmt.Errorf("the file has %d documents; at most %d can be read", len(docs), MaxDocuments)
	}
	out := make([]Text, 0, len(docs))
	at := len(data) - len(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	for i, d := range docs {
		switch rest := data[at:]; {
		case d.json:
			at += len(rest) - len(bytes.TrimLeft(rest, " \t\r\n"))
		case i > 0 && bytes.HasPrefix(rest, []byte("...")):
			if end := bytes.IndexByte(rest, '\n'); end >= 0 {
				at += end + 1
			} else {
				at = len(data)
			}
		}
		end := min(at+len(d.text), len(data))
		out = append(out, Text{Offset: at, Bytes: data[at:end:end], JSON: d.json, doc: d})
		at = end
	}
	return out, nil
}

// Blank says whether the document has no content: only comments and white space.
func (t Text) Blank() bool { return t.doc.blank() }

// Value reads the document as DecodeFile does before it looks at kinds: YAML 1.1,
// merge keys and aliases expanded. It holds only map[string]any, []any, string,
// bool, int64, float64 and nil, and is new at each call. The error quotes no value
// of the text.
func (t Text) Value() (any, error) {
	v, _, err := t.doc.value()
	if err != nil {
		return nil, errors.New(t.doc.parseProblem("", err).Reason)
	}
	return v, nil
}
