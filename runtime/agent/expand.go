package agent

import "strings"

// expand replaces each $(NAME) in s by lookup's value. $$ stands for one $, so
// $$(NAME) stays as $(NAME); a reference that lookup does not know, and a $
// before anything else, stay as they are.
func expand(s string, lookup func(name string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String()
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
			out.WriteString(value)
			s = rest
		default:
			out.WriteByte('$')
		}
	}
}
