package store

import (
	"strings"

	"headway.dev/headway/api"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Prefix is where all of Headway's keys start.
const Prefix = "/headway/"

// Key names one object.
type Key struct {
	schema.GroupResource
	Namespace string // "" for a cluster-scoped resource
	Name      string
}

// KeyOf returns the key of obj. It panics on a type that api does not know,
// which is a mistake in the program.
func KeyOf(obj api.Object) Key {
	k, ok := api.KindOf(obj)
	if !ok {
		panic("store: object of an unknown type")
	}
	return Key{GroupResource: k.GroupResource(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Path is the key in the backend: /headway/<group>/<resource>/<namespace>/<name>.
// The core group is written "core", the missing namespace of a cluster-scoped
// object "_" (no namespace can be called that).
func (k Key) Path() string {
	return ResourcePrefix(k.GroupResource) + pathNamespace(k.Namespace) + "/" + k.Name
}

// String is for people: deployments.apps default/web.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.GroupResource.String() + " " + k.Name
	}
	return k.GroupResource.String() + " " + k.Namespace + "/" + k.Name
}

// ResourcePrefix is the common start of all keys of one resource, with a
// trailing slash.
func ResourcePrefix(gr schema.GroupResource) string {
	g := gr.Group
	if g == "" {
		g = "core"
	}
	return Prefix + g + "/" + gr.Resource + "/"
}

func pathNamespace(ns string) string {
	if ns == "" {
		return "_"
	}
	return ns
}

// ParsePath is the inverse of Key.Path; ok is false for a path of no object of a
// kind that this version knows, such as the election key.
func ParsePath(path string) (k Key, kind api.Kind, ok bool) {
	rest, ok := strings.CutPrefix(path, Prefix)
	if !ok {
		return Key{}, api.Kind{}, false
	}
	part := strings.Split(rest, "/")
	if len(part) != 4 || part[3] == "" {
		return Key{}, api.Kind{}, false
	}
	if part[0] == "core" {
		part[0] = ""
	}
	if part[2] == "_" {
		part[2] = ""
	}
	k = Key{GroupResource: schema.GroupResource{Group: part[0], Resource: part[1]}, Namespace: part[2], Name: part[3]}
	kind, ok = api.ResourceKind(k.GroupResource)
	if !ok || kind.Namespaced == (k.Namespace == "") {
		return Key{}, api.Kind{}, false
	}
	return k, kind, true
}
