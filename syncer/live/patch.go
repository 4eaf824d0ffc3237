package live

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"headway.dev/headway/syncer/live/splice"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// mergePatch is the strategic merge patch, as kustomize reads it, that makes want
// of an object; want nil takes the object away.
func mergePatch(object, want map[string]any) map[string]any {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	doc := map[string]any{}
	if want == nil {
		doc["$patch"] = "delete"
	} else {
		s := openapi.SchemaForResourceType(yaml.TypeMeta{APIVersion: apiVersion, Kind: kind})
		doc = mapPatch(s, object, want)
	}
	doc["apiVersion"], doc["kind"] = apiVersion, kind
	meta := metaPatch(doc)
	meta["name"] = metaOf(object, "name")
	if ns := metaOf(object, "namespace"); ns != "" {
		meta["namespace"] = ns
	}
	return doc
}

// metaPatch is the metadata of a patch.
func metaPatch(doc map[string]any) map[string]any {
	meta, ok := doc["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		doc["metadata"] = meta
	}
	return meta
}

func mapPatch(s *openapi.ResourceSchema, a, b map[string]any) map[string]any {
	out := map[string]any{}
	for name := range a {
		if _, ok := b[name]; !ok {
			out[name] = nil
		}
	}
	for name, v := range b {
		if old, ok := a[name]; !ok || !reflect.DeepEqual(old, v) {
			out[name] = valuePatch(field(s, name), old, v)
		}
	}
	return out
}

func valuePatch(s *openapi.ResourceSchema, a, b any) any {
	switch b := b.(type) {
	case map[string]any:
		if a, ok := a.(map[string]any); ok {
			return mapPatch(s, a, b)
		}
	case []any:
		if a, ok := a.([]any); ok {
			return listPatch(s, a, b)
		}
	}
	return b
}

// listPatch names the items that change by their merge key, where the list has
// one that is text. All other lists are written whole.
func listPatch(s *openapi.ResourceSchema, a, b []any) any {
	if s == nil {
		return b
	}
	strategy, keys := s.PatchStrategyAndKeyList()
	if !strings.Contains(strategy, "merge") {
		return b
	}
	if len(keys) == 1 {
		if items, ok := itemPatches(s.Elements(), keys[0], a, b); ok {
			return items
		}
	}
	if len(b) > 0 {
		if _, ok := b[0].(map[string]any); !ok { // text is merged by no directive
			return b
		}
	}
	return append([]any{map[string]any{"$patch": "replace"}}, b...)
}

// itemPatches changes and removes items that are known by a key. kustomize puts
// the items that a patch names before all others, so those before the last one
// that changes are named too. ok is false when items would have to be added or
// moved.
func itemPatches(s *openapi.ResourceSchema, key string, a, b []any) (items []any, ok bool) {
	before, after := keysOf(a, key), keysOf(b, key)
	next, last := 0, 0
	for i, name := range before {
		if name == "" || slices.Index(before, name) != i {
			return nil, false
		}
		if next >= len(after) || after[next] != name {
			items = append(items, map[string]any{"$patch": "delete", key: name})
			last = len(items)
			continue
		}
		patch := mapPatch(s, a[i].(map[string]any), b[next].(map[string]any))
		changes := len(patch) > 0
		patch[key] = name
		if items = append(items, patch); changes {
			last = len(items)
		}
		next++
	}
	return items[:last], next == len(after)
}

func keysOf(list []any, key string) (out []string) {
	for _, v := range list {
		m, _ := v.(map[string]any)
		name, _ := m[key].(string)
		out = append(out, name)
	}
	return out
}

func field(s *openapi.ResourceSchema, name string) *openapi.ResourceSchema {
	if s == nil {
		return nil
	}
	return s.Field(name)
}

// jsonPatch is the JSON patch (RFC 6902) that makes b of a, which are at path.
func jsonPatch(a, b any, path string) (ops []any) {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	op := func(verb, path string, value ...any) {
		o := map[string]any{"op": verb, "path": path}
		if len(value) > 0 {
			o["value"] = value[0]
		}
		ops = append(ops, o)
	}
	am, okA := a.(map[string]any)
	bm, okB := b.(map[string]any)
	if okA && okB {
		for _, name := range slices.Sorted(maps.Keys(union(am, bm))) {
			at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			_, was := am[name]
			now, is := bm[name]
			switch {
			case !is:
				op("remove", at)
			case !was:
				op("add", at, now)
			default:
				ops = append(ops, jsonPatch(am[name], now, at)...)
			}
		}
		return ops
	}
	al, okA := a.([]any)
	bl, okB := b.([]any)
	if okA && okB && len(al) == len(bl) {
		for i := range al {
			ops = append(ops, jsonPatch(al[i], bl[i], path+"/"+strconv.Itoa(i))...)
		}
		return ops
	}
	op("replace", path, b)
	return ops
}

// hashed is a name that kustomize may have put a hash behind.
var hashed = regexp.MustCompile(`^(.+)(-[0-9a-z]{10})$`)

// transformers makes want of an object with entries for a kustomization's
// transformers, the first with number n. These come before kustomize puts the hash
// of the content behind the name of a ConfigMap or a Secret that it generates; but
// the object goes by the hash of its declared content, so it is given that name,
// and kustomize's mark is taken away.
func transformers(n int, at id, object, want map[string]any) (docs [][]byte, err error) {
	target := map[string]any{"version": at.apiVersion, "kind": at.kind, "name": regexp.QuoteMeta(at.name)}
	if group, version, ok := strings.Cut(at.apiVersion, "/"); ok {
		target["group"], target["version"] = group, version
	}
	if at.namespace != "" {
		target["namespace"] = regexp.QuoteMeta(at.namespace)
	}
	add := func(patch any, options map[string]any) {
		var text, doc []byte
		if err == nil {
			text, err = splice.YAML(patch)
		}
		fields := map[string]any{
			"apiVersion": "builtin", "kind": "PatchTransformer", "target": target,
			"patch":    string(text) + "# end\n", // kustomize trims a patch, and a text at its end would lose its line end
			"metadata": map[string]any{"name": fmt.Sprintf("headway-live-%d", n+len(docs))},
		}
		if options != nil {
			fields["options"] = options
		}
		if err == nil {
			doc, err = splice.YAML(fields)
		}
		docs = append(docs, doc)
	}
	m := hashed.FindStringSubmatch(at.name)
	generated := m != nil && (at.kind == "ConfigMap" || at.kind == "Secret")
	if generated {
		target["name"] = regexp.QuoteMeta(m[1]) + "(" + regexp.QuoteMeta(m[2]) + ")?"
	}
	if want == nil {
		add(mergePatch(object, nil), nil)
		return docs, err
	}
	add(jsonPatch(object, want, ""), nil)
	if generated {
		add(map[string]any{"apiVersion": at.apiVersion, "kind": at.kind, "metadata": map[string]any{
			"name": at.name, "annotations": map[string]any{"internal.config.kubernetes.io/needsHashSuffix": nil},
		}}, map[string]any{"allowNameChange": true})
	}
	return docs, err
}
