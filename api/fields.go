package api

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Field is one field that a manifest can have, with the verdict on it.
type Field struct {
	// Path of the field: [] is each item of a list, {} each key of a map. The
	// resources of a container are named; extended-resource stands for those that
	// a node's devices bring, hugepages-size for the pages of each size.
	Path string
	// Leaf says that the field holds a value, or is listed with all that it holds:
	// the spec of a pod, a field of a stored kind. Any other one is a map or a list,
	// and its verdict is about an empty one.
	Leaf bool
	Rule FieldRule // its Path is that of the row; zero when there is no row
}

// emptySaysNothing is why an empty map or list is harmless although nothing below
// it is acted on.
const emptySaysNothing = "empty, it says nothing; what it holds is refused"

// Fields lists every field that a declarable kind's manifest can have, by path,
// with the row that speaks for it. A field in no row has no verdict. Of the spec
// of a pod there is one field only: PodFields has them.
func Fields(k Kind) []Field {
	if !k.Declarable {
		return nil
	}
	l := lister{}
	l.visit(ruleTree(FieldRules(k)), "", reflect.TypeOf(k.Prototype), nil)
	return l.sorted()
}

// PodFields lists every field of a pod's spec as Fields does, and the ones that
// real manifests have by mistake; the paths start with "spec.".
func PodFields() []Field {
	rules := PodFieldRules()
	l := lister{}
	l.visit(ruleTree(rules).next["spec"], "spec", reflect.TypeFor[corev1.PodSpec](), nil)
	for _, r := range misplacedPodFields() {
		r.Path = "spec." + r.Path
		l.fields = append(l.fields, Field{Path: r.Path, Leaf: true, Rule: r})
	}
	return slices.DeleteFunc(l.sorted(), func(f Field) bool { return f.Path == "spec" })
}

// PodSpecPath is where the spec of a pod stands in a kind; "" when there is none.
func PodSpecPath(k Kind) string {
	switch k.Kind {
	case "Pod":
		return "spec"
	case "ReplicaSet", "ReplicationController", "Deployment", "StatefulSet", "DaemonSet", "Job":
		return "spec.template.spec"
	case "CronJob":
		return "spec.jobTemplate.spec.template.spec"
	}
	return ""
}

// lister walks a Go type beside the tree of rows.
type lister struct{ fields []Field }

func (l *lister) sorted() []Field {
	slices.SortFunc(l.fields, func(a, b Field) int { return strings.Compare(a.Path, b.Path) })
	return l.fields
}

// visit lists what a type holds below a path. n is the node of the rows there, nil
// when there is none or when above, the row of something over it, speaks for all.
// It returns whether something there is acted on.
func (l *lister) visit(n *ruleNode, path string, t reflect.Type, above *FieldRule) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n != nil && n.rule != nil {
		above, n = n.rule, nil
		switch {
		case t == reflect.TypeFor[corev1.PodSpec]():
			l.leaf(path, above, -1)
			return true
		case above.Verdict == Stored: // with all that is below, which may hold itself
			l.leaf(path, above, -1)
			return false
		}
	}
	below := func(step, shown string, t reflect.Type) bool {
		var child *ruleNode
		if n != nil {
			child = n.at(step)
		}
		return l.visit(child, shown, t, above)
	}
	self := -1
	if path != "" && !strings.HasSuffix(path, "[]") && !strings.HasSuffix(path, "{}") {
		self = len(l.fields)
		l.fields = append(l.fields, Field{Path: path})
	}
	var any bool
	switch {
	case t == reflect.TypeFor[corev1.ResourceList]():
		for _, name := range resourcesAt(path) {
			any = below(name, path+"."+name, t.Elem()) || any
		}
	case reflect.PointerTo(t).Implements(unmarshaler()):
		return l.leaf(path, above, self)
	case t.Kind() == reflect.Struct:
		for name, ft := range fieldsOf(t) {
			any = below(name, strings.TrimPrefix(path+"."+name, "."), ft) || any
		}
	case t.Kind() == reflect.Map:
		any = below("{}", path+"{}", t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		any = below("[]", path+"[]", t.Elem())
	default:
		return l.leaf(path, above, self)
	}
	if self >= 0 {
		f := &l.fields[self]
		switch {
		case above != nil:
			f.Rule = *above
		case any:
			f.Rule = FieldRule{Path: path, Verdict: Acted}
		default:
			f.Rule = FieldRule{Path: path, Verdict: Harmless, Why: emptySaysNothing}
		}
	}
	return any
}

// leaf lists a value and says whether it is acted on.
func (l *lister) leaf(path string, r *FieldRule, self int) bool {
	f := Field{Path: path, Leaf: true}
	if r != nil {
		f.Rule = *r
	}
	if self >= 0 {
		l.fields[self] = f
	} else {
		l.fields = append(l.fields, f)
	}
	return f.Rule.Verdict == Acted
}

// resourcesAt names the keys of a list of resources.
func resourcesAt(path string) []string {
	if strings.Contains(path, "volumeClaimTemplate") || strings.HasPrefix(path, "spec.resources.") || path == "spec.capacity" {
		return []string{"storage"}
	}
	return []string{"cpu", "ephemeral-storage", extendedResource, hugePages, "memory"}
}

// ConfigFields lists every field of a ConfigFile. All are acted on.
func ConfigFields() []Field {
	l := lister{}
	l.visit(nil, "", reflect.TypeFor[Config](), nil)
	for i := range l.fields {
		f := &l.fields[i]
		f.Rule = FieldRule{Path: f.Path, Verdict: Acted}
	}
	return l.sorted()
}
