package api

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// patternProblem says why a pattern could never match, as git reads it.
func patternProblem(text string) string {
	body := strings.TrimPrefix(text, "!")
	switch {
	case len(text) > maxPatternText:
		return "is too long"
	case strings.HasPrefix(text, "#"):
		return `is a comment to git: write \# for a name that starts with #`
	case strings.ContainsFunc(text, unprintable):
		return "must not hold control characters"
	case strings.Trim(body, "/ ") == "":
		return "is empty"
	}
	for strings.HasSuffix(body, " ") && !strings.HasSuffix(body, `\ `) {
		body = body[:len(body)-1]
	}
	body = strings.TrimSuffix(body, "/") // for folders only
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '\\':
			if i++; i == len(body) {
				return "ends with a backslash"
			}
		case '[':
			length, reason := bracket(body[i:])
			if reason != "" {
				return reason
			}
			i += length - 1
		}
	}
	return ""
}

// bracketClasses are the names that may stand in [:…:].
func bracketClasses() []string {
	return []string{"alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "xdigit"}
}

const unclosed = "has a bracket that is not closed: write \\[ for the character itself"

// bracket gives the length of the bracket expression that text starts with, or
// says why none matches there.
func bracket(text string) (length int, reason string) {
	i := 1
	negated := strings.HasPrefix(text[i:], "!") || strings.HasPrefix(text[i:], "^")
	if negated {
		i++
	}
	matches := negated // anything but a slash
	last := rune(-1)   // what a range could start with
	for first := i; i < len(text); {
		switch {
		case text[i] == ']' && i > first && !matches:
			return 0, "has a bracket that matches nothing but a slash, and no name holds one"
		case text[i] == ']' && i > first:
			return i + 1, ""
		case strings.HasPrefix(text[i:], "[:"):
			name, _, closed := strings.Cut(text[i+2:], ":]")
			switch {
			case !closed:
				return 0, `has "[:" without ":]" in a bracket: write \[ for the character itself`
			case !slices.Contains(bracketClasses(), name):
				return 0, "has a class of characters that git does not know: it knows " + strings.Join(bracketClasses(), ", ")
			}
			i += len("[:") + len(name) + len(":]")
			matches, last = true, -1
			continue
		case text[i] == '-' && last >= 0 && i+1 < len(text) && text[i+1] != ']':
			if strings.HasPrefix(text[i+1:], "[:") {
				return 0, "has a range that ends with a class of characters"
			}
			end, size := member(text[i+1:])
			switch {
			case size == 0:
				return 0, unclosed
			case end < last:
				return 0, "has a range whose end comes before its start"
			case last == '/' || end == '/':
				return 0, "has a range that starts or ends with a slash, and no name holds one"
			}
			i += 1 + size
			last = -1
			continue
		}
		r, size := member(text[i:])
		if size == 0 {
			break
		}
		i += size
		matches, last = matches || r != '/', r
	}
	return 0, unclosed
}

// member is the character that text starts with, perhaps behind a backslash, and
// how many bytes it takes; none when nothing follows the backslash.
func member(text string) (rune, int) {
	slash := 0
	if text[0] == '\\' {
		slash = 1
	}
	if len(text) == slash {
		return 0, 0
	}
	r, size := utf8.DecodeRuneInString(text[slash:])
	return r, slash + size
}
