package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// DecodeOptions says how a file's documents are completed.
type DecodeOptions struct {
	// DefaultNamespace is given to a namespaced object that names none; empty
	// leaves it without.
	DefaultNamespace string
	// Foreign is told of each object of a kind that this version does not have and
	// that git may keep. Without it such an object is a problem.
	Foreign func(Foreign)
}

// DecodeFile reads every object that a file declares: YAML or JSON, several
// documents, lists. It is as strict as Kubernetes' strict mode and finds every
// problem, not only the first, each with its line. The objects are defaulted and
// not yet validated: see Manifest.Check.
//
// When there are problems the file must be refused as a whole; the manifests
// that come with them serve to find further problems.
func DecodeFile(path string, data []byte, opts DecodeOptions) ([]Manifest, []Problem) {
	d := decoder{path: path, opts: opts}
	eachDocument(path, ended(data), d.problem, func(doc document, v any) bool {
		if m, ok := v.(map[string]any); ok {
			d.object(doc.origin(path), m, "", "", "", 0)
		} else {
			d.problem(Problem{Reason: "must be a map with apiVersion, kind and metadata, not " + noun(v)}.At(doc.first(path)))
		}
		return len(d.problems) < maxProblems && !d.tooMany
	})
	return d.manifests, d.problems
}

// ended is a file's text with a line end behind its last line, as Kubernetes ends
// every line that it reads. A block text at the end of the file has it in its value.
func ended(data []byte) []byte {
	if len(data) > 0 && data[len(data)-1] != '\n' {
		return append(slices.Clip(data), '\n')
	}
	return data
}

// DecodeObject reads one object that a tool such as kustomize has put together.
// object holds what a Document's Value can hold; it becomes the manifest's
// Declared and is changed. where gives the place of a field in the object, of the
// object itself for "".
func DecodeObject(object map[string]any, where func(field string) Place, opts DecodeOptions) ([]Manifest, []Problem) {
	first := where("")
	d := decoder{path: first.Path, opts: opts}
	d.object(origin{first: first, find: func(at string) func(string) Place {
		return func(field string) Place { return where(strings.TrimSuffix(at+field, ".")) }
	}}, object, "", "", "", 0)
	return d.manifests, d.problems
}

// origin says where an object and its fields stand.
type origin struct {
	first Place
	// find gives the places of the fields of the object at: "" or "items[3].".
	find func(at string) func(field string) Place
}

type decoder struct {
	path      string
	opts      DecodeOptions
	manifests []Manifest
	problems  []Problem
	foreign   int // objects told to opts.Foreign
	tooMany   bool
}

func (d *decoder) problem(p Problem) {
	if p.Path == "" {
		p.Path = d.path
	}
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, p)
	}
}

// object decodes one object, or the items of a list. at is its place in the
// document: "" or "items[3].".
func (d *decoder) object(from origin, m map[string]any, at, apiVersion, kind string, depth int) {
	where := from.find(at)
	first := from.first
	if at != "" {
		first = where("")
	}
	fail := func(field, reason string) {
		d.problem(Problem{Field: field, Reason: reason}.At(orPlace(where(field), first)))
	}
	for _, f := range []struct {
		name string
		into *string
	}{{"apiVersion", &apiVersion}, {"kind", &kind}} {
		v, set := m[f.name]
		text, ok := v.(string)
		switch {
		case set && v != nil && !ok:
			fail(f.name, "must be a string, not "+noun(v))
			return
		case ok && text != "":
			*f.into = text
		}
	}
	switch {
	case kind == "":
		fail("kind", "missing: every document names its apiVersion and its kind")
		return
	case apiVersion == "":
		fail("apiVersion", "missing: every document names its apiVersion and its kind")
		return
	}
	if of, ok := listItem(apiVersion, kind); ok {
		if id := identify(apiVersion, of); of != "" && id.reason != "" && !(id.foreign && d.opts.Foreign != nil) {
			fail(id.field, id.reason)
			return
		}
		d.list(from, m, at, apiVersion, of, depth, fail)
		return
	}
	id := identify(apiVersion, kind)
	switch {
	case id.foreign && d.opts.Foreign != nil:
		if d.full(fail) {
			return
		}
		d.foreign++
		d.opts.Foreign(Foreign{APIVersion: apiVersion, Kind: kind, Place: orPlace(where("kind"), first), Reason: id.reason})
		return
	case id.reason != "":
		fail(id.field, id.reason)
		return
	}
	m["apiVersion"], m["kind"] = apiVersion, kind
	d.decode(id.kind, m, first, where, fail)
}

// orPlace is a place, or another where no line is known.
func orPlace(p, other Place) Place {
	if p.Line == 0 {
		return other
	}
	return p
}

// listItem says whether a kind is a list: List of v1, whose items name their own
// kind, or XxxList, whose items are Xxx.
func listItem(apiVersion, kind string) (of string, ok bool) {
	if kind == "List" && apiVersion == "v1" {
		return "", true
	}
	of, ok = strings.CutSuffix(kind, "List")
	if !ok || kubernetesKinds()[of] == "" {
		return "", false
	}
	return of, true
}

func (d *decoder) list(from origin, m map[string]any, at, apiVersion, of string, depth int, fail func(string, string)) {
	if depth > 3 {
		fail("", "lists inside lists, deeper than three levels")
		return
	}
	for _, name := range sorted(m) {
		switch name {
		case "apiVersion", "kind", "metadata", "items":
		default:
			fail(name, "unknown field")
		}
	}
	items, ok := m["items"].([]any)
	if !ok && m["items"] != nil {
		fail("items", "must be a list, not "+noun(m["items"]))
		return
	}
	if of == "" {
		apiVersion = ""
	}
	for i, v := range items {
		prefix := at + "items" + nth(i) + "."
		e, ok := v.(map[string]any)
		if !ok {
			fail("items"+nth(i), "must be a map, not "+noun(v))
			continue
		}
		d.object(from, e, prefix, apiVersion, of, depth+1)
	}
}

// full says whether the file declares as much as it may, and reports it once.
func (d *decoder) full(fail func(string, string)) bool {
	if len(d.manifests)+d.foreign < MaxDocuments {
		return false
	}
	if !d.tooMany {
		fail("", fmt.Sprintf("the file declares more than %d objects: split it", MaxDocuments))
	}
	d.tooMany = true
	return true
}

func (d *decoder) decode(k Kind, m map[string]any, first Place, where func(string) Place, fail func(string, string)) {
	if d.full(fail) {
		return
	}
	out := Manifest{Kind: k, Path: first.Path, Line: first.Line, Column: first.Column, Declared: m, Where: where}
	warn := func(field, reason string) {
		out.Warnings = append(out.Warnings, Problem{Field: field, Reason: reason}.At(where(field)))
	}
	dropServerFields(m, warn)
	var s shape
	s.value("", reflect.TypeOf(k.Prototype), m)
	for _, p := range s.problems {
		fail(p.Field, p.Reason)
	}
	if s.broken {
		return
	}
	if k.Kind == "Secret" {
		foldStringData(m)
	}
	if k.Kind == "Service" {
		dropRequests(m)
	}
	data, err := json.Marshal(m)
	if err != nil {
		fail("", err.Error())
		return
	}
	obj := k.New()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, obj); err != nil {
		fail("", err.Error())
		return
	}
	if k.Namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace(d.opts.DefaultNamespace)
	}
	Scheme().Default(obj)
	out.Object, out.Hash = obj, ManifestHash(m)
	d.manifests = append(d.manifests, out)
}

// dropServerFields takes out what the cluster fills in itself and what stands in
// manifests only because they were copied out of one.
func dropServerFields(m map[string]any, warn func(field, reason string)) {
	if status, ok := m["status"]; ok {
		if s, isMap := status.(map[string]any); status != nil && !(isMap && len(s) == 0) {
			warn("status", "ignored: the cluster writes the status")
		}
		delete(m, "status")
	}
	meta, ok := m["metadata"].(map[string]any)
	if !ok {
		return
	}
	for _, name := range []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
		if v, ok := meta[name]; ok {
			if v != nil {
				warn("metadata."+name, "ignored: the cluster writes it")
			}
			delete(meta, name)
		}
	}
}

// foldStringData moves a Secret's stringData into data, where it wins over what
// data has, as Kubernetes does.
func foldStringData(m map[string]any) {
	plain, ok := m["stringData"].(map[string]any)
	delete(m, "stringData")
	if !ok || len(plain) == 0 {
		return
	}
	data, ok := m["data"].(map[string]any)
	if !ok {
		data = map[string]any{}
		m["data"] = data
	}
	for k, v := range plain {
		if text, ok := v.(string); ok { // the shape has been checked
			data[k] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
}

// dropRequests takes out of a Service what asks to be given an address or a port,
// in so many words: it is as if it were left out, and what is given is no drift.
func dropRequests(m map[string]any) {
	spec, _ := m["spec"].(map[string]any)
	for _, name := range []string{"clusterIP", "clusterIPs", "healthCheckNodePort"} {
		if asks(spec[name]) {
			delete(spec, name)
		}
	}
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		if port, ok := p.(map[string]any); ok && asks(port["nodePort"]) {
			delete(port, "nodePort")
		}
	}
}

// asks says whether a value stands for none.
func asks(v any) bool { return empty(v) || v == int64(0) || v == float64(0) }

// Declares says whether a file may be meant as a manifest: a document in it has
// an apiVersion or a kind, or a name and a spec as if these were forgotten, or
// names one and cannot be read.
func Declares(data []byte) bool {
	if !bytes.Contains(data, []byte("apiVersion")) && !bytes.Contains(data, []byte("kind")) && !bytes.Contains(data, []byte("metadata")) {
		return false
	}
	for line := range bytes.Lines(data) { // the usual form needs no parser
		if bytes.HasPrefix(line, []byte("apiVersion:")) {
			return true
		}
	}
	if len(data) > MaxFileBytes {
		return true
	}
	for _, doc := range split(data) {
		if doc.blank() {
			continue
		}
		v, _, err := doc.value()
		if err != nil {
			return bytes.Contains(doc.text, []byte("apiVersion")) || kindLine(doc.text)
		}
		if m, ok := v.(map[string]any); ok && declares(m) {
			return true
		}
	}
	return false
}

func declares(m map[string]any) bool {
	for _, name := range []string{"apiVersion", "kind"} {
		if _, ok := m[name]; ok {
			return true
		}
	}
	meta, _ := m["metadata"].(map[string]any)
	_, named := meta["name"].(string)
	_, spec := m["spec"].(map[string]any)
	return named && spec
}

// kindLine says whether a line of a text that cannot be read is a kind.
func kindLine(text []byte) bool {
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("kind:")) {
			return true
		}
	}
	return false
}
