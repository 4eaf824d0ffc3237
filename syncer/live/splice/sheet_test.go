package splice_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// sheet is a YAML text that is made at random, with the lines of each value.
type sheet struct {
	t     *rapid.T
	lines []string
	spans map[string][2]int // by path: first and last line, its comments among them
	inner map[string]bool   // paths in brackets
	first map[string]bool   // keys that stand behind a dash
	kept  []any             // values with the anchors a0, a1, …
	block int               // number of lines when the last block text ended
	share bool
}

func (s *sheet) flip(label string) bool { return rapid.Bool().Draw(s.t, label) }

func (s *sheet) one(of ...string) string { return rapid.SampledFrom(of).Draw(s.t, "one") }

func (s *sheet) add(line string) { s.lines = append(s.lines, line) }

// comment adds lines that mean nothing.
func (s *sheet) comment(col int) {
	if s.flip("comment") {
		s.add(strings.Repeat(" ", col) + s.one("# why: [x", "#", "# - a: 'b"))
	}
}

func texts() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "web", "a b", "it's", `"q"`, "1", "yes", "null", "~", "a: b", "#x", "x #y", "- a", "{{ x }}", "[a", "a\nb", "a\nb\n", "a\n\n b\n\n", " a\nb", "é\u2028\x01", "1e3", "0644", "2001-01-01", "1:20", "%x", "@x", "!x", "&x", "*x", "|", ">", "=", "<<", "a\tb", "\t", "a:", ":", "?", "...", "---", "---\na", "a\r\nb", "x\u0085y", "0o7", "12_3", ".5", "-", "--"}),
		rapid.StringN(0, 8, 20))
}

func scalars() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.Map(texts(), func(s string) any { return strings.ToValidUTF8(s, "?") }),
		rapid.Map(rapid.Int64Range(-1000, 1<<40), func(i int64) any { return i }),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just[any](nil))
}

func values(depth int) *rapid.Generator[any] {
	if depth == 0 {
		return scalars()
	}
	return rapid.OneOf(scalars(), objects(depth), rapid.Map(rapid.SliceOfN(values(depth-1), 0, 3), func(l []any) any { return l }))
}

func objects(depth int) *rapid.Generator[any] {
	names := rapid.SampledFrom([]string{"name", "a", "b", "c", "image", "x y", "yes", "1", "a.b/c", "é", "data"})
	return rapid.Map(rapid.MapOfN(names, values(depth-1), 0, 4), func(m map[string]any) any { return m })
}

func quoteYAML(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString("\\" + string(r))
		case r >= ' ' && r <= '~' || r == 'é':
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "\\U%08x", r)
		}
	}
	return `"` + b.String() + `"`
}

func (s *sheet) key(k string) string {
	if strings.Trim(k, "abcdefghijklmnopqrstuvwxyz./") == "" && k != "yes" && s.flip("plain key") {
		return k
	}
	return quoteYAML(k)
}

// flow writes v in brackets, or a scalar in one line.
func (s *sheet) flow(v any, path string) string {
	s.inner[path] = true
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, s.key(k)+":"+s.one(" ", "  ")+s.flow(v[k], path+"/"+k))
		}
		return "{" + s.one("", " ") + strings.Join(parts, s.one(", ", " , ")) + s.one("", " ") + "}"
	case []any:
		var parts []string
		for i, e := range v {
			parts = append(parts, s.flow(e, fmt.Sprint(path, "/", i)))
		}
		return "[" + strings.Join(parts, s.one(", ", ",  ")) + "]"
	case string:
		word := len(v) > 3 && strings.Trim(v, "abcdefghijklmnopqrstuvwxz") == "" && v != "null" && v != "true" && v != "false"
		quotable := strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) < 0
		switch {
		case word && s.flip("plain"):
			return v
		case quotable && s.flip("single"):
			return "'" + strings.ReplaceAll(v, "'", "''") + "'"
		}
		return quoteYAML(v)
	case float64:
		text := fmt.Sprintf("%.6f", v)
		return text
	case nil:
		return s.one("null", "~")
	}
	return fmt.Sprint(v)
}

// value writes v behind head ("  key:", "  -") and, in blocks, below. col is that
// of the head.
func (s *sheet) value(head string, v any, path string, col int) {
	if s.share && s.flip("share") {
		if i := slices.IndexFunc(s.kept, func(k any) bool { return k != nil && reflect.DeepEqual(k, v) }); i >= 0 {
			s.add(fmt.Sprintf("%s *a%d", head, i))
			return
		}
		if s.flip("anchor") {
			i := len(s.kept)
			s.kept = append(s.kept, nil)
			defer func() { s.kept[i] = v }()
			head += fmt.Sprintf(" &a%d", i)
		}
	}
	end := s.one("", "  # end", " ")
	pad := strings.Repeat(" ", col)
	m, isMap := v.(map[string]any)
	l, isList := v.([]any)
	text, isText := v.(string)
	switch {
	case isMap && len(m) > 0 && s.flip("block"):
		in := col + rapid.SampledFrom([]int{1, 2, 4}).Draw(s.t, "step")
		if strings.HasSuffix(head, "-") && s.flip("behind the dash") {
			s.fields(head+strings.Repeat(" ", in-col-1+1), m, path, in+1)
			return
		}
		s.add(head + strings.TrimRight(end, " "))
		s.fields("", m, path, in)
	case isList && len(l) > 0 && s.flip("block"):
		in := col + rapid.SampledFrom([]int{0, 2}).Draw(s.t, "dashes")
		if strings.HasSuffix(head, "-") || strings.Contains(head, "- &") {
			in = col + 2
		}
		s.add(head + end)
		for i, e := range l {
			at := len(s.lines)
			s.comment(in)
			below := fmt.Sprint(path, "/", i)
			s.value(strings.Repeat(" ", in)+"-", e, below, in)
			s.spans[below] = [2]int{at, len(s.lines) - 1}
		}
	case isText && strings.Trim(text, "abc\n") == "" && strings.Trim(text, "\n") != "" && strings.Contains(text, "\n") && text[0] != '\n':
		body := strings.TrimRight(text, "\n")
		s.add(head + " |" + []string{"-", "", "+"}[min(len(text)-len(body), 2)] + end)
		for _, line := range strings.Split(body, "\n") {
			if line != "" {
				line = pad + "   " + line
			}
			s.add(line)
		}
		for range len(text) - len(body) - 1 {
			s.add("")
		}
		s.block = len(s.lines)
	case v == nil && s.flip("nothing"):
		s.add(head + end)
	default:
		s.add(head + s.one(" ", "   ") + s.flow(v, path) + end)
	}
}

func (s *sheet) fields(head string, m map[string]any, path string, col int) {
	names := slices.Sorted(maps.Keys(m))
	if from := s.merge(m); from >= 0 {
		pad := head
		if pad == "" {
			pad = strings.Repeat(" ", col)
		}
		s.add(fmt.Sprintf("%s<<: *a%d", pad, from))
		head = ""
		names = slices.DeleteFunc(names, func(k string) bool {
			v, ok := s.kept[from].(map[string]any)[k]
			return ok && reflect.DeepEqual(v, m[k])
		})
		if len(names) == 0 {
			return
		}
	}
	for i, k := range rapid.Permutation(names).Draw(s.t, "order") {
		at, below := len(s.lines), path+"/"+k
		pad := head
		if i > 0 || head == "" {
			if i > 0 && s.flip("blank") {
				s.add("")
				at++
			}
			s.comment(col)
			pad = strings.Repeat(" ", col)
		} else {
			s.first[below] = true
		}
		s.value(pad+s.key(k)+":", m[k], below, col)
		s.spans[below] = [2]int{at, len(s.lines) - 1}
	}
}

// merge finds a map with an anchor that has some of m and no other keys, or -1.
func (s *sheet) merge(m map[string]any) int {
	return slices.IndexFunc(s.kept, func(v any) bool {
		k, ok := v.(map[string]any)
		same := 0
		for name, e := range k {
			mine, has := m[name]
			ok = ok && has
			if reflect.DeepEqual(e, mine) {
				same++
			}
		}
		return ok && same > 0 && s.share && s.flip("merge")
	})
}
