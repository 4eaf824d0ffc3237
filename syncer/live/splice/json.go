package splice

import (
	"bytes"
	"encoding/json"
	"errors"
)

// locateJSON finds the values of a JSON text.
func locateJSON(text []byte) (*node, error) {
	l := jsonLocator{text: text, dec: json.NewDecoder(bytes.NewReader(text))}
	l.dec.UseNumber()
	return l.value()
}

type jsonLocator struct {
	text []byte
	dec  *json.Decoder
}

// token reads a token and says where it starts.
func (l *jsonLocator) token() (t json.Token, start int, err error) {
	start = int(l.dec.InputOffset())
	for start < len(l.text) && (isSpace(l.text[start]) || l.text[start] == ',' || l.text[start] == ':') {
		start++
	}
	t, err = l.dec.Token()
	if err != nil {
		err = errors.New("its values cannot be located")
	}
	return t, start, err
}

func (l *jsonLocator) value() (*node, error) {
	t, start, err := l.token()
	if err != nil {
		return nil, err
	}
	out := &node{start: start, props: start, body: start, flow: true}
	switch t {
	case json.Delim('{'):
		out.kind = mapping
	case json.Delim('['):
		out.kind = sequence
	default:
		if _, ok := t.(string); ok {
			out.style = double
		}
		out.end = int(l.dec.InputOffset())
		return out, nil
	}
	for l.dec.More() {
		e := entry{}
		if out.kind == mapping {
			var k json.Token
			if k, e.start, err = l.token(); err != nil {
				return nil, err
			}
			e.name, _ = k.(string) // a JSON key is a string
		}
		if e.value, err = l.value(); err != nil {
			return nil, err
		}
		if e.after = e.value.start; out.kind == sequence {
			e.start = e.value.start
		}
		out.entries = append(out.entries, e)
	}
	if _, _, err = l.token(); err != nil {
		return nil, err
	}
	out.end = int(l.dec.InputOffset())
	return out, nil
}
