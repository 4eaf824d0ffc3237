package syncer

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/corpus"
	"headway.dev/headway/internal/schema"
	"headway.dev/headway/syncer/live"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// TestDriftIsWhatHealingChanges edits live objects at random. What live.Compare
// finds is gone after a merge, and where it finds nothing a merge changes no
// declared field.
func TestDriftIsWhatHealingChanges(t *testing.T) {
	all := declaredSamples(t)
	drifted, clean := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.SampledFrom(all).Draw(t, "manifest")
		obj := born(m)
		for range rapid.IntRange(0, 3).Draw(t, "edits") {
			if next := disturbed(t, m.Kind, obj); next != nil {
				obj = next
			}
		}
		d, err := live.Compare(m, obj)
		if err != nil {
			t.Fatal(err)
		}
		healed, changed, err := merge(m, m, obj)
		if err != nil {
			t.Skip(err) // a live object that no API would have let in
		}
		if d == nil {
			clean++
			if declared := declaredChanges(t, m, obj, healed); len(declared) > 0 {
				t.Fatalf("no drift, and healing changes %v", declared)
			}
			return
		}
		drifted++
		if len(changed) == 0 {
			t.Fatalf("drift, and healing changes nothing: %+v", d.Fields)
		}
		if left, err := live.Compare(m, healed); err != nil || left != nil {
			t.Fatalf("drift that healing leaves: %v, %+v", err, left)
		}
	})
	if drifted+clean >= 100 && (drifted == 0 || clean == 0) {
		t.Errorf("%d drifted, %d clean: the test tries too little", drifted, clean)
	}
}

// declaredSamples are manifests of the corpus that this version can apply, and one
// that has everything.
func declaredSamples(t *testing.T) []*api.Manifest {
	all := manifests(t, "a.yaml", web)
	err := filepath.WalkDir(filepath.Join(corpus.Dir(t), "valid"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) > 20_000 {
			return err
		}
		decoded, problems := api.DecodeFile("a.yaml", data, api.DecodeOptions{DefaultNamespace: "default"})
		for i := range decoded {
			if len(problems) == 0 && decoded[i].Kind.Declarable && len(decoded[i].Check()) == 0 {
				all = append(all, &decoded[i])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// disturbed changes one value of obj, adds one, takes one away, or turns a list
// around. It returns nil when that gives no object.
func disturbed(t *rapid.T, k api.Kind, obj api.Object) api.Object {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	delete(fields, "status")
	meta := fields["metadata"].(map[string]any)
	kept := maps.Clone(meta)
	at := any(fields)
	for depth := rapid.IntRange(1, 9).Draw(t, "depth"); ; depth-- {
		switch in := at.(type) {
		case map[string]any:
			if len(in) == 0 {
				return nil
			}
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(in))).Draw(t, "field")
			if next := in[name]; depth > 1 && !scalarValue(next) {
				at = next
				continue
			}
			if rapid.Bool().Draw(t, "delete") {
				delete(in, name)
			} else {
				in[name] = disturbedValue(t, in[name])
			}
		case []any:
			if len(in) == 0 {
				return nil
			}
			i := rapid.IntRange(0, len(in)-1).Draw(t, "item")
			if depth > 1 && !scalarValue(in[i]) {
				at = in[i]
				continue
			}
			in[i] = disturbedValue(t, in[i])
		}
		break
	}
	for _, name := range []string{"name", "namespace"} {
		if kept[name] != nil {
			meta[name] = kept[name]
		}
	}
	fields["metadata"] = meta
	out := k.New()
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, out) != nil {
		return nil
	}
	keep(out, obj)
	complete(out)
	return out
}

func scalarValue(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

func disturbedValue(t *rapid.T, v any) any {
	switch v := v.(type) {
	case string:
		return rapid.SampledFrom([]string{v + "x", "1", "", "1000m"}).Draw(t, "text")
	case int64:
		return v + rapid.Int64Range(-1, 1).Draw(t, "number")
	case bool:
		return !v
	case []any:
		out := slices.Clone(v)
		switch rapid.SampledFrom([]string{"turn", "first", "last", "twice"}).Draw(t, "list") {
		case "turn":
			slices.Reverse(out)
		case "first":
			return out[min(1, len(out)):]
		case "last":
			return out[:max(0, len(out)-1)]
		}
		return out
	case map[string]any:
		out := maps.Clone(v)
		out["x"] = "y"
		return out
	}
	return v
}

// declaredChanges are the fields of the document that differ in two objects.
func declaredChanges(t *rapid.T, m *api.Manifest, a, b api.Object) (out []string) {
	typ, err := schema.TypeOf(m.Kind)
	if err != nil {
		t.Fatal(err)
	}
	next, err := typ.FromUnstructured(declaredFields(m))
	if err != nil {
		t.Fatal(err)
	}
	set, err := next.ToFieldSet()
	if err != nil {
		t.Fatal(err)
	}
	before, err := typedObject(typ, m.Kind, a)
	if err != nil {
		t.Fatal(err)
	}
	after, err := typedObject(typ, m.Kind, b)
	if err != nil {
		t.Fatal(err)
	}
	c, err := before.Compare(after)
	if err != nil {
		t.Fatal(err)
	}
	c.Removed.Union(c.Modified).Union(c.Added).Intersection(set).Iterate(func(p fieldpath.Path) {
		v, ok := at(before.AsValue().Unstructured(), p)
		w, ok2 := at(after.AsValue().Unstructured(), p)
		if ok && ok2 && sameQuantity(v, w) {
			return
		}
		out = append(out, fmt.Sprintf("%s %v %v", strings.TrimPrefix(p.String(), "."), v, w))
	})
	return out
}

// sameQuantity says whether two values differ in their spelling as an amount only.
func sameQuantity(a, b any) bool {
	x, okX := a.(string)
	y, okY := b.(string)
	if !okX || !okY {
		return false
	}
	p, errX := resource.ParseQuantity(x)
	q, errY := resource.ParseQuantity(y)
	return errX == nil && errY == nil && p.Cmp(q) == 0
}
