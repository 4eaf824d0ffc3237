package syncer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/git"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Blame says where the declared fields of an object come from. Its JSON is what
// `headway blame -o json` prints: names in it do not change.
type Blame struct {
	Asked      string        `json:"asked"` // the object that was asked about: Pod default/web-1-x
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Namespace  string        `json:"namespace,omitempty"`
	Name       string        `json:"name"`
	Commit     string        `json:"commit"` // whose manifest it is: the applied one
	Path       string        `json:"path"`
	Line       int           `json:"line"`
	Fields     []BlamedField `json:"fields"`
}

// BlamedField is one declared field and the commit that its line comes from.
type BlamedField struct {
	Field  string          `json:"field"`
	Value  json.RawMessage `json:"value,omitempty"` // nothing where it could be a secret
	Path   string          `json:"path"`
	Line   int             `json:"line"`
	Commit string          `json:"commit"`
	Author string          `json:"author"` // "Name <mail>"
	Date   time.Time       `json:"date"`
}

// Title names the declared object.
func (b Blame) Title() string { return title(b.Kind, b.Namespace, b.Name) }

// Blamer is a repository as far as its lines go.
type Blamer interface {
	Blame(ctx context.Context, commit, path string, lines ...int) ([]git.Blamed, error)
}

// maxBlamed bounds the fields of one answer.
const maxBlamed = 2000

// Blame says which commit each declared field of an object comes from; field names
// one, or all below it, and is empty for every field. object is KIND/NAME or
// KIND/NAMESPACE/NAME, the kind as kubectl takes it; of a Pod or a
// ReplicaSet that a controller made, the declared object that it was made from
// answers. Any server may be asked.
func (s *Syncer) Blame(ctx context.Context, r Blamer, object, field string) (Blame, error) {
	src := s.source()
	if src == nil || src.Status.Applied == "" {
		return Blame{}, unknown("no commit has been applied yet")
	}
	kind, asked, err := parseObject(object)
	if err != nil {
		return Blame{}, err
	}
	d, err := s.render(ctx, s.cfg.Commits, src.Status.Applied, src.Status.Path)
	if err != nil {
		return Blame{}, fmt.Errorf("read the applied commit: %w", err)
	}
	m := s.declaredBehind(d, asked)
	if m == nil {
		return Blame{}, unknown("%s is not declared in commit %s, nor was it made from an object that is%s", titleOf(asked), short(src.Status.Applied), d.namesakes(asked))
	}
	b := Blame{
		Asked: title(kind.Kind, asked.Namespace, asked.Name), APIVersion: m.Kind.GroupVersion().String(), Kind: m.Kind.Kind,
		Namespace: m.Object.GetNamespace(), Name: m.Object.GetName(), Commit: src.Status.Applied, Path: m.Path, Line: m.Line,
	}
	b.Fields = declaredLeaves(m, field)
	if len(b.Fields) > maxBlamed {
		return Blame{}, unknown("%s declares more than %s fields: name one as KIND/NAME:FIELD", b.Title(), thousands(maxBlamed))
	}
	if len(b.Fields) == 0 {
		return Blame{}, unknown("%s:%d declares no field %q of %s", m.Path, m.Line, field, b.Title())
	}
	return b, blameLines(ctx, r, &b)
}

// namesakes says in which other namespaces an object of the name is declared.
func (d *desired) namesakes(key store.Key) string {
	var spaces []string
	for _, m := range d.list {
		if other := keyOf(m); other.GroupResource == key.GroupResource && other.Name == key.Name && other.Namespace != key.Namespace {
			spaces = append(spaces, other.Namespace)
		}
	}
	if len(spaces) == 0 {
		return ""
	}
	slices.Sort(spaces)
	const most = 5
	if len(spaces) > most {
		spaces = append(spaces[:most], "…")
	}
	return "; one of this name is in the namespace " + strings.Join(spaces, ", ") + " (-n)"
}

// blameLines asks for the lines of each file at once.
func blameLines(ctx context.Context, r Blamer, b *Blame) error {
	const most = 1000 // lines of one question
	lines := map[string]map[int]bool{}
	for _, f := range b.Fields {
		if lines[f.Path] == nil {
			lines[f.Path] = map[int]bool{}
		}
		lines[f.Path][f.Line] = true
	}
	found := map[string]map[int]git.Blamed{}
	for _, path := range slices.Sorted(maps.Keys(lines)) {
		found[path] = map[int]git.Blamed{}
		for chunk := range slices.Chunk(slices.Sorted(maps.Keys(lines[path])), most) {
			blamed, err := r.Blame(ctx, b.Commit, path, chunk...)
			if err != nil {
				return err
			}
			for i, line := range chunk {
				found[path][line] = blamed[i]
			}
		}
	}
	for i := range b.Fields {
		f := &b.Fields[i]
		at := found[f.Path][f.Line]
		f.Commit, f.Author, f.Date = at.Commit, at.Author, at.Authored.UTC()
	}
	return nil
}

// parseObject reads KIND/NAME and KIND/NAMESPACE/NAME.
func parseObject(text string) (api.Kind, store.Key, error) {
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return api.Kind{}, store.Key{}, unknown("%.200q: name the object as KIND/NAME or KIND/NAMESPACE/NAME, such as deployment/web", text)
	}
	name, group, full := strings.Cut(strings.ToLower(parts[0]), ".") // deployments.apps
	if long, ok := shortNames()[name]; ok {
		name = long
	}
	for _, k := range api.Kinds() {
		if name != strings.ToLower(k.Kind) && name != k.Resource || full && group != k.Group {
			continue
		}
		key := store.Key{GroupResource: k.GroupResource(), Name: parts[len(parts)-1]}
		switch {
		case k.Namespaced && len(parts) == 3:
			key.Namespace = parts[1]
		case k.Namespaced:
			key.Namespace = metav1.NamespaceDefault
		case len(parts) == 3:
			return k, key, unknown("a %s is in no namespace: name it as %s/%s", k.Kind, strings.ToLower(k.Kind), key.Name)
		}
		return k, key, nil
	}
	return api.Kind{}, store.Key{}, unknown("kind %.100q is not known", parts[0])
}

// shortNames are kubectl's, with the resources that they stand for.
func shortNames() map[string]string {
	return map[string]string{
		"cj": "cronjobs", "cm": "configmaps", "deploy": "deployments", "ds": "daemonsets", "ep": "endpoints", "hpa": "horizontalpodautoscalers",
		"ing": "ingresses", "limits": "limitranges", "netpol": "networkpolicies", "no": "nodes", "ns": "namespaces", "pc": "priorityclasses",
		"pdb": "poddisruptionbudgets", "po": "pods", "pv": "persistentvolumes", "pvc": "persistentvolumeclaims", "quota": "resourcequotas",
		"rs": "replicasets", "sa": "serviceaccounts", "sc": "storageclasses", "sts": "statefulsets", "svc": "services",
	}
}

// declaredBehind is the manifest of an object, or of the one that it was made from
// by controllers.
func (s *Syncer) declaredBehind(d *desired, key store.Key) *api.Manifest {
	const generations = 8
	for range generations {
		if m := d.manifest(key); m != nil {
			return m
		}
		obj := s.cfg.Store.Get(key)
		if obj == nil {
			return nil
		}
		var ok bool
		if key, ok = ownerKey(obj); !ok {
			return nil
		}
	}
	return nil
}

// ownerKey is the controller that made an object.
func ownerKey(obj api.Object) (store.Key, bool) {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil {
		return store.Key{}, false
	}
	k, ok := api.KindFor(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
	if !ok {
		return store.Key{}, false
	}
	key := store.Key{GroupResource: k.GroupResource(), Name: owner.Name}
	if k.Namespaced {
		key.Namespace = obj.GetNamespace()
	}
	return key, true
}

// declaredLeaves lists the values that a manifest declares at a field or below it,
// with their places, in the order of the file.
func declaredLeaves(m *api.Manifest, field string) []BlamedField {
	l := leaves{m: m, field: field, hide: m.Kind.GroupResource() == api.Secrets()}
	for _, name := range slices.Sorted(maps.Keys(m.Declared)) {
		if name != "status" {
			l.walk(fieldPath("", name), fieldPath("", name), m.Declared[name])
		}
	}
	slices.SortStableFunc(l.found, func(a, b BlamedField) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return l.found
}

type leaves struct {
	m     *api.Manifest
	field string
	hide  bool
	found []BlamedField
}

// walk knows a field by two names: at counts the items of lists, as the places do,
// and named tells them apart by their names, as drift does.
func (l *leaves) walk(at, named string, v any) {
	if len(l.found) > maxBlamed {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			l.walk(fieldPath(at, name), fieldPath(named, name), v[name])
		}
		if len(v) > 0 {
			return
		}
	case []any:
		_, unique := byName(v)
		for i, item := range v {
			n := fmt.Sprintf("%s[%d]", named, i)
			if unique {
				n = named + "[" + item.(map[string]any)["name"].(string) + "]"
			}
			l.walk(fmt.Sprintf("%s[%d]", at, i), n, item)
		}
		if len(v) > 0 {
			return
		}
	}
	if !within(at, l.field) && !within(named, l.field) {
		return
	}
	where := l.m.Place(at)
	f := BlamedField{Field: named, Path: where.Path, Line: where.Line}
	if !l.hide || !within(at, "data") && !within(at, "stringData") && !within(at, "metadata.annotations") {
		f.Value = rawValue(v)
	}
	l.found = append(l.found, f)
}

// within says whether a path is field or below it.
func within(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || field == "" || rest[0] == '.' || rest[0] == '[')
}
