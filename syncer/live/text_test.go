package live

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/live/splice"
)

// maxShown is how much of a value a line of text shows, in bytes.
const maxShown = 100

// Text tells the drift in lines, one for each field:
//
//	Deployment default/web: spec.replicas: declared 3, live 5 (web.yaml:9)
//
// Of a Secret's values it says only that they differ (R14).
func (d *Drift) Text() []string {
	if d.Live == nil {
		return []string{fmt.Sprintf("%s: declared, deleted live (%s)", d.Object(), line(d.Manifest.Place("")))}
	}
	lines := make([]string, 0, len(d.Fields))
	for _, f := range d.Fields {
		lines = append(lines, fmt.Sprintf("%s: %s: %s (%s)", d.Object(), f.Name(), f.differs(), line(d.place(f))))
	}
	return lines
}

// line is a place without its column: path:line.
func line(p api.Place) string {
	p.Column = 0
	return p.String()
}

func (f Field) differs() string {
	switch {
	case f.Hidden && f.Missing:
		return "declared, live not there"
	case f.Hidden:
		return "differs"
	case f.Missing:
		return "declared " + show(f.Declared) + ", live not there"
	case f.Order:
		return "declared in the order " + show(names(f.Declared)) + ", live " + show(names(f.Live))
	}
	return "declared " + show(f.Declared) + ", live " + show(f.Live)
}

// names shortens a list to what its items are known by.
func names(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	out := make([]any, 0, len(list))
	for _, e := range list {
		if m, ok := e.(map[string]any); ok && m["name"] != nil {
			e = m["name"]
		}
		out = append(out, e)
	}
	return out
}

// word is text that cannot be taken for a value of another type.
var word = regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9_./:@=-]*|[0-9]+[A-Za-z]+)$`)

// show writes a value in one line that a terminal shows as it is.
func show(v any) string {
	if s, ok := v.(string); ok && word.MatchString(s) && s != "true" && s != "false" && s != "null" {
		return cut(s)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("a value of type %T", v) // none that a manifest can hold
	}
	return cut(string(text))
}

// cut shortens a text, and escapes what JSON lets through and a terminal does not
// show.
func cut(s string) string {
	more := ""
	if len(s) > maxShown {
		end := maxShown
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		more = fmt.Sprintf("… (%d bytes)", len(s))
		s = s[:end]
	}
	return api.Printable(s) + more
}

// place is where the field's value comes from, in a file of the source.
func (d *Drift) place(f Field) api.Place {
	var b strings.Builder
	var at any = d.Manifest.Declared
	for _, pe := range f.Path {
		if pe.FieldName != nil {
			step(&b, *pe.FieldName)
			m, _ := at.(map[string]any)
			at = m[*pe.FieldName]
			continue
		}
		list, _ := at.([]any)
		i := splice.Item(list, pe)
		if i < 0 {
			break
		}
		fmt.Fprintf(&b, "[%d]", i)
		at = list[i]
	}
	return d.Manifest.Place(b.String())
}
