package agent

import (
	"errors"
	"strings"
)

// expand replaces each $(NAME) in s by lookup's value. $$ stands for one $, so
// $$(NAME) stays as $(NAME); a reference that lookup does not know, and a $
// before anything else, stay as they are. The error is that it becomes longer than most
// bytes: a few variables, each some times the one before it, would fill any memory.
func expand(s string, lookup func(name string) (string, bool), most int) (string, error) {
	if !strings.Contains(s, "$") {
		if len(s) > most {
			return "", errTooLong
		}
		return s, nil
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if out.Len() > most {
			return "", errTooLong
		}
		if !found {
			return out.String(), nil
		}
		s = after
		switch {
		case strings.HasPrefix(s, "$"):
			out.WriteByte('$')
			s = s[1:]
		case strings.HasPrefix(s, "("):
			name, rest, closed := strings.Cut(s[1:], ")")
			if !closed {
				out.WriteString("$(")
				s = s[1:]
				continue
			}
			value, known := lookup(name)
			if !known {
				value = "$(" + name + ")"
			}
			if len(value) > most-out.Len() {
				return "", errTooLong
			}
			out.WriteString(value)
			s = rest
		default:
			out.WriteByte('$')
		}
	}
}

var errTooLong = errors.New("it becomes too long")
