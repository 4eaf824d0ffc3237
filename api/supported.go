package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Verdict is what this version does with a field or a kind (R12).
type Verdict string

const (
	Acted    Verdict = "acted"    // it has the effect that Kubernetes documents
	Stored   Verdict = "stored"   // accepted, kept and shown; nothing acts on it
	Harmless Verdict = "harmless" // of a field: accepted; leaving it out would change nothing that matters here
	Refused  Verdict = "refused"  // a manifest that has it is refused by name
)

// FieldRule is one row of the table of fields. A row that is acted on names one
// value; any other one also stands for everything below it. A field
// in no row is refused.
type FieldRule struct {
	Path    string // "spec.containers[].image"; [] is each item of a list, {} each key of a map that has no row of its own
	Verdict Verdict
	Only    []string // when set, other values are refused
	Why     string   // empty when acted on
}

// Reason says in one line why the verdict is what it is, and which values alone
// are accepted.
func (r FieldRule) Reason() string {
	if len(r.Only) == 0 {
		return r.Why
	}
	only := "only " + strings.Join(r.Only, " or ")
	if r.Why == "" {
		return only
	}
	return only + ": " + r.Why
}

// rows makes a row of each field that fields names, separated by blanks.
func rows(v Verdict, why, prefix, fields string) (out []FieldRule) {
	for f := range strings.FieldsSeq(fields) {
		out = append(out, FieldRule{Path: prefix + f, Verdict: v, Why: why})
	}
	return out
}

func acted(prefix, fields string) []FieldRule         { return rows(Acted, "", prefix, fields) }
func harmless(why, prefix, fields string) []FieldRule { return rows(Harmless, why, prefix, fields) }
func refused(why, prefix, fields string) []FieldRule  { return rows(Refused, why, prefix, fields) }

// only is a row of a field that may stand with these values.
func only(path, why string, values ...string) []FieldRule {
	return []FieldRule{{Path: path, Verdict: Harmless, Only: values, Why: why}}
}

// ruleNode is one step of the rows' paths. It has a row or steps below it, never
// both.
type ruleNode struct {
	rule *FieldRule
	next map[string]*ruleNode
}

func ruleTree(rules []FieldRule) *ruleNode {
	root := &ruleNode{}
	for _, r := range rules {
		at := root
		for step := range strings.SplitSeq(steps(r.Path), ".") {
			at = at.grow(step)
		}
		at.rule = &r
	}
	return root
}

// steps puts a dot before each [] and {}.
func steps(path string) string {
	return strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(path)
}

func (n *ruleNode) grow(step string) *ruleNode {
	if n.next == nil {
		n.next = map[string]*ruleNode{}
	}
	if n.next[step] == nil {
		n.next[step] = &ruleNode{}
	}
	return n.next[step]
}

// at is the node of a field or key; nil when there is no row for it.
func (n *ruleNode) at(name string) *ruleNode {
	if child := n.next[name]; child != nil {
		return child
	}
	if child := n.next[hugePages]; child != nil && strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
		return child
	}
	if child := n.next[extendedResource]; child != nil && extended(name) {
		return child
	}
	return n.next["{}"]
}

// extendedResource stands in a path for the resources that a node is said to have
// beside its own, such as example.com/gpu.
const extendedResource = "extended-resource"

// hugePages stands in a path for the pages of each size.
const hugePages = "hugepages-size"

func extended(resource string) bool {
	domain, _, ok := strings.Cut(resource, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

var ruleTrees = sync.OnceValue(func() map[string]*ruleNode {
	out := map[string]*ruleNode{}
	for _, k := range table() {
		if k.Declarable {
			out[k.Kind] = ruleTree(append(objectRules(k), harmless("not looked at here", "", "apiVersion kind metadata status")...))
		}
	}
	return out
})

// Unsupported lists the fields of a declarable kind's object that this version
// does not act on and that may not be ignored (R12). The metadata and the status
// are not looked at: see Manifest.Check. Other kinds pass.
func Unsupported(obj Object) field.ErrorList {
	k, ok := KindOf(obj)
	if !ok || !k.Declarable {
		return nil
	}
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	var u unsupported
	u.walk(ruleTrees()[k.Kind], nil, doc)
	switch o := obj.(type) {
	case *corev1.ResourceQuota:
		u.errs = append(u.errs, uncounted(o)...)
	case *corev1.PersistentVolume:
		u.errs = append(u.errs, unmounted(o)...)
	case *storagev1.StorageClass:
		u.errs = append(u.errs, unmade(o)...)
	}
	return u.errs
}

type unsupported struct{ errs field.ErrorList }

// walk compares a value with the rows from n down.
func (u *unsupported) walk(n *ruleNode, path *field.Path, v any) {
	switch {
	case v == nil:
		return
	case n == nil:
		u.judge(FieldRule{Verdict: Refused}, path, v)
		return
	case n.rule != nil:
		u.judge(*n.rule, path, v)
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			u.walk(n.at(name), step(path, name), v[name])
		}
	case []any:
		for i, e := range v {
			u.walk(n.next["[]"], path.Index(i), e)
		}
	default:
		u.judge(FieldRule{Verdict: Refused}, path, v)
	}
}

func step(path *field.Path, name string) *field.Path {
	switch {
	case path == nil:
		return field.NewPath(name)
	case strings.ContainsAny(name, "./"):
		return path.Key(name)
	}
	return path.Child(name)
}

func (u *unsupported) judge(r FieldRule, path *field.Path, v any) {
	const here = "supported by this version of Headway"
	reason := ""
	switch {
	case r.Verdict == Refused:
		reason = "not " + here
	case len(r.Only) > 0 && !slices.Contains(r.Only, fmt.Sprint(v)):
		reason = "only " + strings.Join(r.Only, " or ") + " is " + here
	default:
		return
	}
	if r.Why != "" {
		reason += ": " + r.Why
	}
	u.errs = append(u.errs, field.Forbidden(path, reason))
}
