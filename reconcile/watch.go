package reconcile

import (
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Itself wakes the key of whatever object of a resource changed.
func Itself(gr schema.GroupResource) Watch {
	return Watch{Resource: gr, Keys: func(e store.Event) []Key { return []Key{e.Key} }}
}

// Owner wakes the controller, of a kind and resource, of whatever object of gr
// changed.
func Owner(gr schema.GroupResource, kind string, owner schema.GroupResource) Watch {
	return Watch{Resource: gr, Keys: func(e store.Event) []Key {
		var obj api.Object = e.Object
		if e.Deleted() {
			obj = e.Previous
		}
		if ref := metav1.GetControllerOf(obj); ref != nil && ref.Kind == kind {
			return []Key{{GroupResource: owner, Namespace: e.Key.Namespace, Name: ref.Name}}
		}
		return nil
	}}
}

// Keys lists the keys of every object of a resource.
func Keys(r store.Reader, gr schema.GroupResource) []Key {
	objects := r.List(gr, "")
	keys := make([]Key, 0, len(objects))
	for _, obj := range objects {
		keys = append(keys, store.KeyOf(obj))
	}
	return keys
}
