package api

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2"
)

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// parseProblem turns a parser's error into a problem. What the parser says may
// quote the text (a Secret's too), so messages that do are said otherwise.
func (d document) parseProblem(path string, err error) Problem {
	p := Problem{Reason: err.Error()}.At(d.first(path))
	text := strings.TrimSuffix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "\n")
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])                                                // the expression admits digits only
		last := d.line + bytes.Count(bytes.TrimRight(d.text, "\n"), []byte("\n")) // the parser may point past the end
		p.Line, p.Column, p.Reason = min(d.line+n-1, last), 0, m[2]
	} else if rest, ok := strings.CutPrefix(text, "yaml: "); ok {
		p.Reason = rest
	}
	switch at := d.template(p.Line); {
	case at >= 0:
		p = p.At(d.place(path, at))
		p.Reason = "this is an unrendered Helm template ({{ }} outside quotes): commit what `helm template` prints, leave the file out with an ignore pattern, or put the value in quotes"
	case strings.HasPrefix(p.Reason, "invalid map key"), strings.Contains(p.Reason, "a key must be text"):
		p.Reason = `a map or list cannot be a key; text that starts with "{{" or "{" must be in quotes`
		if line, column := compositeKey(d.text); line > 0 {
			p.Line, p.Column = d.line+line-1, column
		}
	case strings.HasPrefix(p.Reason, "unknown anchor"):
		if name := strings.Split(p.Reason, "'"); len(name) > 1 {
			if i := bytes.Index(d.text, []byte("*"+name[1])); i >= 0 {
				p = p.At(d.place(path, i))
			}
		}
		p.Reason = `there is no such anchor; text that starts with "*" must be in quotes` // the name may be a password
	}
	p.Reason = "cannot be read: " + p.Reason
	return p
}

// place is that of a byte of the document.
func (d document) place(path string, at int) Place {
	before := d.text[:at]
	p := Place{Path: path, Line: d.line + bytes.Count(before, []byte("\n"))}
	p.Column = utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	if p.Line == d.line {
		p.Column += d.column
	}
	return p
}

var templateAction = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)\{\{.*?\}\}`) })

// template says where the first {{ }} stands that keeps the document from being
// read, or -1 when it is something else that does: the text cannot be read at
// that line, or can be read without the marks.
func (d document) template(line int) int {
	at := templateMark(d.text)
	if at < 0 || d.json {
		return -1
	}
	if d.place("", at).Line == line {
		return at
	}
	var plain bytes.Buffer
	for text := range bytes.Lines(templateAction().ReplaceAll(d.text, []byte("\x00"))) {
		if t := bytes.Trim(text, "\x00 \t\r\n-"); len(t) == 0 && bytes.IndexByte(text, 0) >= 0 {
			continue // a line of its own: if, range, include
		}
		plain.Write(bytes.ReplaceAll(text, []byte("\x00"), []byte("x")))
	}
	var v any
	if yamlv2.Unmarshal(plain.Bytes(), &v) != nil {
		return -1
	}
	return at
}

// templateMark finds the first {{ of a text outside of quotes, comments and block
// scalars; -1 when there is none.
func templateMark(text []byte) int {
	at := 0
	block := -1 // the indentation of the key of the block scalar that goes on
	for line := range bytes.Lines(text) {
		t := bytes.TrimRight(line, " \t\r\n")
		indent := len(t) - len(bytes.TrimLeft(t, " "))
		if block >= 0 && (len(t) == 0 || indent > block) {
			at += len(line)
			continue
		}
		block = -1
		var quote byte
		for i := 0; i < len(t); i++ {
			switch c := t[i]; {
			case quote != 0:
				if c == '\\' && quote == '"' {
					i++
				} else if c == quote {
					quote = 0
				}
			case c == '#' && (i == 0 || t[i-1] == ' '):
				t = t[:i]
			case (c == '"' || c == '\'') && (i == 0 || bytes.IndexByte([]byte(" \t[{,:-"), t[i-1]) >= 0):
				quote = c
			case c == '{' && i+1 < len(t) && t[i+1] == '{':
				return at + i
			}
		}
		t = bytes.TrimRight(t, " \t")
		if i := bytes.LastIndexAny(t, "|>"); i > 0 && (t[i-1] == ' ') && len(bytes.Trim(t[i+1:], "+-0123456789")) == 0 {
			block = indent
		}
		at += len(line)
	}
	return -1
}
