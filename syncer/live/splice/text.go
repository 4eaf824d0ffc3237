package splice

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

// scalarText writes a string in the quotes of a style, or in double quotes where
// that style cannot hold it.
func scalarText(s string, old style, flow bool) string {
	switch {
	case old == single && !strings.ContainsAny(s, "\n\r\t") && printable(s):
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	case old != single && old != double && plainSafe(s):
		return s
	}
	return doubleQuoted(s)
}

// Text that needs no quotes anywhere, by its letters: it neither begins like
// another type, nor has anything that means something in YAML, in brackets or
// outside.
var (
	wordLike   = regexp.MustCompile(`^[A-Za-z_/.$]([A-Za-z0-9_./@%+=~$-]|:[A-Za-z0-9_/.-])*( [A-Za-z0-9_/.]([A-Za-z0-9_./@%+=~-]|:[A-Za-z0-9_/.-])*)*$`)
	amountLike = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?[A-Za-z%]+$`)
)

// plainSafe says whether s may stand without quotes, and is text to readers of
// YAML 1.1 and 1.2.
func plainSafe(s string) bool {
	if !wordLike.MatchString(s) && !amountLike.MatchString(s) {
		return false
	}
	var v any
	if err := yamlv2.Unmarshal([]byte(s), &v); err != nil || v != s {
		return false
	}
	var n yamlv3.Node
	return yamlv3.Unmarshal([]byte(s), &n) == nil && len(n.Content) == 1 && n.Content[0].Tag == "!!str" && n.Content[0].Value == s
}

// printable says whether YAML lets all of s stand as it is.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !visible(r) && r != '\n' && r != '\t' {
			return false
		}
	}
	return true
}

func visible(r rune) bool {
	switch {
	case r >= 0x20 && r <= 0x7e, r >= 0xa0 && r <= 0xd7ff && r != 0x2028 && r != 0x2029,
		r >= 0xe000 && r <= 0xfffd && r != 0xfeff && r != 0xfffd, r >= 0x10000 && r <= 0x10ffff:
		return true
	}
	return false
}

// doubleQuoted writes any text. What is not valid UTF-8 becomes U+FFFD, as in
// JSON.
func doubleQuoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case visible(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// blockString writes s as a block scalar whose lines begin in column col, which is
// deeper by indent than what is around it. ok is false when a block scalar cannot
// hold s.
func blockString(s string, old style, col, indent int) (head string, lines []string, ok bool) {
	if !printable(s) || strings.Trim(s, "\n") == "" || indent < 1 || indent > 9 {
		return "", nil, false
	}
	head = "|"
	body := strings.TrimRight(s, "\n")
	lines = strings.Split(body, "\n")
	if old == folded && !slanted(lines) {
		head = ">"
		var apart []string
		text := false
		for _, line := range lines {
			if text && line != "" { // a single line end would be a space
				apart = append(apart, "")
			}
			text = text || line != ""
			apart = append(apart, line)
		}
		lines = apart
	}
	if first := strings.TrimLeft(body, "\n"); first[0] == ' ' {
		head += strconv.Itoa(indent)
	}
	switch ends := len(s) - len(body); ends {
	case 0:
		head += "-"
	case 1:
	default:
		head += "+"
		for range ends - 1 {
			lines = append(lines, "")
		}
	}
	pad := strings.Repeat(" ", col)
	shown := "k: " + head + "\n"
	for i, line := range lines {
		if line != "" {
			shown += strings.Repeat(" ", indent) + line
			lines[i] = pad + line
		}
		shown += "\n"
	}
	var read map[string]string
	if yamlv2.Unmarshal([]byte(shown), &read) != nil || read["k"] != s {
		return "", nil, false
	}
	return head, lines, true
}

// slanted says whether a line begins with white space: such are not folded.
func slanted(lines []string) bool {
	for _, line := range lines {
		if line != "" && (line[0] == ' ' || line[0] == '\t') {
			return true
		}
	}
	return false
}
