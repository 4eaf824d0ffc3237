package live

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/live/splice"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Files is the tree of the applied commit.
type Files interface {
	// Read gives the content of a file, links inside the tree followed; an error
	// that is fs.ErrNotExist when there is none.
	Read(path string) ([]byte, error)
	// Build gives what `kustomize build` prints for a folder, with some files of
	// the tree replaced or added; or why that gives nothing, without any Secret's
	// value. An error says that the tree could not be read.
	Build(unit string, with map[string][]byte) (out []byte, why string, err error)
}

// Tree gives the files of the live ref that differ from the applied commit's tree,
// by path; nil stands for a file that is taken away. A path that is a link in the
// commit becomes a file. A drift that cannot be written is a problem that names its
// manifest and its object; all others are written nevertheless. err is one of
// Files: the tree could not be read, which says nothing about the drift.
//
// The result does not depend on the order of drifts.
func Tree(files Files, drifts []*Drift) (changed map[string][]byte, problems []api.Problem, err error) {
	t := tree{files: files, changed: map[string][]byte{}}
	plain, units := map[string][]*Drift{}, map[string][]*Drift{}
	for _, d := range drifts {
		if unit := d.Manifest.Unit; unit != "" {
			units[unit] = append(units[unit], d)
		} else {
			plain[d.Manifest.Path] = append(plain[d.Manifest.Path], d)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(plain)) {
		if err := t.file(path, ordered(plain[path])); err != nil {
			return nil, nil, err
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(units)) {
		if err := t.unit(dir, ordered(units[dir])); err != nil {
			return nil, nil, err
		}
	}
	return t.changed, t.problems, nil
}

func ordered(drifts []*Drift) []*Drift {
	return slices.SortedStableFunc(slices.Values(drifts), func(a, b *Drift) int {
		return cmp.Or(cmp.Compare(a.Manifest.Path, b.Manifest.Path), cmp.Compare(a.Manifest.Line, b.Manifest.Line), cmp.Compare(a.Object(), b.Object()))
	})
}

type tree struct {
	files    Files
	changed  map[string][]byte
	problems []api.Problem
}

func (t *tree) problem(d *Drift, why string) {
	t.problems = append(t.problems, api.Problem{Path: d.Manifest.Path, Line: d.Manifest.Line, Reason: "the live values of " + d.Object() + " cannot be written: " + why})
}

// file writes the drifts of the manifests in one plain file.
func (t *tree) file(path string, drifts []*Drift) error {
	data, err := t.files.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		for _, d := range drifts {
			t.problem(d, "the applied commit has no such file")
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	found := t.find(data, drifts)
	out, err := splice.File(data, allEdits(found))
	if err != nil && len(found) > 1 {
		// Each that can be written on its own is.
		found = slices.DeleteFunc(found, func(f finding) bool {
			if _, err := splice.File(data, f.edits); err != nil {
				t.problem(f.drift, err.Error())
				return true
			}
			return false
		})
		out, err = splice.File(data, allEdits(found))
	}
	if err == nil && len(out) > api.MaxFileBytes {
		err = fmt.Errorf("the file would have %d bytes; at most %d can be read", len(out), api.MaxFileBytes)
	}
	if err != nil {
		for _, f := range found {
			t.problem(f.drift, err.Error())
		}
		return nil
	}
	if len(found) > 0 && !bytes.Equal(out, data) {
		t.changed[path] = out
	}
	return nil
}

// finding is a drift with its place in a file.
type finding struct {
	drift    *Drift
	document int
	at       fieldpath.Path // of the object in the document
	edits    []splice.Edit
}

func allEdits(found []finding) (edits []splice.Edit) {
	for _, f := range found {
		edits = append(edits, f.edits...)
	}
	return edits
}

// find looks for the objects of drifts in a file and makes their edits.
func (t *tree) find(data []byte, drifts []*Drift) (found []finding) {
	docs, err := documents(data)
	if err != nil {
		for _, d := range drifts {
			t.problem(d, err.Error())
		}
		return nil
	}
	deleted := map[int]int{}
	for _, d := range drifts {
		i, o, err := docs.find(d.Manifest)
		if err != nil {
			t.problem(d, err.Error())
			continue
		}
		f := finding{drift: d, document: i, at: o.at}
		if d.Live == nil {
			deleted[i]++
			f.edits = []splice.Edit{{Document: i, Path: o.at, Delete: true}}
			found = append(found, f)
			continue
		}
		edits, err := d.edits(o.value)
		if err != nil {
			t.problem(d, err.Error())
			continue
		}
		for _, e := range edits {
			e.Document, e.Path = i, append(slices.Clip(o.at), e.Path...)
			f.edits = append(f.edits, e)
		}
		found = append(found, f)
	}
	// A list of which nothing is left goes as a whole.
	whole := map[int]bool{}
	for i, f := range found {
		if f.drift.Live == nil && deleted[f.document] == len(docs[f.document].objects) {
			if found[i].edits = nil; !whole[f.document] {
				found[i].edits = []splice.Edit{{Document: f.document, Delete: true}}
				whole[f.document] = true
			}
		}
	}
	return found
}

// located is an object of a document.
type located struct {
	id
	at    fieldpath.Path
	value map[string]any
}

type document struct {
	text        api.Text
	first, last int // lines in the file
	read        bool
	objects     map[id]located
	err         error
}

type documentList []document

func documents(data []byte) (documentList, error) {
	texts, err := api.Texts(data)
	if err != nil {
		return nil, err
	}
	docs := make(documentList, 0, len(texts))
	line, at := 1, 0
	for _, text := range texts {
		line += bytes.Count(data[at:text.Offset], []byte("\n"))
		last := line + bytes.Count(text.Bytes, []byte("\n"))
		docs = append(docs, document{text: text, first: line, last: last})
		line, at = last, text.Offset+len(text.Bytes)
	}
	return docs, nil
}

// find looks for the object of a manifest where its line is.
func (docs documentList) find(m *api.Manifest) (int, located, error) {
	for i := range docs {
		d := &docs[i]
		if m.Line < d.first || m.Line > d.last {
			continue
		}
		if !d.read {
			d.read = true
			v, err := d.text.Value()
			if d.err = err; err == nil {
				d.objects = map[id]located{}
				for _, o := range objects(v, nil, "", "", 0) {
					d.objects[o.id] = o
				}
			}
		}
		if d.err != nil {
			return 0, located{}, d.err
		}
		if o, ok := d.objects[target(m)]; ok {
			return i, o, nil
		}
	}
	return 0, located{}, fmt.Errorf("the file does not have it in line %d", m.Line)
}

// objects lists the objects of a document: itself, or the items of a list.
func objects(v any, at fieldpath.Path, apiVersion, kind string, depth int) (out []located) {
	m, ok := v.(map[string]any)
	if !ok || depth > 4 {
		return nil
	}
	if s, ok := m["apiVersion"].(string); ok && s != "" {
		apiVersion = s
	}
	if s, ok := m["kind"].(string); ok && s != "" {
		kind = s
	}
	items, isList := m["items"].([]any)
	of, named := strings.CutSuffix(kind, "List")
	if !isList || !named {
		return []located{{id{apiVersion, kind, metaOf(m, "namespace"), metaOf(m, "name")}, at, m}}
	}
	if of == "" {
		apiVersion = ""
	}
	for i, e := range items {
		out = append(out, objects(e, append(fieldNamed(at, "items"), fieldpath.IndexElement(i)), apiVersion, of, depth+1)...)
	}
	return out
}

// id names an object as a document does: what it leaves out is empty.
type id struct{ apiVersion, kind, namespace, name string }

// target is the name of a manifest's object.
func target(m *api.Manifest) id {
	return id{m.Kind.GroupVersion().String(), m.Kind.Kind, metaOf(m.Declared, "namespace"), metaOf(m.Declared, "name")}
}

// metaOf is a text in an object's metadata, "" if there is none.
func metaOf(object map[string]any, name string) string {
	meta, _ := object["metadata"].(map[string]any)
	s, _ := meta[name].(string)
	return s
}
