package live

import (
	"slices"
	"strings"

	"headway.dev/headway/api"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Drift is a declared object that is not as its manifest says.
type Drift struct {
	Manifest *api.Manifest
	Live     api.Object // nil: deleted
	Fields   []Field    // by path; none when deleted
}

// Field is a declared field whose live value is another.
type Field struct {
	Path fieldpath.Path // in the manifest; list items by their merge keys
	// Declared is the value as the manifest has it, Live the other one in the same
	// form. Of a value that is hidden there is neither.
	Declared, Live any
	Missing        bool // the live object has no such field, key or item
	Order          bool // a list whose items stand in another order
	Hidden         bool // of a Secret (R14)
}

// Object names the object: "Deployment default/web".
func (d *Drift) Object() string {
	name := d.Manifest.Object.GetName()
	if d.Manifest.Kind.Namespaced {
		name = d.Manifest.Object.GetNamespace() + "/" + name
	}
	return d.Manifest.Kind.Kind + " " + name
}

// Name is the field's path for people: spec.containers[name="web"].image.
func (f Field) Name() string {
	var b strings.Builder
	for _, pe := range f.Path {
		if pe.FieldName == nil {
			b.WriteString(pe.String())
			continue
		}
		step(&b, *pe.FieldName)
	}
	return b.String()
}

// step adds a key to a path: with a dot, or in brackets if it has dots itself, as
// Kubernetes writes them.
func step(b *strings.Builder, name string) {
	switch {
	case name == "" || strings.ContainsAny(name, "./[] "):
		b.WriteString("[" + name + "]")
	case b.Len() == 0:
		b.WriteString(name)
	default:
		b.WriteString("." + name)
	}
}

// hidden says whether a field of the manifest is a secret value. Annotations are
// among them: kubectl apply keeps the whole Secret in one.
func hidden(m *api.Manifest, path fieldpath.Path) bool {
	if m.Kind.GroupResource() != api.Secrets() || len(path) == 0 || path[0].FieldName == nil {
		return false
	}
	switch *path[0].FieldName {
	case "data", "stringData":
		return true
	case "metadata":
		return len(path) > 1 && path[1].FieldName != nil && *path[1].FieldName == "annotations"
	}
	return false
}

func fieldNamed(path fieldpath.Path, name string) fieldpath.Path {
	return append(slices.Clip(path), fieldpath.FieldNameElement(name))
}
