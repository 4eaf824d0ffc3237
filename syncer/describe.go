package syncer

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/render"
)

// Preview is a verdict for people and programs: what `headway plan` prints. Names
// in its JSON do not change.
type Preview struct {
	Commit   string   `json:"commit"`
	OK       bool     `json:"ok"`
	Refusal  string   `json:"refusal,omitempty"`
	Problems []Notice `json:"problems,omitempty"`
	Warnings []Notice `json:"warnings,omitempty"`
	Skipped  []Notice `json:"skipped,omitempty"` // files that are no manifests though they look like some
	Objects  int      `json:"objects"`           // that the commit declares
	Create   int      `json:"create"`
	Update   int      `json:"update"`
	Delete   int      `json:"delete"`
	Changes  []Change `json:"changes,omitempty"` // in the order in which they are done
	Summary  string   `json:"summary"`
}

// Notice is a problem or a warning.
type Notice struct {
	Path   string `json:"path,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

func (n Notice) String() string {
	return api.Problem{Path: n.Path, Line: n.Line, Column: n.Column, Field: n.Field, Reason: n.Reason}.String()
}

func notices(problems []api.Problem) []Notice {
	var out []Notice
	for _, p := range problems {
		out = append(out, Notice{Path: p.Path, Line: p.Line, Column: p.Column, Field: p.Field, Reason: p.Reason})
	}
	return out
}

// Change is what a plan does to one object.
type Change struct {
	Verb       string        `json:"verb"` // create, update, replace or delete
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Namespace  string        `json:"namespace,omitempty"`
	Name       string        `json:"name"`
	Path       string        `json:"path,omitempty"` // of the manifest; of the last one when it is deleted
	Line       int           `json:"line,omitempty"`
	Reason     string        `json:"reason"`
	Fields     []FieldChange `json:"fields,omitempty"`
	Along      []string      `json:"along,omitempty"` // what goes with a deleted Namespace and is in no manifest
}

// Title is how messages name the object: Deployment default/web.
func (c Change) Title() string { return title(c.Kind, c.Namespace, c.Name) }

// String is the change on one line:
//
//	~ update Deployment default/web (web.yaml:1): spec.replicas 2 → 3
func (c Change) String() string {
	sign := map[string]string{"create": "+", "update": "~", "replace": "±", "delete": "-"}[c.Verb]
	s := sign + " " + c.Verb + " " + c.Title()
	if c.Path != "" && c.Verb != "delete" {
		s += fmt.Sprintf(" (%s:%d)", c.Path, c.Line)
	}
	var fields []string
	const most = 5
	for i, f := range c.Fields {
		if i == most {
			fields = append(fields, fmt.Sprintf("and %d more", len(c.Fields)-most))
			break
		}
		fields = append(fields, f.String())
	}
	why := c.Reason
	switch listed := strings.Join(fields, ", "); {
	case c.Verb == "create" && strings.HasPrefix(why, declaredIn):
		why = ""
	case listed == "":
	case why == "", strings.HasPrefix(why, "changed: "), strings.HasPrefix(why, "healed: "):
		why = listed
	default:
		why += "; " + listed
	}
	if why != "" {
		s += ": " + why
	}
	if len(c.Along) > 0 {
		s += "; with it " + strings.Join(c.Along, ", ")
	}
	return api.Printable(s)
}

// declaredIn is how the reason of a plain creation begins.
const declaredIn = "declared in "

// shift is a Change before its values are worked out.
type shift struct {
	verb   Verb
	step   Step // the last one about the object
	reason string
}

// Replace is the verb of a shift whose object is deleted and made again.
const replaceVerb Verb = "replace"

// shifts says what the steps do to each object, each object once, in the order of
// the steps. Done records are no objects of anybody's.
func shifts(steps []Step) []shift {
	var out []shift
	at := map[store.Key]int{}
	for _, s := range steps {
		i, known := at[s.Key]
		switch {
		case s.Verb == Record, s.Verb == Wait && s.Key.GroupResource == api.Sources():
			continue
		case known: // deleted before, and made now
			out[i].verb, out[i].step = replaceVerb, s
			continue
		}
		sh := shift{verb: s.Verb, step: s, reason: s.Reason}
		switch {
		case s.Verb == Delete && s.Manifest != nil, s.Verb == Wait && s.Live != nil:
			sh.verb = replaceVerb
		case s.Verb == Wait:
			sh.verb = Create
		}
		at[s.Key] = len(out)
		out = append(out, sh)
	}
	return out
}

func (sh shift) change() Change {
	s := sh.step
	kind, _ := api.ResourceKind(s.Key.GroupResource)
	c := Change{Verb: string(sh.verb), APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: s.Key.Namespace, Name: s.Key.Name, Reason: sh.reason}
	if s.Manifest != nil {
		c.Path, c.Line = s.Manifest.Path, s.Manifest.Line
	} else if s.Live != nil {
		from, _ := api.ProvenanceOf(s.Live)
		c.Path, c.Line = from.Path, from.Line
	}
	if (sh.verb == Update || sh.verb == replaceVerb) && s.Live != nil && s.Op.Object != nil {
		c.Fields = fieldChanges(s.Live, s.Op.Object)
	}
	return c
}

// Preview works out the whole verdict, with the values that change.
func (v *Verdict) Preview() Preview {
	p := Preview{Commit: v.Commit, OK: v.OK(), Refusal: v.Refusal, Objects: v.Objects, Create: v.Create, Update: v.Update, Delete: v.Delete, Summary: v.Summary()}
	p.Warnings, p.Skipped, p.Problems = notices(v.Warnings), notices(few(v.Skipped)), notices(v.Problems)
	for _, sh := range shifts(v.steps) {
		p.Changes = append(p.Changes, v.change(sh))
	}
	return p
}

func (v *Verdict) change(sh shift) Change {
	c := sh.change()
	if sh.verb == Delete {
		c.Along = v.along[sh.step.Key]
	}
	return c
}

// writeNotes writes the warnings and, when the commit may be applied, the changes
// and the summary; of each kind at most so many lines (0: all).
func (v *Verdict) writeNotes(w io.Writer, most int) {
	out := &liner{w: w}
	list := func(n int, line func(int) string) {
		for i := range n {
			if most > 0 && i == most && n > most+1 {
				out.line("… and " + thousands(n-most) + " more")
				return
			}
			out.line(line(i))
		}
	}
	list(len(v.Warnings), func(i int) string { return "warning: " + v.Warnings[i].String() })
	if n := len(v.Skipped); n > 0 && most > 0 { // the same at each push
		out.line("skipped: " + v.Skipped[0].String() + others(n-1))
	} else {
		for _, p := range few(v.Skipped) {
			out.line("skipped: " + p.String())
		}
	}
	if !v.OK() {
		return
	}
	all := shifts(v.steps)
	list(len(all), func(i int) string { return v.change(all[i]).String() })
	out.line(v.Summary())
}

// few are as many of the skipped files as anybody reads.
func few(skipped []api.Problem) []api.Problem {
	more := len(skipped) - render.MaxNotices
	if more <= 0 {
		return skipped
	}
	return append(slices.Clone(skipped[:render.MaxNotices]), api.Problem{Reason: "… and " + plural(more, "file") + " more"})
}

// others says how many more there are and what lists them.
func others(n int) string {
	if n == 0 {
		return ""
	}
	return "; and " + plural(n, "file") + " more, see headway plan"
}

// liner stops at the first error: the reader has left, and nobody else cares.
type liner struct {
	w    io.Writer
	gone bool
}

func (l *liner) line(text string) {
	if !l.gone {
		_, err := io.WriteString(l.w, text+"\n")
		l.gone = err != nil
	}
}

// Write prints the preview for a person.
func (p Preview) Write(w io.Writer) error {
	var lines []string
	for _, n := range p.Warnings {
		lines = append(lines, "warning: "+n.String())
	}
	for _, n := range p.Skipped {
		lines = append(lines, "skipped: "+n.String())
	}
	if p.Refusal != "" {
		lines = append(lines, p.Refusal)
	}
	for _, n := range p.Problems {
		lines = append(lines, n.String())
	}
	if p.OK || p.Refusal != "" && len(p.Problems) == 0 {
		for _, c := range p.Changes {
			lines = append(lines, c.String())
		}
	}
	if p.Refusal == "" {
		lines = append(lines, p.Summary)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// FieldChange is one field that differs, with its values as JSON. A field without
// Old was not there, one without New goes. Values of Secrets are Hidden (R14).
type FieldChange struct {
	Field  string          `json:"field"`
	Old    json.RawMessage `json:"old,omitempty"`
	New    json.RawMessage `json:"new,omitempty"`
	Hidden bool            `json:"hidden,omitempty"`
}

func (f FieldChange) String() string {
	if f.Hidden {
		return f.Field + " differs"
	}
	return f.Field + " " + valueText(f.Old) + " → " + valueText(f.New)
}

// valueText is a value for a person, short and on one line.
func valueText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "none"
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	const most = 60
	if lines := strings.Count(strings.TrimSuffix(s, "\n"), "\n") + 1; lines > 1 {
		return fmt.Sprintf("(%d lines)", lines)
	}
	if r := []rune(s); len(r) > most {
		return fmt.Sprintf("%q…", string(r[:most]))
	}
	if s == "" || strings.ContainsAny(s, " \t\"',→\n") || s == "none" {
		return fmt.Sprintf("%q", s)
	}
	return s
}
