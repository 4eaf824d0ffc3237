package git

import (
	"fmt"
	"slices"
	"strings"
)

// Trailer is one line such as "Allow-Delete: deployment/web" at the end of a
// commit's message.
type Trailer struct{ Key, Value string }

// value returns the value of the first trailer with that key, or "". Git compares
// keys without regard to case.
func value(trailers []Trailer, key string) string {
	for _, t := range trailers {
		if strings.EqualFold(t.Key, key) {
			return t.Value
		}
	}
	return ""
}

// ParseTrailers returns the trailers of a commit's message, as git log's
// %(trailers:only,unfold) does without any configuration, and git
// interpret-trailers --parse for a message that begins with its subject: those of the last paragraph, unless it is the first. A paragraph counts when
// each of its lines is a trailer or continues one, or when git itself wrote one
// of them and a quarter are trailers. Lines that continue a value are folded into
// it with one space.
func ParseTrailers(message string) []Trailer {
	for line := range strings.Lines(message) { // the subject is the first that is not blank
		if !blank(line) {
			break
		}
		message = message[len(line):]
	}
	block := lastParagraph(slices.Collect(strings.Lines(body(message))))
	var trailers []Trailer
	last := -1 // the trailer that a further line may continue
	for _, line := range block {
		if isSpace(line[0]) && last >= 0 {
			trailers[last].Value += line
			continue
		}
		key, val, ok := cutTrailer(line)
		if last = -1; ok {
			trailers = append(trailers, Trailer{Key: key, Value: val})
			last = len(trailers) - 1
		}
	}
	for i := range trailers {
		trailers[i].Value = unfold(trailers[i].Value)
	}
	return trailers
}

// body is the message without what git leaves out at its end: a scissors line and
// what follows it, and comments, empty lines and a list of conflicts.
func body(message string) string {
	const scissors = "# ------------------------ >8 ------------------------\n"
	if strings.HasPrefix(message, scissors) {
		return ""
	}
	if i := strings.Index(message, "\n"+scissors); i >= 0 {
		message = message[:i+1]
	}
	end, conflicts := -1, false // where the run of such lines began
	at := 0
	for line := range strings.Lines(message) {
		switch {
		case line[0] == '#' || line[0] == '\n':
			if end < 0 {
				end = at
			}
		case line == "Conflicts:\n":
			if conflicts = true; end < 0 {
				end = at
			}
		case conflicts && line[0] == '\t':
		default:
			end, conflicts = -1, false
		}
		at += len(line)
	}
	if end > 0 { // git takes a run that begins at the very start for none
		return message[:end]
	}
	return message
}

// lastParagraph returns the lines of the block of trailers, if there is one.
func lastParagraph(lines []string) []string {
	title := 0 // the first paragraph, which is never one
	for title < len(lines) && (lines[title][0] == '#' || !blank(lines[title])) {
		title++
	}
	var trailers, others, open int // open: lines that continue something above
	signed, seen := false, false
	for i := len(lines) - 1; i >= title; i-- {
		line := lines[i]
		switch _, _, is := cutTrailer(line); {
		case line[0] == '#':
			others, open = others+open, 0
		case blank(line):
			if !seen {
				continue
			}
			others += open
			if (signed && trailers*3 >= others) || (trailers > 0 && others == 0) {
				return lines[i+1:]
			}
			return nil
		case strings.HasPrefix(line, "Signed-off-by: ") || strings.HasPrefix(line, "(cherry picked from commit "):
			trailers, open, signed = trailers+1, 0, true
		case is && !isSpace(line[0]):
			trailers, open = trailers+1, 0
		case isSpace(line[0]):
			open++
		default:
			others, open = others+open+1, 0
		}
		seen = seen || line[0] != '#'
	}
	return nil
}

// cutTrailer cuts "Key: value". A key has letters, digits and hyphens only, and
// there may be blanks before the colon.
func cutTrailer(line string) (key, val string, ok bool) {
	blanks := false
	for i, c := range []byte(line) {
		switch {
		case c == ':':
			return strings.TrimFunc(line[:i], space), line[i+1:], i > 0
		case !blanks && (c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'):
		case i > 0 && (c == ' ' || c == '\t'):
			blanks = true
		default:
			return "", "", false
		}
	}
	return "", "", false
}

// unfold joins the lines of a value with one space each.
func unfold(val string) string {
	var out strings.Builder
	for {
		line, rest, more := strings.Cut(val, "\n")
		out.WriteString(line)
		if !more {
			return strings.TrimFunc(out.String(), space)
		}
		out.WriteByte(' ')
		val = strings.TrimLeftFunc(rest, space)
	}
}

// isSpace is C's isspace as git defines it.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func space(r rune) bool { return r < 0x80 && isSpace(byte(r)) }

func blank(line string) bool { return strings.TrimFunc(line, space) == "" }

// withTrailers returns a message that ends in the trailers.
func withTrailers(message string, trailers []Trailer) (string, error) {
	var out strings.Builder
	out.WriteString(strings.TrimRight(message, " \t\r\n") + "\n\n")
	for _, t := range trailers {
		key, _, ok := cutTrailer(t.Key + ":")
		if !ok || key != t.Key || strings.ContainsAny(key, " \t") {
			return "", fmt.Errorf("trailer %.100q: a key has letters, digits and hyphens only", t.Key)
		}
		val := oneLine(t.Value)
		if val == "" {
			return "", fmt.Errorf("trailer %s: it has no value", t.Key)
		}
		fmt.Fprintf(&out, "%s: %s\n", key, val)
	}
	return out.String(), nil
}
