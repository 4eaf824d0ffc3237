package splice

import (
	"bytes"
	"strings"
)

// frame is what a value takes of the text: a part of the line of its key or dash,
// and the lines below.
type frame struct {
	from, to int // maybe nothing
	cut, end int // from the end of a line on; cut == end when there is nothing below
}

func (e *editor) frame(n *node, p place) frame {
	f := frame{from: n.body, to: n.end}
	switch {
	case (n.kind == mapping || n.kind == sequence) && !n.flow && bol(e.text, n.body) > p.after:
		// A block that hangs below its key.
		f.from = p.after
		if n.props > n.start {
			f.from = n.props
		}
		f.to = f.from
	case n.style == literal || n.style == folded:
		f.to = n.head
	default:
		f.cut = eol(e.text, f.to)
		f.end = f.cut
		return f
	}
	f.cut = eol(e.text, f.to)
	f.end = max(f.cut, n.end)
	return f
}

// replace writes v where n is. An anchor stays; a tag goes, as it may not fit v.
func (e *editor) replace(n *node, v any, p place, note string) {
	if p == (place{}) {
		e.fail("a document can be taken away, and not be another as a whole")
		return
	}
	if (n.kind == mapping || n.kind == sequence) && n.flow && e.text[n.body] != '{' && e.text[n.body] != '[' {
		e.fail("a pair in a list without braces cannot be edited in place")
		return
	}
	f := e.frame(n, p)
	prefix := ""
	if props := bytes.Fields(e.text[n.start:n.props]); bytes.ContainsRune(e.text[n.start:n.props], '!') {
		f.from = n.start
		for _, word := range props {
			if word[0] == '&' {
				prefix = string(word) + " "
			}
		}
	}
	anchored := n.anchor
	if p.flow || n.flow && !small(v) {
		e.write(f, prefix+e.w.flow(v, n.style, e.indent(n.start)), nil)
		e.note(f.to, note, p)
		return
	}
	if p.item && !anchored && !small(v) {
		// The first line of a map or list stands behind the dash.
		body := e.w.block(v, e.inlineColumn(n, p))
		body[0] = strings.TrimLeft(body[0], " ")
		e.write(f, strings.Join(body, e.w.nl), nil)
		return
	}
	head, body := e.w.value(v, n.style, e.column(n, p), p)
	e.write(f, strings.TrimRight(prefix+head, " "), body)
	e.note(f.to, note, p)
}

// small says whether v has nothing inside.
func small(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return true
}

// write puts head where the frame begins and body below.
func (e *editor) write(f frame, head string, body []string) {
	switch {
	case head == "":
		for f.from > 0 && (e.text[f.from-1] == ' ' || e.text[f.from-1] == '\t') {
			f.from--
		}
	case f.from == f.to:
		if f.from > 0 && !isSpace(e.text[f.from-1]) && strings.IndexByte("[{,", e.text[f.from-1]) < 0 {
			head = " " + head
		}
		if f.to < len(e.text) && !isSpace(e.text[f.to]) && !isFlow(e.text[f.to]) {
			head += " "
		}
	}
	if f.from < f.to || head != "" {
		e.patch(f.from, f.to, head)
	}
	if below := e.lines(body); f.cut < f.end || below != "" {
		e.patch(f.cut, f.end, below)
	}
}

// lines puts the text's line end before each line.
func (e *editor) lines(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(e.w.nl)
		b.WriteString(line)
	}
	return b.String()
}

// note puts a comment at the end of the line of i, if nothing else is there.
func (e *editor) note(i int, note string, p place) {
	if note == "" || p.flow {
		return
	}
	if end := eol(e.text, i); len(bytes.TrimSpace(e.text[i:end])) == 0 {
		e.patch(i, end, " # "+note)
	}
}

// indent is the white space that the line of i starts with.
func (e *editor) indent(i int) string {
	line := e.text[bol(e.text, i):i]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// startsLine says whether only white space is before i in its line.
func (e *editor) startsLine(i int) bool {
	return len(bytes.TrimLeft(e.text[bol(e.text, i):i], " \t")) == 0
}

// column is where the lines of a value below its key begin.
func (e *editor) column(n *node, p place) int {
	if n.style == literal || n.style == folded {
		if bytes.ContainsAny(e.text[n.body:n.head], "123456789") {
			return p.col + e.w.step
		}
		for at := newline(e.text, n.head); at < n.end; at = newline(e.text, at) {
			line := e.text[at:eol(e.text, at)]
			if text := bytes.TrimLeft(line, " "); len(text) > 0 {
				return len(line) - len(text)
			}
		}
	}
	return p.col + e.w.step
}

// inlineColumn is the column of a value behind a dash.
func (e *editor) inlineColumn(n *node, p place) int {
	if n.body > p.after && bol(e.text, n.body) < p.after {
		return p.col + n.body - p.after + 1
	}
	return p.col + 2
}
