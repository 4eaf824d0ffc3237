package render

import (
	"path"
	"regexp"
	"strings"
)

// Bounds of ignore patterns. A line that is longer never matches.
const (
	maxPatternBytes = 1_000
	maxPatternWork  = 1 << 30 // bytes of patterns times bytes of names, for one tree
)

// pattern is one line of gitignore's syntax.
type pattern struct {
	match  *regexp.Regexp
	prefix string // that a name must start with, and
	suffix string // end with: most need not be matched
	size   int    // of the line
	keep   bool   // "!": takes back what an earlier one ignored
	folder bool   // matches folders only
	last   bool   // looks at the last part of a path only
}

// ignore says which files patterns leave out. It remembers what it found of
// folders: a tree has many files in each.
type ignore struct {
	patterns map[string][]pattern // by the folder that they are relative to, "" for the source's own
	folders  map[string]bool
	work     int // done so far; see maxPatternWork
}

// add reads patterns in gitignore's syntax, relative to the folder base. go-git
// has this too, and speaks git, which is another package's matter. A line that
// git never matches (an unclosed bracket) is left out; a configuration has none
// (api.DecodeConfig).
func (g *ignore) add(base string, lines []string) {
	for _, line := range lines {
		if p, ok := parsePattern(line); ok {
			g.patterns[base] = append(g.patterns[base], p)
		}
	}
}

func parsePattern(line string) (pattern, bool) {
	line = strings.TrimSuffix(line, "\r")
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if line == "" || line[0] == '#' || len(line) > maxPatternBytes {
		return pattern{}, false
	}
	p := pattern{size: len(line)}
	if line[0] == '!' {
		p.keep, line = true, line[1:]
	}
	if strings.HasSuffix(line, "/") {
		p.folder, line = true, line[:len(line)-1]
	}
	anchored := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return pattern{}, false
	}
	text, ok := translate(line)
	if !ok {
		return pattern{}, false
	}
	p.last = !anchored
	p.prefix = line
	if i := strings.IndexAny(line, `*?[\`); i >= 0 {
		p.prefix = line[:i]
	}
	p.suffix = line[strings.LastIndexAny(line, `*?[]\/`)+1:]
	var err error
	p.match, err = regexp.Compile(`(?s)\A` + text + `\z`)
	return p, err == nil
}

// translate writes a glob as a regular expression.
func translate(glob string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; c {
		case '*':
			stars := 1
			for i+stars < len(glob) && glob[i+stars] == '*' {
				stars++
			}
			start := i == 0 || glob[i-1] == '/'
			end := i + stars
			switch {
			case stars == 2 && start && end < len(glob) && glob[end] == '/': // "**/"
				b.WriteString("(?:.*/)?")
				i = end
			case stars == 2 && start && end == len(glob): // "/**"
				b.WriteString(".*")
				if i == 0 {
					return b.String(), true
				}
				return strings.TrimSuffix(b.String(), ".*") + ".+", true
			default:
				b.WriteString("[^/]*")
				i = end - 1
			}
		case '?':
			b.WriteString("[^/]")
		case '[':
			class, next, ok := class(glob, i)
			if !ok {
				return "", false
			}
			b.WriteString(class)
			i = next
		case '\\':
			if i++; i >= len(glob) {
				return "", false
			}
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		}
	}
	return b.String(), true
}

// class translates a bracket expression that starts at i; last is its end. It
// never matches a slash.
func class(glob string, i int) (text string, last int, ok bool) {
	var b strings.Builder
	j := i + 1
	negated := j < len(glob) && (glob[j] == '!' || glob[j] == '^')
	if negated {
		j++
	}
	for first := true; ; first = false {
		if j >= len(glob) {
			return "", 0, false
		}
		c := glob[j]
		switch {
		case c == ']' && !first:
			if negated {
				return "[^/" + b.String() + "]", j, true
			}
			return "[" + b.String() + "]", j, b.Len() > 0
		case c == '[' && j+1 < len(glob) && glob[j+1] == ':':
			name, _, closed := strings.Cut(glob[j+2:], ":]")
			if !closed {
				return "", 0, false
			}
			b.WriteString("[:" + name + ":]")
			j += len(name) + 4
			continue
		case c == '\\':
			if j++; j >= len(glob) {
				return "", 0, false
			}
			b.WriteString(quoted(glob[j]))
		case c == '/':
		case c == '-':
			b.WriteByte('-')
			if first || j+1 < len(glob) && glob[j+1] == ']' {
				s := b.String()
				b.Reset()
				b.WriteString(s[:len(s)-1] + `\-`)
			}
		default:
			b.WriteString(quoted(c))
		}
		j++
	}
}

// quoted writes a byte for the inside of a regular expression's brackets.
func quoted(c byte) string {
	if strings.IndexByte(`[]^\&~-`, c) >= 0 {
		return `\` + string(c)
	}
	return string([]byte{c}) // it may be a part of a longer character
}

// left says whether the patterns leave out a file, as git does: the last pattern
// that matches decides, and nothing below an ignored folder comes back. p is
// relative to the source's path.
func (g *ignore) left(p string) bool {
	return len(g.patterns) > 0 && (g.leftFolder(parent(p)) || g.decided(p, false))
}

func (g *ignore) leftFolder(dir string) bool {
	if dir == "" {
		return false
	}
	left, known := g.folders[dir]
	if !known {
		left = g.leftFolder(parent(dir)) || g.decided(dir, true)
		g.folders[dir] = left
	}
	return left
}

// decided asks the patterns, those of the nearest folder first.
func (g *ignore) decided(p string, folder bool) bool {
	last := p[strings.LastIndexByte(p, '/')+1:]
	for base := p; base != ""; {
		base = parent(base)
		patterns := g.patterns[base]
		if len(patterns) == 0 {
			continue
		}
		whole := strings.TrimPrefix(strings.TrimPrefix(p, base), "/")
		for i := len(patterns) - 1; i >= 0; i-- {
			q, name := &patterns[i], whole
			if q.last {
				name = last
			}
			if !folder && q.folder || !strings.HasPrefix(name, q.prefix) || !strings.HasSuffix(name, q.suffix) || g.exhausted() {
				continue
			}
			if g.work += q.size * len(name); q.match.MatchString(name) {
				return !q.keep
			}
		}
	}
	return false
}

// exhausted says whether the patterns have cost all that they may. What is said
// of files from then on is void.
func (g *ignore) exhausted() bool { return g.work > maxPatternWork }

// parent is the folder of a path, "" for the topmost.
func parent(p string) string { return p[:max(0, strings.LastIndexByte(p, '/'))] }

// relative gives p as seen from the folder base ("" or "." for all).
func relative(base, p string) (string, bool) {
	if base == "" || base == "." {
		return p, true
	}
	if p == base {
		return "", true
	}
	return strings.CutPrefix(p, path.Clean(base)+"/")
}
