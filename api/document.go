package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2"
)

// Bounds of what one file may hold. They are far above what people write and
// low enough that no file can make the process run out of memory.
const (
	MaxFileBytes = 8 << 20
	MaxDocuments = 10_000
	maxDepth     = 200
	maxNodes     = 1_000_000 // values in one document, aliases expanded
	maxProblems  = 1_000     // per file
)

// document is one YAML or JSON document of a file.
type document struct {
	text   []byte
	line   int // of its first byte in the file, from 1
	column int // characters before its first byte in that line
	json   bool
	mapped func() mapped // where everything stands, worked out when first asked for
}

type mapped struct {
	root  *place // nil when the document cannot be read
	twice []duplicate
}

func newDocument(text []byte, line, column int, json bool) document {
	d := document{text: text, line: line, column: column, json: json}
	d.mapped = sync.OnceValue(d.places)
	return d
}

// split cuts a file into its documents. A file that starts with "{" and is JSON
// throughout is a stream of JSON values; every other file is YAML, cut at lines
// that start with "---" or "...". Such a line cannot stand inside a YAML value.
func split(data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		if docs, ok := splitJSON(data); ok {
			return docs
		}
	}
	var docs []document
	start, startLine := 0, 1
	for at, line := 0, 1; at < len(data); line++ {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		text := data[at:end]
		switch {
		case marker(text, "---"):
			docs = append(docs, newDocument(data[start:at], startLine, 0, false))
			start, startLine = at, line
		case marker(text, "..."):
			docs = append(docs, newDocument(data[start:at], startLine, 0, false))
			start, startLine = end, line+1
		}
		at = end
	}
	return append(docs, newDocument(data[start:], startLine, 0, false))
}

// marker says whether a line is the document marker m: alone or before a blank.
func marker(line []byte, m string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(m))
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

func splitJSON(data []byte) ([]document, bool) {
	var docs []document
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs, len(docs) > 0
		}
		if err != nil {
			return nil, false
		}
		start := int(dec.InputOffset()) - len(raw)
		column := utf8.RuneCount(data[bytes.LastIndexByte(data[:start], '\n')+1 : start])
		docs = append(docs, newDocument(raw, 1+bytes.Count(data[:start], []byte("\n")), column, true))
	}
}

// value reads the document the way Kubernetes does: YAML 1.1 (0644 is octal, yes
// is true), merge keys and aliases expanded. The result holds only
// map[string]any, []any, string, bool, int64, float64 and nil. twice says that a
// key may stand twice in a map; places finds which.
func (d document) value() (v any, twice bool, err error) {
	if v, twice, err = d.parse(); err != nil {
		return nil, false, err
	}
	v, err = plain(v)
	return v, twice, err
}

// parse is value in the parser's types.
func (d document) parse() (v any, twice bool, err error) {
	if d.json {
		dec := json.NewDecoder(bytes.NewReader(d.text))
		dec.UseNumber()
		err = dec.Decode(&v)
		return v, true, err
	}
	if err = yamlv2.UnmarshalStrict(d.text, &v); err != nil {
		var kept *yamlv2.TypeError
		if !errors.As(err, &kept) {
			return nil, false, err
		}
		v, twice = nil, true // the strict reading also refuses to override a merged key
		if err = yamlv2.Unmarshal(d.text, &v); err != nil {
			return nil, false, err
		}
	}
	return v, twice, nil
}

// plain turns what a parser gives into JSON's types.
func plain(v any) (any, error) {
	nodes := 0
	return plainValue(v, 0, &nodes)
}

func plainValue(v any, depth int, nodes *int) (any, error) {
	if *nodes++; *nodes > maxNodes {
		return nil, fmt.Errorf("more than %d values in one document", maxNodes)
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case map[any]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			key, err := plainKey(k)
			if err != nil {
				return nil, err
			}
			if _, twice := out[key]; twice {
				return nil, errors.New("a key stands twice in a map, once in quotes and once not")
			}
			if out[key], err = plainValue(e, depth+1, nodes); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		for k, e := range v {
			e, err := plainValue(e, depth+1, nodes)
			if err != nil {
				return nil, err
			}
			v[k] = e
		}
		return v, nil
	case []any:
		for i, e := range v {
			e, err := plainValue(e, depth+1, nodes)
			if err != nil {
				return nil, err
			}
			v[i] = e
		}
		return v, nil
	case int:
		return int64(v), nil
	case uint64:
		return float64(v), nil
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return i, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("number out of range")
		}
		return f, nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("not-a-number and infinity cannot be a value; put it in quotes if it is text")
		}
		return v, nil
	case nil, string, bool, int64:
		return v, nil
	}
	return nil, fmt.Errorf("a value of type %T cannot stand in a manifest", v)
}

// plainKey writes a YAML key as Kubernetes would: 1 is "1", yes is "true".
func plainKey(k any) (string, error) {
	switch k := k.(type) {
	case string:
		return k, nil
	case int:
		return strconv.Itoa(k), nil
	case int64:
		return strconv.FormatInt(k, 10), nil
	case float64:
		return strconv.FormatFloat(k, 'g', -1, 32), nil
	case bool:
		return strconv.FormatBool(k), nil
	}
	return "", errors.New("a key must be text; put it in quotes")
}
