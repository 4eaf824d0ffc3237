package render

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"headway.dev/headway/api"
)

// tracer finds where the objects that kustomize gives come from. kustomize can
// annotate them with their files, but then every object has annotations while it
// is built, which changes what patches do, and of several documents in a file it
// does not say which. So the tracer goes by what it knows of the way: the kind,
// and the name with the prefixes and suffixes of every layer.
type tracer struct {
	k      *kustomization
	byName map[string][]*instance
	byKind map[string][]*instance
	taken  map[*instance]bool
}

func newTracer(k *kustomization, instances []*instance) *tracer {
	t := &tracer{k: k, byName: map[string][]*instance{}, byKind: map[string][]*instance{}, taken: map[*instance]bool{}}
	for _, in := range instances {
		key := in.kind + "/" + in.name
		t.byName[key] = append(t.byName[key], in)
		t.byKind[in.kind] = append(t.byKind[in.kind], in)
	}
	return t
}

var nameHash = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`-[a-z0-9]{10}$`) })

// instance finds what an object was before kustomize; nil when that cannot be
// known.
func (t *tracer) instance(object map[string]any) *instance {
	kind, name, namespace := text(object, "kind"), text(object, "metadata", "name"), text(object, "metadata", "namespace")
	found := t.byName[kind+"/"+name]
	if bare := nameHash().ReplaceAllString(name, ""); len(found) == 0 && bare != name {
		found = t.byName[kind+"/"+bare]
	}
	if len(found) > 1 {
		same := slices.DeleteFunc(slices.Clone(found), func(in *instance) bool { return t.taken[in] || in.namespace != namespace })
		if len(same) == 0 {
			same = slices.DeleteFunc(slices.Clone(found), func(in *instance) bool { return t.taken[in] })
		}
		found = same
	}
	if len(found) == 0 { // renamed by a patch, a replacement or a transformer
		for _, in := range t.byKind[kind] {
			if !t.taken[in] && strings.Contains(name, in.original) {
				found = append(found, in)
			}
		}
		if len(found) > 1 {
			return nil
		}
	}
	if len(found) == 0 {
		return nil
	}
	t.taken[found[0]] = true
	return found[0]
}

// places answers Manifest.Where for an object that kustomize gave.
func (t *tracer) places(object map[string]any) func(string) api.Place {
	in := t.instance(object)
	if in == nil {
		at := t.k.at("")
		return func(string) api.Place { return at }
	}
	return func(field string) api.Place { return in.place(field, object) }
}

// place is where the value of a field comes from: the outermost patch that sets
// it so, else the document that has it so, else what in a kustomization sets it,
// else the nearest that the document has.
func (in *instance) place(field string, object map[string]any) api.Place {
	if field == "" {
		return in.at
	}
	way := steps(field)
	value, known := follow(object, way)
	if known {
		way, value = wrongLabel(way, value)
	}
	present := len(way)
	for !known && present > 0 {
		present--
		value, known = follow(object, way[:present])
	}
	absent := present < len(way)
	if absent {
		if at, ok := in.removed(way, object); ok {
			return at
		}
	}
	if at, ok := in.patched(way[:present], object, value); ok {
		return at
	}
	var best api.Place
	if in.part.doc.Value != nil || in.part.value != nil {
		own, got, full := match(object, in.part.value, way[:present])
		if !full && present > 0 && way[0] == "data" {
			own, got, full = match(object, in.part.value, append([]string{"stringData"}, way[1:present]...))
		}
		best = in.part.place(pathOf(own))
		if full && (absent || same(got, value) || !scalar(value)) {
			return best
		}
	}
	if field == "metadata.name" && !in.renamedBadly() {
		if in.made {
			return in.at
		}
		return best
	}
	if at, ok := in.set(way[:present], value); ok {
		return at
	}
	switch {
	case in.made:
		return in.at
	case len(in.more) > 0 && field != "metadata.name":
		return in.more[len(in.more)-1]
	}
	return best
}

type forms struct{ name, label *regexp.Regexp }

var formsOf = sync.OnceValue(func() forms {
	return forms{name: regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`), label: regexp.MustCompile(`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`)}
})

// renamedBadly says whether a name was good before a prefix, a suffix or a
// namespace changed it.
func (in *instance) renamedBadly() bool {
	return formsOf().name.MatchString(in.original) && !formsOf().name.MatchString(in.name)
}

// wrongLabel goes on to the label that is wrong where Kubernetes names only the
// map that it is in.
func wrongLabel(way []string, value any) ([]string, any) {
	m, ok := value.(map[string]any)
	if !ok || len(way) == 0 || !slices.Contains([]string{"labels", "matchLabels"}, way[len(way)-1]) {
		return way, value
	}
	for _, k := range sortedKeys(m) {
		if v, ok := m[k].(string); ok && (len(v) > 63 || !formsOf().label.MatchString(v)) {
			return append(slices.Clone(way), k), v
		}
	}
	return way, value
}

func scalar(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

func same(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, ok := a.(int64)
	y, also := b.(float64)
	return ok && also && float64(x) == y
}

// follow goes down a value; "0" is an index in a list.
func follow(v any, way []string) (any, bool) {
	for _, step := range way {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[step]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, ok := atIndex(step, len(in))
			if !ok {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// match follows the same way in an object and in what it was made from, where
// the items of a list may stand elsewhere. It returns the way in the latter as
// far as it goes, what is there, and whether that is all the way.
func match(object, from any, way []string) (own []string, got any, full bool) {
	for _, step := range way {
		switch in := from.(type) {
		case map[string]any:
			next, ok := in[step]
			if !ok {
				return own, from, false
			}
			from, own = next, append(own, step)
			object, _ = follow(object, []string{step})
		case []any:
			item, ok := follow(object, []string{step})
			if !ok {
				return own, from, false
			}
			i := counterpart(item, in, step)
			if i < 0 {
				return own, from, false
			}
			own = append(own, itoa(i))
			object, from = item, in[i]
		default:
			return own, from, false
		}
	}
	return own, from, true
}

// mergeKeys are the fields that tell the items of a list apart.
func mergeKeys() []string {
	return []string{"name", "mountPath", "devicePath", "containerPort", "port", "key", "topologyKey", "ip", "uid", "type"}
}

// counterpart finds an item in the list that it may come from.
func counterpart(item any, list []any, step string) int {
	m, isMap := item.(map[string]any)
	for i, e := range list {
		other, ok := e.(map[string]any)
		if !isMap || !ok {
			if same(e, item) {
				return i
			}
			continue
		}
		for _, key := range mergeKeys() {
			a, has := m[key]
			b, also := other[key]
			if has && also {
				if same(a, b) {
					return i
				}
				break
			}
		}
	}
	if i, ok := atIndex(step, len(list)); ok && isMap {
		if _, ok := list[i].(map[string]any); ok && !named(m) {
			return i
		}
	}
	return -1
}

func named(m map[string]any) bool {
	for _, key := range mergeKeys() {
		if _, ok := m[key]; ok {
			return true
		}
	}
	return false
}
