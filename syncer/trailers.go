package syncer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// The trailers that a commit message may carry for the judge. Keys are compared
// without regard to case, as git does.
const (
	// TrailerAllowDelete lets a commit delete more than the limit: "all", a number
	// of objects, KIND/NAME, KIND/NAMESPACE/NAME, or Namespace/NAME, which covers
	// what is in the namespace, too. Source/NAME has what a further source declared
	// deleted with its entry, which only that allows.
	TrailerAllowDelete = "Allow-Delete"
	// TrailerReplace lets an object be deleted and made again when a change in
	// place is forbidden: KIND/NAMESPACE/NAME, or KIND/NAME for a kind without
	// namespaces.
	TrailerReplace = "Replace"
)

// Trailer is one "Key: value" line at the end of a commit's message.
type Trailer struct{ Commit, Key, Value string }

func (t Trailer) is(key string) bool { return strings.EqualFold(t.Key, key) }

func (t Trailer) String() string { return t.Key + ": " + t.Value }

// target names objects, as trailers and messages write them.
type target struct{ kind, namespace, name string }

// parseTarget reads KIND/NAME or KIND/NAMESPACE/NAME; a kind that cannot be
// declared is none.
func parseTarget(s string) (target, bool) {
	parts := strings.Split(s, "/")
	t := target{kind: parts[0]}
	switch len(parts) {
	case 2:
		t.name = parts[1]
	case 3:
		t.namespace, t.name = parts[1], parts[2]
	default:
		return t, false
	}
	known := false
	for _, k := range api.Kinds() {
		if k.Declarable && strings.EqualFold(k.Kind, t.kind) && (t.namespace == "" || k.Namespaced) {
			t.kind, known = k.Kind, true
		}
	}
	return t, known && t.name != "" && (len(parts) == 2 || t.namespace != "")
}

// names says whether key is an object that t names.
func (t target) names(key store.Key) bool {
	return kindOf(key) == t.kind && t.name == key.Name && (t.namespace == "" || t.namespace == key.Namespace)
}

// targetOf writes an object as KIND/NAMESPACE/NAME.
func targetOf(key store.Key) string {
	if key.Namespace == "" {
		return kindOf(key) + "/" + key.Name
	}
	return kindOf(key) + "/" + key.Namespace + "/" + key.Name
}

func kindOf(key store.Key) string {
	if kind, ok := api.ResourceKind(key.GroupResource); ok {
		return kind.Kind
	}
	return key.Resource
}

// titleOf is how messages name an object: Deployment default/web.
func titleOf(key store.Key) string { return title(kindOf(key), key.Namespace, key.Name) }

// asked is what the trailers of a range of commits ask for.
type asked struct {
	all     bool // deletions
	most    int  // deletions, by number
	delete  []target
	prune   []Trailer // Source/NAME
	replace []target
	unread  []Trailer // of ours, and not understood
}

func readTrailers(trailers []Trailer) asked {
	var a asked
	for _, t := range trailers {
		value := strings.TrimSpace(t.Value)
		named, ok := parseTarget(value)
		switch n, err := strconv.ParseUint(value, 10, 31); {
		case t.is(TrailerReplace) && ok && (named.namespace != "" || !namespaced(named.kind)):
			a.replace = append(a.replace, named)
		case t.is(TrailerReplace):
			a.unread = append(a.unread, t)
		case !t.is(TrailerAllowDelete):
		case sourceNamed(value) != "":
			a.prune = append(a.prune, t)
		case strings.EqualFold(value, "all"):
			a.all = true
		case err == nil:
			a.most = max(a.most, int(n))
		case ok:
			a.delete = append(a.delete, named)
		default:
			a.unread = append(a.unread, t)
		}
	}
	return a
}

// sourceNamed is the name in Source/NAME; "" of anything else.
func sourceNamed(value string) string {
	kind, name, _ := strings.Cut(value, "/")
	if !strings.EqualFold(kind, "Source") || strings.Contains(name, "/") {
		return ""
	}
	return name
}

// prunes says whether a trailer has what a source leaves deleted.
func (a asked) prunes(source string) bool {
	return slices.ContainsFunc(a.prune, func(t Trailer) bool { return sourceNamed(strings.TrimSpace(t.Value)) == source })
}

// idle are the trailers that let go what no source that goes has made.
func (a asked) idle(leaves map[string][]api.Object) []api.Problem {
	var out []api.Problem
	for _, t := range a.prune {
		if _, goes := leaves[sourceNamed(strings.TrimSpace(t.Value))]; !goes {
			out = append(out, api.Problem{Path: "commit " + short(t.Commit), Field: t.Key, Reason: fmt.Sprintf("%.100q has no effect: no source of this name is followed no longer by this commit", t.Value)})
		}
	}
	return out
}

func namespaced(kind string) bool {
	for _, k := range api.Kinds() {
		if k.Declarable && k.Kind == kind {
			return k.Namespaced
		}
	}
	return false
}

// deletes says whether a trailer allows this deletion by name.
func (a asked) deletes(key store.Key) bool {
	for _, t := range a.delete {
		if t.names(key) || t.kind == "Namespace" && key.Namespace == t.name {
			return true
		}
	}
	return a.all
}

// replaces says whether a trailer allows the object to be deleted and made again.
func (a asked) replaces(key store.Key) bool {
	for _, t := range a.replace {
		if t.names(key) {
			return true
		}
	}
	return false
}

// misread says which trailers were not understood.
func (a asked) misread() []api.Problem {
	var out []api.Problem
	for _, t := range a.unread {
		want := "all, a number, KIND/NAME, KIND/NAMESPACE/NAME, Namespace/NAME or Source/NAME"
		if t.is(TrailerReplace) {
			want = "KIND/NAMESPACE/NAME, or KIND/NAME for a kind without namespaces"
		}
		out = append(out, api.Problem{Path: "commit " + short(t.Commit), Field: t.Key, Reason: fmt.Sprintf("%.100q is not understood and has no effect: write %s", t.Value, want)})
	}
	return out
}

// precious says whether deleting an object destroys more than the object.
func precious(key store.Key) bool {
	switch key.GroupResource {
	case api.Namespaces(), api.PersistentVolumeClaims(), api.PersistentVolumes():
		return true
	}
	return false
}
