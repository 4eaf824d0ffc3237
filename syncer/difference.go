package syncer

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"headway.dev/headway/api"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Bounds of one FieldChange list.
const (
	maxFieldChanges = 200
	maxValueBytes   = 1000 // of one value; longer text is cut
)

// fieldChanges lists in which fields an object changes, sorted, down to the single
// values. Items of a list that have names are told apart by them. What the cluster
// itself writes is left out.
func fieldChanges(before, after api.Object) []FieldChange {
	a, err := plainObject(before)
	if err != nil {
		return []FieldChange{{Field: "(not shown: " + err.Error() + ")", Hidden: true}}
	}
	b, err := plainObject(after)
	if err != nil {
		return []FieldChange{{Field: "(not shown: " + err.Error() + ")", Hidden: true}}
	}
	k, _ := api.KindOf(after)
	d := differ{hide: k.GroupResource() == api.Secrets()}
	d.walk("", a, b)
	return d.found
}

// plainObject is an object as JSON's types, without what no manifest declares.
func plainObject(obj api.Object) (map[string]any, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	delete(m, "status")
	delete(m, "apiVersion")
	delete(m, "kind")
	if meta, ok := m["metadata"].(map[string]any); ok {
		for _, f := range assigned() {
			delete(meta, f)
		}
		if notes, ok := meta["annotations"].(map[string]any); ok {
			for _, k := range provenanceKeys() {
				delete(notes, k)
			}
			if len(notes) == 0 {
				delete(meta, "annotations")
			}
		}
	}
	return m, nil
}

type differ struct {
	hide  bool
	found []FieldChange
}

func (d *differ) walk(path string, a, b any) {
	if reflect.DeepEqual(a, b) || len(d.found) >= maxFieldChanges {
		return
	}
	am, aMap := a.(map[string]any)
	bm, bMap := b.(map[string]any)
	if (aMap || a == nil) && (bMap || b == nil) && len(am)+len(bm) > 0 {
		keys := map[string]bool{}
		for k := range am {
			keys[k] = true
		}
		for k := range bm {
			keys[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if !implied(k, keys) {
				d.walk(fieldPath(path, k), am[k], bm[k])
			}
		}
		return
	}
	al, aList := a.([]any)
	bl, bList := b.([]any)
	if (aList || a == nil) && (bList || b == nil) && len(al)+len(bl) > 0 {
		d.list(path, al, bl)
		return
	}
	d.add(path, a, b)
}

// implied is true for a field that the cluster fills by itself from another: a
// Job's selector by its uid, and the old name of serviceAccountName.
func implied(name string, beside map[string]bool) bool {
	switch name {
	case "controller-uid", batchv1.ControllerUidLabel:
		return true
	case "serviceAccount":
		return beside["serviceAccountName"]
	}
	return false
}

func (d *differ) list(path string, a, b []any) {
	an, aNamed := byName(a)
	bn, bNamed := byName(b)
	if !aNamed || !bNamed {
		for i := range max(len(a), len(b)) {
			d.walk(fmt.Sprintf("%s[%d]", path, i), nth(a, i), nth(b, i))
		}
		return
	}
	before := len(d.found)
	names := map[string]bool{}
	for name := range an {
		names[name] = true
	}
	for name := range bn {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d.walk(path+"["+name+"]", an[name], bn[name])
	}
	if len(d.found) == before {
		d.found = append(d.found, FieldChange{Field: path, Hidden: true}) // another order
	}
}

func nth(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// byName gives the items of a list by their names, if each has one of its own.
func byName(list []any) (map[string]any, bool) {
	out := make(map[string]any, len(list))
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, false
		}
		name, ok := m["name"].(string)
		if _, twice := out[name]; !ok || twice {
			return nil, false
		}
		out[name] = item
	}
	return out, true
}

func (d *differ) add(path string, a, b any) {
	f := FieldChange{Field: path, Hidden: d.hide}
	if !d.hide {
		f.Old, f.New = rawValue(a), rawValue(b)
	}
	d.found = append(d.found, f)
}

func rawValue(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	if s, ok := v.(string); ok && len(s) > maxValueBytes {
		v = strings.ToValidUTF8(s[:maxValueBytes], "") + "…"
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return raw
}

// fieldPath adds a name to a path, in brackets when it has dots of its own.
func fieldPath(path, name string) string {
	switch {
	case path == "":
		return name
	case strings.ContainsAny(name, "./[] "):
		return path + "[" + name + "]"
	}
	return path + "." + name
}
