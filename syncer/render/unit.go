package render

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"headway.dev/headway/api"
	"sigs.k8s.io/kustomize/api/types"
)

// Bounds of one kustomization with all that it uses, each base counted as often
// as it is used.
const (
	maxUnitObjects = 3_000
	maxUnitVisits  = 3_000
	maxUnitBytes   = 16 << 20
	maxUnitValues  = 500_000
	maxUnitWidth   = 5_000
	maxUnitDepth   = 50
	maxUnitGrowth  = 64 << 20  // bytes that patches, variables and replacements may add
	maxUnitWork    = 5_000_000 // patches and replacements times objects
)

// unit is a kustomization that nothing else refers to, with everything it uses.
type unit struct {
	r         *renderer
	dir       string
	at        api.Place // of its kustomization
	facts     map[string]string
	layers    map[string]*layer // by folder
	problems  problems
	warnings  problems
	foreign   []api.Foreign
	instances []*instance // that kustomize starts from
	reached   int         // instances, each counted as often as it is used
	visits    int
	bytes     int
	growth    int
	values    int
	largest   int // bytes of the largest file
	longest   int // bytes of the longest text
	doubled   int // replacements that may double a text
	work      int
	copies    int // operations of JSON patches that copy
	variables int // "$(" in all that is used
	secrets   bool
	custom    bool // kustomize must see the kustomizations as they are written
	full      bool // a bound was passed; said once
}

func (u *unit) touch(p string) { u.facts[p] = u.r.index.fact(p) }

func (u *unit) fail(at api.Place, field, reason string) {
	u.problems.add(api.Problem{Field: field, Reason: reason}.At(at))
}

func (u *unit) refuse(reason string) {
	if !u.full {
		u.full = true
		u.fail(u.at, "", reason)
	}
}

// kustomization reads that of a folder; nil when there is none, or when it cannot
// be read, which has been said.
func (u *unit) kustomization(dir string) (*kustomization, error) {
	for _, name := range names() {
		u.touch(path.Join(dir, name))
	}
	k, err := u.r.kustomization(dir, u.touch)
	if err != nil || k == nil {
		return nil, err
	}
	u.touch(k.file)
	for _, p := range k.problems {
		u.problems.add(p)
	}
	u.note(k.text, k.measure)
	return k, nil
}

// note looks at what is used, before kustomize does: its time grows with the
// square of many things.
func (u *unit) note(text []byte, m measure) {
	m.bytes = max(m.bytes, len(text))
	u.bytes += m.bytes
	u.values += m.values
	u.largest = max(u.largest, m.bytes)
	u.longest = max(u.longest, m.longest)
	u.variables += bytes.Count(text, []byte("$("))
	u.secrets = u.secrets || mentionsSecret(text)
	const counted = ", each file counted as often as it is used: split it"
	switch {
	case u.bytes > maxUnitBytes:
		u.refuse(fmt.Sprintf("the kustomization uses more than %d bytes of files"+counted, maxUnitBytes))
	case u.values > maxUnitValues:
		u.refuse(fmt.Sprintf("the kustomization uses more than %d values"+counted, maxUnitValues))
	case m.widest > maxUnitWidth:
		u.refuse(fmt.Sprintf("the kustomization uses a map or a list of more than %d entries: make it a manifest of its own", maxUnitWidth))
	}
}

// gather walks what a kustomization uses, checks all of it, and adds to acc the
// objects that kustomize starts from. stack holds the kustomizations on the way.
func (u *unit) gather(k *kustomization, acc []*instance, stack []*kustomization) ([]*instance, error) {
	if u.visits++; u.visits > maxUnitVisits {
		u.refuse(fmt.Sprintf("the kustomization uses others more than %d times, each counted as often as it is used", maxUnitVisits))
	}
	if len(stack) >= maxUnitDepth {
		u.fail(k.at(""), "", fmt.Sprintf("bases inside bases, deeper than %d levels", maxUnitDepth))
		return acc, nil
	}
	if u.full {
		return acc, nil
	}
	stack = append(stack, k)
	u.custom = u.custom || len(k.spec.Configurations) > 0 || slices.Contains(k.spec.BuildMetadata, types.TransformerAnnotations)
	var components []ref
	for _, ref := range k.refs {
		if ref.want == wantComponent {
			components = append(components, ref)
			continue
		}
		var err error
		if acc, err = u.use(k, ref, acc, stack); err != nil {
			return acc, err
		}
	}
	acc = u.generated(k, acc)
	for _, ref := range components {
		var err error
		if acc, err = u.use(k, ref, acc, stack); err != nil {
			return acc, err
		}
	}
	l, err := u.layer(k)
	if err != nil {
		return acc, err
	}
	for _, in := range acc {
		in.layers = append(in.layers, l)
		in.rename(&k.spec)
	}
	u.grow(l, acc)
	return acc, nil
}

// use checks one path of a kustomization and what it leads to.
func (u *unit) use(k *kustomization, ref ref, acc []*instance, stack []*kustomization) ([]*instance, error) {
	fail := func(reason string) { u.fail(ref.at, ref.field, reason) }
	if ref.want == wantPlugin && inline(ref.value) {
		if remote(ref.value) {
			fail(shown(ref.value) + " " + remoteReason)
			return acc, nil
		}
		return u.plugins(k, u.inlined(k, ref.field, ref.value), acc), nil
	}
	real, kind, reason, err := u.r.index.target(k.dir, ref.value, u.touch)
	if err != nil {
		return acc, err
	}
	if reason != "" {
		fail(reason)
		return acc, nil
	}
	switch {
	case kind == folder && ref.want == wantResource, kind == folder && ref.want == wantComponent:
		return u.base(k, ref, real, acc, stack)
	case kind == folder && ref.want == wantPlugin:
		fail(fmt.Sprintf("%s is a folder: name the files in it", shown(ref.value)))
		return acc, nil
	case kind == folder:
		fail(fmt.Sprintf("%s is a folder where a file is needed", shown(ref.value)))
		return acc, nil
	case ref.want == wantComponent:
		fail(fmt.Sprintf("%s is a file: a component is a folder with a kustomization of kind Component", shown(ref.value)))
		return acc, nil
	case ref.want == wantData, ref.want == wantVariables:
		return acc, u.data(real, ref)
	}
	s, err := u.source(real)
	if err != nil || s == nil {
		return acc, err
	}
	switch ref.want {
	case wantResource:
		if len(s.docs) == 0 && len(s.problems) == 0 {
			return acc, nil // kustomize takes an empty file
		}
		for _, d := range s.docs {
			acc = u.resource(part{doc: d}, acc)
		}
	case wantPlugin:
		var parts []part
		for _, d := range s.docs {
			parts = append(parts, part{doc: d})
		}
		return u.plugins(k, parts, acc), nil
	}
	return acc, nil
}

// base goes on in the folder that a kustomization names.
func (u *unit) base(k *kustomization, ref ref, dir string, acc []*instance, stack []*kustomization) ([]*instance, error) {
	fail := func(reason string) { u.fail(ref.at, ref.field, reason) }
	for i, on := range stack {
		switch {
		case on.dir == dir:
			var way []string
			for _, s := range stack[i:] {
				way = append(way, s.dir)
			}
			fail(fmt.Sprintf("kustomizations refer to each other in a circle: %s", strings.Join(append(way, dir), " → ")))
			return acc, nil
		case within(on.dir, dir):
			fail(fmt.Sprintf("%s holds %s, which uses it: kustomize takes that for a circle, so move one of them", dir, on.dir))
			return acc, nil
		}
	}
	sub, err := u.kustomization(dir)
	if err != nil {
		return acc, err
	}
	if sub == nil {
		fail(fmt.Sprintf("the folder %s has no kustomization: name its files, or add one", shown(ref.value)))
		return acc, nil
	}
	switch {
	case !sub.readable:
		return acc, nil
	case ref.want == wantComponent && !sub.component():
		fail(fmt.Sprintf("%s is no component: name it in resources", shown(ref.value)))
		return acc, nil
	case ref.want == wantResource && sub.component():
		fail(fmt.Sprintf("%s is a component: name it in components", shown(ref.value)))
		return acc, nil
	case sub.component():
		return u.gather(sub, acc, stack)
	}
	more, err := u.gather(sub, nil, stack)
	return append(acc, more...), err
}

// within says whether the folder inner is below outer.
func within(inner, outer string) bool {
	return outer == "." && inner != "." || strings.HasPrefix(inner, outer+"/")
}

// source reads a file strictly; nil when that gave problems, which are said.
func (u *unit) source(real string) (*source, error) {
	u.touch(real)
	s, err := u.r.source(real)
	if err != nil {
		return nil, err
	}
	u.note(s.text, s.measure)
	for _, p := range s.problems {
		u.problems.add(p)
	}
	if len(s.problems) > 0 {
		return nil, nil
	}
	return s, nil
}

// resource adds the objects of a document.
func (u *unit) resource(p part, acc []*instance) []*instance {
	for _, o := range p.objects() {
		m, ok := o.value.(map[string]any)
		if !ok {
			u.fail(o.place(""), "", "must be a map with apiVersion, kind and metadata")
			continue
		}
		kind, name := text(m, "kind"), text(m, "metadata", "name")
		switch {
		case kind == "":
			u.fail(o.place("kind"), "kind", "missing: every document names its apiVersion and its kind")
			continue
		case name == "" && !present(m, "metadata", "name"): // a name like y is a boolean to us, not to kustomize
			u.fail(o.place("metadata.name"), "metadata.name", "missing: kustomize needs the name of every object")
			continue
		}
		acc = u.instance(acc, &instance{part: o, kind: kind, group: group(text(m, "apiVersion")), name: name, namespace: text(m, "metadata", "namespace"), at: o.place("")})
	}
	return acc
}

func (u *unit) instance(acc []*instance, in *instance) []*instance {
	if u.reached++; u.reached > maxUnitObjects {
		u.refuse(fmt.Sprintf("the kustomization makes more than %d objects: split it", maxUnitObjects))
		return acc
	}
	in.original = in.name
	return append(acc, in)
}

// generated adds the objects that the kustomization's own generators make.
func (u *unit) generated(k *kustomization, acc []*instance) []*instance {
	add := func(field, kind string, g types.GeneratorArgs) {
		if g.Name == "" {
			u.fail(k.at(field), field+".name", "missing: a generated object needs a name")
			return
		}
		at := k.at(field + ".name")
		if g.Behavior == "merge" || g.Behavior == "replace" {
			for _, in := range acc {
				if in.kind == kind && in.original == g.Name {
					in.more = append(in.more, at)
				}
			}
			return
		}
		acc = u.instance(acc, &instance{kind: kind, name: g.Name, namespace: g.Namespace, at: at, made: true})
	}
	for i, g := range k.spec.ConfigMapGenerator {
		add(fmt.Sprintf("configMapGenerator[%d]", i), "ConfigMap", g.GeneratorArgs)
	}
	for i, g := range k.spec.SecretGenerator {
		add(fmt.Sprintf("secretGenerator[%d]", i), "Secret", g.GeneratorArgs)
	}
	return acc
}
