package splice

import (
	"strings"
	"unicode/utf8"
)

// lineStarts cuts the text as the parser counts lines.
func lineStarts(text []byte) []int {
	starts := []int{0}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		i += n
		switch {
		case r == '\r' && i < len(text) && text[i] == '\n':
		case r == '\n', r == '\r', r == 0x85, r == 0x2028, r == 0x2029:
			starts = append(starts, i)
		}
	}
	return starts
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
func isFlow(c byte) bool  { return strings.IndexByte(",[]{}", c) >= 0 }
func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// eol is the end of the line of i, before its line end.
func eol(text []byte, i int) int {
	for i < len(text) && text[i] != '\n' && text[i] != '\r' {
		i++
	}
	return i
}

// newline is the start of the next line, or the end of the text.
func newline(text []byte, i int) int {
	i = eol(text, i)
	if i < len(text) && text[i] == '\r' {
		i++
	}
	if i < len(text) && text[i] == '\n' {
		i++
	}
	return i
}

// bol is the start of the line of i.
func bol(text []byte, i int) int {
	for i > 0 && text[i-1] != '\n' && text[i-1] != '\r' {
		i--
	}
	return i
}

// previous is the end of the line before the one that starts at i.
func previous(text []byte, i int) int {
	i--
	if i > 0 && text[i] == '\n' && text[i-1] == '\r' {
		i--
	}
	return i
}
