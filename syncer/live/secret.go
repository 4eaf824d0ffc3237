package live

import (
	"encoding/base64"
	"fmt"
	"reflect"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/live/splice"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Differs is what the live ref has in the place of a Secret's value that differs:
// as it is in stringData and in annotations, in base64 in data, so that the file
// can still be read as a manifest. Where YAML allows it a comment says what it
// means. Nothing of the live value is in it, not even its length (R14).
const Differs = "<differs>"

// differsMore stands where Differs is declared: someone has taken over a live ref.
const differsMore = "<differs again>"

const secretNote = "differs; the values of Secrets are not written"

// edits make doc, a document as it stands in a file or comes from kustomize, say
// what is live. It is an error when doc is not what the manifest was read from.
func (d *Drift) edits(doc map[string]any) (edits []splice.Edit, err error) {
	declared := d.declaredBy(doc)
	for _, f := range d.Fields {
		if f.Hidden {
			of := hiddenEdits(f, doc)
			if len(of) == 0 {
				return nil, fmt.Errorf("it does not declare %s there", f.Name())
			}
			edits = append(edits, of...)
			continue
		}
		if v, ok := splice.Lookup(declared, f.Path); !ok || !reflect.DeepEqual(v, f.Declared) {
			return nil, fmt.Errorf("it does not declare %s there as the manifest does", f.Name())
		}
		edits = append(edits, splice.Edit{Path: f.Path, Value: f.Live, Delete: f.Missing})
	}
	return edits, nil
}

// declaredBy is what a document declares as the manifest has it: without nulls and
// what else means nothing where it stands. It is nil when doc cannot be decoded.
func (d *Drift) declaredBy(doc map[string]any) map[string]any {
	doc = runtime.DeepCopyJSON(doc)
	doc["apiVersion"], doc["kind"] = d.Manifest.Kind.GroupVersion().String(), d.Manifest.Kind.Kind // an item of a list need not say it
	read, _ := api.DecodeObject(doc, func(string) api.Place { return api.Place{} }, api.DecodeOptions{})
	if len(read) != 1 {
		return nil
	}
	return read[0].Declared
}

// hiddenEdits finds where a field of a Secret stands: what the manifest has in
// data may stand in stringData, which wins, or in both.
func hiddenEdits(f Field, doc map[string]any) (edits []splice.Edit) {
	if *f.Path[0].FieldName != "data" { // an annotation
		old, ok := splice.Lookup(doc, f.Path)
		value := Differs
		if old == value {
			value = differsMore
		}
		if !ok {
			return nil
		}
		return []splice.Edit{hiddenEdit(f, f.Path, value)}
	}
	for _, in := range []string{"stringData", "data"} {
		held, ok := doc[in].(map[string]any)
		if !ok {
			continue
		}
		path := append(fieldpath.Path{fieldpath.FieldNameElement(in)}, f.Path[1:]...)
		if len(f.Path) == 1 {
			edits = append(edits, hiddenEdit(f, path, ""))
			continue
		}
		old, ok := held[*f.Path[1].FieldName]
		if !ok {
			continue
		}
		value, more := Differs, differsMore
		if in == "data" {
			value, more = base64.StdEncoding.EncodeToString([]byte(value)), base64.StdEncoding.EncodeToString([]byte(more))
		}
		if old == value {
			value = more
		}
		edits = append(edits, hiddenEdit(f, path, value))
		if !f.Missing {
			break
		}
	}
	return edits
}

func hiddenEdit(f Field, path fieldpath.Path, value string) splice.Edit {
	if f.Missing {
		return splice.Edit{Path: path, Delete: true}
	}
	return splice.Edit{Path: path, Value: value, Note: secretNote}
}

// IsMarker says whether a Secret's value, decoded, is what the live ref writes in
// its place. Such a manifest was taken over from a live ref and has lost a value.
func IsMarker(value []byte) bool {
	return string(value) == Differs || string(value) == differsMore
}
