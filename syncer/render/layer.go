package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"headway.dev/headway/api"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
)

func names() []string { return konfig.RecognizedKustomizationFileNames() }

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// text is a string in a document; "" when there is none.
func text(m map[string]any, way ...string) string {
	var v any = m
	for _, step := range way {
		in, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = in[step]
	}
	s, ok := v.(string)
	if !ok {
		return ""
	}
	return s
}

func present(m map[string]any, way ...string) bool {
	v, ok := follow(m, way)
	return ok && v != nil && v != ""
}

func group(apiVersion string) string {
	g, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return g
}

var secretWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bSecret(List|Generator)?\b|secretGenerator`) })

// mentionsSecret says whether a text may hold a Secret, or make one.
func mentionsSecret(text []byte) bool { return secretWord().Match(text) }

// part is a document, or an object in it, with the way to its places. The text
// of a patch may stand inside a kustomization.
type part struct {
	doc   api.Document
	value any    // the object; nil: the document
	at    string // its place in the document: "" or "items[3]."
	moved func(api.Place) api.Place
}

// objects takes lists apart, as kustomize does.
func (p part) objects() []part {
	v := p.doc.Value
	if p.value != nil {
		v = p.value
	}
	p.value = v
	m, ok := v.(map[string]any)
	items, isList := m["items"].([]any)
	if !ok || !isList || !strings.HasSuffix(text(m, "kind"), "List") {
		return []part{p}
	}
	var out []part
	for i, item := range items {
		out = append(out, part{doc: p.doc, value: item, at: fmt.Sprintf("%sitems[%d].", p.at, i), moved: p.moved})
	}
	return out
}

func (p part) place(field string) api.Place {
	at, _ := p.doc.Place(strings.TrimSuffix(p.at+field, "."))
	if p.moved != nil {
		return p.moved(at)
	}
	return at
}

// inlined reads a text in a kustomization, and knows where its lines stand when it
// is written as a block with "|".
func (u *unit) inlined(k *kustomization, field, value string) []part {
	key := k.at(field)
	moved := func(api.Place) api.Place { return key }
	lines := bytes.Split(k.text, []byte("\n"))
	if key.Line > 0 && key.Line < len(lines) && !bytes.HasPrefix(bytes.TrimSpace(k.text), []byte("{")) {
		head := bytes.TrimRight(lines[key.Line-1], " \t\r")
		if i := bytes.LastIndexByte(head, '|'); i >= 0 && len(bytes.Trim(head[i+1:], "+-0123456789")) == 0 {
			skipped := 0
			first := lines[key.Line]
			for skipped = 0; len(bytes.TrimSpace(first)) == 0 && key.Line+skipped+1 < len(lines); skipped++ {
				first = lines[key.Line+skipped+1]
			}
			indent := len(first) - len(bytes.TrimLeft(first, " "))
			moved = func(at api.Place) api.Place {
				return api.Place{Path: key.Path, Line: key.Line + at.Line, Column: at.Column + indent}
			}
		}
	}
	docs, problems := api.Documents(k.file, []byte(value))
	for _, p := range problems {
		u.problems.add(p.At(moved(api.Place{Path: p.Path, Line: p.Line, Column: max(p.Column, 1)})))
	}
	var parts []part
	for _, d := range docs {
		parts = append(parts, part{doc: d, value: d.Value, moved: moved})
	}
	return parts
}

// layer is what one kustomization does to the objects that it has gathered.
type layer struct {
	k            *kustomization
	patches      []patch // in the order in which they are applied
	replacements []types.Replacement
}

// patch is a strategic merge patch (merge) or a JSON patch (ops).
type patch struct {
	part
	merge  map[string]any
	ops    []operation
	target *selector // nil: the object that the patch names
	measure
}

type operation struct {
	op    string
	from  string
	way   []string // the pointer's steps
	value any
	field string // of the operation in the document: "[2]"
}

// layer reads the patches of a kustomization, once.
func (u *unit) layer(k *kustomization) (*layer, error) {
	if l, ok := u.layers[k.dir]; ok {
		return l, nil
	}
	var err error
	l := &layer{k: k}
	u.layers[k.dir] = l
	for i, p := range k.spec.PatchesStrategicMerge {
		field := fmt.Sprintf("patchesStrategicMerge[%d]", i)
		if err = u.patch(l, field, field, types.Patch{Path: string(p)}, inline(string(p)), false); err != nil {
			return nil, err
		}
	}
	for i, p := range k.spec.Patches {
		field := fmt.Sprintf("patches[%d]", i)
		if err = u.patch(l, field, field+".patch", p, false, false); err != nil {
			return nil, err
		}
	}
	for i, p := range k.spec.PatchesJson6902 {
		field := fmt.Sprintf("patchesJson6902[%d]", i)
		if err = u.patch(l, field, field+".patch", p, false, true); err != nil {
			return nil, err
		}
	}
	l.replacements, err = u.replacements(k)
	return l, err
}

func (u *unit) patch(l *layer, field, textField string, p types.Patch, pathIsText, onlyOps bool) error {
	k := l.k
	value := p.Patch
	if pathIsText {
		value = p.Path
	}
	var parts []part
	raw := strings.TrimSpace(value)
	if raw != "" {
		parts = u.inlined(k, textField, value)
	} else {
		real, kind, reason, err := u.r.index.target(k.dir, p.Path, u.touch)
		if err != nil {
			return err
		}
		if reason != "" || kind != file {
			return nil // said with the path
		}
		s, err := u.r.source(real)
		if err != nil {
			return err
		}
		raw = string(s.text)
		for _, d := range s.docs {
			parts = append(parts, part{doc: d, value: d.Value})
		}
	}
	u.checkTarget(k, field, p.Target)
	for i, part := range parts {
		out := patch{part: part, target: newSelector(p.Target), measure: measured(part.value)}
		switch v := part.value.(type) {
		case []any:
			switch {
			case p.Target == nil:
				u.fail(k.at(field), field, "a JSON patch needs a target that says which objects it is for")
				continue
			case strings.HasPrefix(raw, "[") && !json.Valid([]byte(raw)):
				u.fail(part.place(""), "", `a patch that starts with "[" must be JSON: put its keys and texts in double quotes, or write it as a YAML list with "-"`)
				continue
			}
			out.ops = u.operations(part, v)
		case map[string]any:
			switch {
			case onlyOps:
				u.fail(part.place(""), "", "must be a list of operations, as RFC 6902 has them")
				continue
			case text(v, "kind") == "" || !present(v, "metadata", "name"):
				u.fail(part.place(""), "", "a strategic merge patch names the kind and metadata.name of an object")
				continue
			case p.Target != nil && i > 0:
				u.fail(part.place(""), "", "a patch with a target is one document: write an entry of its own for this one")
				continue
			}
			out.merge = v
		default:
			u.fail(part.place(""), "", "a patch is a map (strategic merge) or a list of operations (RFC 6902)")
			continue
		}
		l.patches = append(l.patches, out)
	}
	return nil
}

// checkTarget refuses expressions that are none.
func (u *unit) checkTarget(k *kustomization, field string, t *types.Selector) {
	if t == nil {
		return
	}
	for _, e := range []struct{ name, text string }{{"group", t.Group}, {"version", t.Version}, {"kind", t.Kind}, {"name", t.Name}, {"namespace", t.Namespace}} {
		if _, err := regexp.Compile("^(?:" + e.text + ")$"); err != nil {
			at := field + ".target." + e.name
			u.fail(k.at(at), at, "is no regular expression: "+strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
}

func (u *unit) operations(p part, list []any) []operation {
	var out []operation
	for i, e := range list {
		field := fmt.Sprintf("[%d]", i)
		m, _ := e.(map[string]any)
		pointer, op, from := text(m, "path"), text(m, "op"), text(m, "from")
		switch {
		case !slices.Contains([]string{"add", "remove", "replace", "move", "copy", "test"}, op):
			u.fail(p.place(field), "", "an operation has an op: add, remove, replace, move, copy or test")
			continue
		case pointer != "" && pointer[0] != '/', !present(m, "path"):
			u.fail(p.place(field), "", `an operation has a path that starts with "/"`)
			continue
		case (op == "move" || op == "copy") && !strings.HasPrefix(from, "/"):
			u.fail(p.place(field), "", op+` has a from that starts with "/"`)
			continue
		}
		var way []string
		if pointer != "" {
			for step := range strings.SplitSeq(pointer[1:], "/") {
				way = append(way, strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~"))
			}
		}
		out = append(out, operation{op: op, from: from, way: way, value: m["value"], field: field})
	}
	return out
}

// instance is one object that kustomize starts from, on its way through the
// layers.
type instance struct {
	part            part // its document; none when it is made
	made            bool // by a generator
	kind, group     string
	name, namespace string // name as the layers so far have it
	at              api.Place
	more            []api.Place // generators that merge into it
	layers          []*layer    // the innermost first
	original        string      // name in its document
	longest         int         // bytes of the longest text in the document; 0: not counted yet
}

// rename does what kustomize's transformers for prefix, suffix and namespace do.
func (in *instance) rename(k *types.Kustomization) {
	switch {
	case in.kind == "Namespace" && in.group == "":
		if k.Namespace != "" {
			in.name = k.Namespace
		}
		return
	case in.kind == "CustomResourceDefinition", in.kind == "APIService":
		return
	}
	in.name = k.NamePrefix + in.name + k.NameSuffix
	if k.Namespace != "" {
		in.namespace = k.Namespace
	}
}

// steps takes a field's path apart: spec.ports[0], data[a.b].
func steps(field string) []string {
	var out []string
	for field != "" {
		if rest, ok := strings.CutPrefix(field, "["); ok {
			key, after, _ := strings.Cut(rest, "]")
			out = append(out, key)
			field = strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(field, ".[")
		if end < 0 {
			return append(out, field)
		}
		out = append(out, field[:end])
		field = strings.TrimPrefix(field[end:], ".")
	}
	return out
}

// pathOf writes steps as the place of a document's value has them.
func pathOf(way []string) string {
	var b strings.Builder
	for _, s := range way {
		b.WriteString("[" + s + "]")
	}
	return b.String()
}

func itoa(i int) string { return strconv.Itoa(i) }

func nth(i int) string { return "[" + strconv.Itoa(i) + "]" }

func atIndex(step string, n int) (int, bool) {
	i, err := strconv.Atoi(step)
	return i, err == nil && i >= 0 && i < n
}

func sortedLayers(layers map[string]*layer) []string { return slices.Sorted(maps.Keys(layers)) }
