package splice

import (
	"bytes"
	"strings"
)

// removals takes the entries away that are gone; not all are.
func (e *editor) removals(n *node, gone []bool, p place) {
	for i := 0; i < len(gone); i++ {
		if !gone[i] {
			continue
		}
		first := i
		for i+1 < len(gone) && gone[i+1] {
			i++
		}
		from, to := n.entries[first], n.entries[i]
		switch {
		case n.flow && i+1 < len(gone):
			e.patch(from.start, n.entries[i+1].start, "")
		case n.flow: // first > 0: one stays
			e.patch(n.entries[first-1].value.end, to.value.end, "")
		case !e.startsLine(from.start) && i+1 < len(gone):
			// Behind a dash: what comes next moves up.
			next := newline(e.text, to.value.end)
			for next < len(e.text) && isSpace(e.text[next]) {
				next++
			}
			e.patch(from.start, next, "")
		case !e.startsLine(from.start):
			e.fail("cannot be edited in place: a key shares its line with others")
		default:
			floor := p.after
			if first > 0 {
				floor = n.entries[first-1].value.end
			}
			// From the end of the line before, so that what is written behind the
			// last entry finds the end of its line.
			start, end := e.comments(from.start, floor), eol(e.text, to.value.end)
			if start == 0 {
				end = newline(e.text, end)
			} else {
				start = previous(e.text, start)
			}
			e.patch(start, end, "")
		}
	}
}

// comments is the start of the comment lines right above the line of i that are
// indented as it is and begin behind floor; the start of the line itself if there
// are none.
func (e *editor) comments(i, floor int) int {
	start := bol(e.text, i)
	indent := e.text[start:i]
	for start > 0 {
		above := bol(e.text, previous(e.text, start))
		if above < floor || !bytes.HasPrefix(e.text[above:], append(bytes.Clone(indent), '#')) {
			break
		}
		start = above
	}
	return start
}

// addKey writes a key behind the last one that stays.
func (e *editor) addKey(n *node, gone []bool, name string, v any, note string, p place) {
	last := -1
	for i := range n.entries {
		if !gone[i] {
			last = i
		}
	}
	at := n.entries[last]
	if n.flow || p.flow {
		key := e.w.key(name, true)
		e.flowInsert(at.value.end, at.start, key+": "+e.w.flow(v, bare, e.indent(at.start)))
		return
	}
	lines := e.w.entry(name, v, n.col)
	if note != "" && len(lines) == 1 {
		lines[0] += " # " + note
	}
	end := eol(e.text, at.value.end)
	e.patch(end, end, e.lines(lines))
}

// addItem writes an item before the one of index i.
func (e *editor) addItem(n *node, gone []bool, i int, v any, p place) {
	last, next := -1, -1
	for j := range n.entries {
		switch {
		case gone[j]:
		case j < i:
			last = j
		case next < 0:
			next = j
		}
	}
	flow := n.flow || p.flow
	if last >= 0 {
		at := n.entries[last]
		if flow {
			e.flowInsert(at.value.end, at.start, e.w.flow(v, bare, e.indent(at.start)))
			return
		}
		end := eol(e.text, at.value.end)
		e.patch(end, end, e.lines(e.w.item(v, n.col)))
		return
	}
	at := n.entries[next].start
	if flow {
		text := e.w.flow(v, bare, e.indent(at)) + ", "
		if e.startsLine(at) {
			text = strings.TrimSpace(text) + e.w.nl + e.indent(at)
		}
		e.patch(at, at, text)
		return
	}
	lines := e.w.item(v, n.col)
	lines[0] = strings.TrimLeft(lines[0], " ")
	e.patch(at, at, strings.Join(lines, e.w.nl)+e.w.nl+strings.Repeat(" ", n.col))
}

// flowInsert writes an entry behind the one from start to end: on a line of its
// own if that one is.
func (e *editor) flowInsert(end, start int, text string) {
	sep := ", "
	if e.startsLine(start) && start > 0 {
		sep = "," + e.w.nl + e.indent(start)
	}
	e.patch(end, end, sep+text)
}
