package podset

import (
	"cmp"
	"slices"
	"sync"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Orphans remembers which objects of one resource have no controller, so that a
// controller that may adopt them does not look through the whole namespace each
// time. It may remember too many, never too few, as long as every event is noted
// (Note) and everything there is was at some time (Fill): what it remembers is
// checked against the reader, and corrected, when it is used.
type Orphans struct {
	resource schema.GroupResource

	mu    sync.Mutex
	names map[string]map[string]bool // by namespace
}

// NewOrphans returns an empty index of one resource.
func NewOrphans(resource schema.GroupResource) *Orphans {
	return &Orphans{resource: resource, names: map[string]map[string]bool{}}
}

// Note takes an event into account, and says whether its object is an orphan that
// somebody may want to adopt.
func (o *Orphans) Note(e store.Event) bool {
	if e.Key.GroupResource != o.resource {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Object == nil || !orphan(e.Object) {
		o.forget(e.Key.Namespace, e.Key.Name)
		return false
	}
	o.add(e.Object)
	return true
}

// Fill adds the orphans among objects.
func (o *Orphans) Fill(objects []api.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, obj := range objects {
		if orphan(obj) {
			o.add(obj)
		}
	}
}

// Match returns the orphans of a namespace that a selector matches, by name.
func (o *Orphans) Match(r store.Reader, namespace string, selector labels.Selector) []api.Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []api.Object
	for name := range o.names[namespace] {
		obj := r.Get(store.Key{GroupResource: o.resource, Namespace: namespace, Name: name})
		if obj == nil || !orphan(obj) {
			// Gone or adopted. Should it come back, its event is noted after the reader
			// shows it, so after this.
			o.forget(namespace, name)
			continue
		}
		if obj.GetDeletionTimestamp() == nil && selector.Matches(labels.Set(obj.GetLabels())) {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(a, b api.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}

func orphan(obj api.Object) bool { return metav1.GetControllerOfNoCopy(obj) == nil }

func (o *Orphans) add(obj api.Object) {
	names := o.names[obj.GetNamespace()]
	if names == nil {
		names = map[string]bool{}
		o.names[obj.GetNamespace()] = names
	}
	names[obj.GetName()] = true
}

func (o *Orphans) forget(namespace, name string) {
	delete(o.names[namespace], name)
	if len(o.names[namespace]) == 0 {
		delete(o.names, namespace)
	}
}
