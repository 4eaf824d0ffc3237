package live_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/corpus"
	"headway.dev/headway/syncer/live"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
)

// corpusFiles are the files of the corpus that this version can apply.
func corpusFiles(t *testing.T) files {
	all := files{}
	err := filepath.WalkDir(filepath.Join(corpus.Dir(t), "valid"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		decoded, problems := api.DecodeFile(path, data, api.DecodeOptions{DefaultNamespace: "default"})
		if len(problems) > 0 || len(decoded) == 0 {
			return nil
		}
		for _, m := range decoded {
			if !m.Kind.Declarable || m.Object.GetName() == "" || homeless(m.Object) {
				return nil
			}
		}
		name, err := filepath.Rel(filepath.Join(corpus.Dir(t), "valid"), path)
		all[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 40 {
		t.Fatalf("only %d files", len(all))
	}
	return all
}

// TestPropertyPlainFiles changes the live objects of real manifests at random,
// writes the live ref and finds that it declares exactly what is live.
func TestPropertyPlainFiles(t *testing.T) {
	all := corpusFiles(t)
	rapid.Check(t, func(rt *rapid.T) {
		path := rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(rt, "file")
		f := files{path: all[path]}
		if drifted := disturb(rt, f); len(drifted) > 0 {
			written(rt, f, nil, drifted)
		}
	})
}

// TestPropertyUnits does the same behind a kustomization.
func TestPropertyUnits(t *testing.T) {
	all := corpusFiles(t)
	rapid.Check(t, func(rt *rapid.T) {
		if !rapid.Custom(func(t *rapid.T) bool { return rapid.IntRange(0, 3).Draw(t, "n") == 0 }).Draw(rt, "now") {
			return // a build takes long
		}
		path := rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(rt, "file")
		if len(all[path]) > 20_000 {
			return
		}
		f := files{"web/a.yaml": all[path], "web/kustomization.yaml": "resources: [a.yaml]\n" + rapid.SampledFrom([]string{
			"", "namePrefix: p-\n", "namespace: prod\n", "labels:\n- pairs: {team: x}\n", "nameSuffix: -s\ncommonAnnotations: {a: b}\n",
		}).Draw(rt, "kustomization")}
		if _, why, err := f.Build("web", nil); why != "" || err != nil {
			return // the same object twice, in another namespace
		}
		if drifted := disturb(rt, f, "web"); len(drifted) > 0 {
			written(rt, f, []string{"web"}, drifted)
		}
	})
}

// disturb gives some of the objects that are declared as they might be live.
func disturb(t *rapid.T, f files, units ...string) map[string]api.Object {
	all := f.declares(t, units...)
	drifted := map[string]api.Object{}
	for range rapid.IntRange(1, 3).Draw(t, "objects") {
		m := rapid.SampledFrom(all).Draw(t, "object")
		if rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
			drifted[key(m)] = nil
			continue
		}
		obj := m.Object
		for range rapid.IntRange(1, 4).Draw(t, "edits") {
			if next := disturbed(t, m.Kind, obj); next != nil {
				obj = next
			}
		}
		if d, err := live.Compare(m, obj); err == nil && d != nil {
			drifted[key(m)] = obj
		}
	}
	return drifted
}

// disturbed changes one value of obj, adds one, takes one away, or turns a list
// around. It returns nil when that gives no object.
func disturbed(t *rapid.T, k api.Kind, obj api.Object) api.Object {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	delete(fields, "status")
	var at any = fields
	for depth := rapid.IntRange(1, 9).Draw(t, "depth"); ; depth-- {
		switch in := at.(type) {
		case map[string]any:
			if len(in) == 0 {
				return nil
			}
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(in))).Draw(t, "field")
			if next := in[name]; depth > 1 && holds(next) {
				at = next
				continue
			}
			if rapid.Bool().Draw(t, "delete") {
				delete(in, name)
			} else {
				in[name] = other(t, in[name])
			}
		case []any:
			if len(in) == 0 {
				return nil
			}
			i := rapid.IntRange(0, len(in)-1).Draw(t, "item")
			if depth > 1 && holds(in[i]) {
				at = in[i]
				continue
			}
			in[i] = other(t, in[i])
		}
		break
	}
	out := k.New()
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, out) != nil {
		return nil
	}
	out.SetName(obj.GetName())
	out.SetNamespace(obj.GetNamespace())
	api.Scheme().Default(out)
	if homeless(out) {
		return nil
	}
	return out
}

// homeless says whether a binding names a ServiceAccount without its namespace. No
// live object does: Kubernetes refuses it; and kustomize, which adds the namespace
// after the last of its transformers, could not be made to give it.
func homeless(obj api.Object) bool {
	var subjects []rbacv1.Subject
	switch b := obj.(type) {
	case *rbacv1.ClusterRoleBinding:
		subjects = b.Subjects
	case *rbacv1.RoleBinding:
		subjects = b.Subjects
	}
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == ""
	})
}

func holds(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

func other(t *rapid.T, v any) any {
	switch v := v.(type) {
	case string:
		return rapid.SampledFrom([]string{v + "x", "1", "", "1000m", "yes", "a: b\n# c\n", " x\ty"}).Draw(t, "text")
	case int64:
		return v + rapid.Int64Range(-1, 1).Draw(t, "number")
	case bool:
		return !v
	case []any:
		out := slices.Clone(v)
		switch rapid.SampledFrom([]string{"turn", "first", "last", "none"}).Draw(t, "list") {
		case "turn":
			slices.Reverse(out)
		case "first":
			return out[min(1, len(out)):]
		case "last":
			return out[:max(0, len(out)-1)]
		case "none":
			return []any{}
		}
		return out
	case map[string]any:
		out := maps.Clone(v)
		out["x"] = "y"
		return out
	}
	return v
}
