package store

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// cache is every object of the store at one revision. Only Store.apply writes
// it, one whole revision under one lock.
type cache struct {
	mu        sync.RWMutex
	revision  int64
	resources map[schema.GroupResource]*shelf
	owned     map[types.UID]*list[api.Object]
	onNode    map[string]*list[*corev1.Pod]
	window    window
	watches   []*Watch
	waiters   []*waiter
}

// shelf is one resource: a list for each namespace, and their concatenation
// while nothing changes.
type shelf struct {
	namespaces map[string]*list[api.Object]
	names      []string // of the namespaces, sorted
	all        atomic.Pointer[[]api.Object]
}

func newCache() *cache {
	return &cache{
		resources: map[schema.GroupResource]*shelf{},
		owned:     map[types.UID]*list[api.Object]{},
		onNode:    map[string]*list[*corev1.Pod]{},
	}
}

// Get implements Reader.
func (c *cache) Get(key Key) api.Object {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.get(key)
}

func (c *cache) get(key Key) api.Object {
	s := c.resources[key.GroupResource]
	if s == nil {
		return nil
	}
	l := s.namespaces[key.Namespace]
	if l == nil {
		return nil
	}
	obj, _ := l.get(key.Name)
	return obj
}

// List implements Reader.
func (c *cache) List(gr schema.GroupResource, namespace string) []api.Object {
	objs, _ := c.Snapshot(gr, namespace)
	return objs
}

// Snapshot is List together with the revision that it is of, which is where a
// Watch goes on without a gap.
func (c *cache) Snapshot(gr schema.GroupResource, namespace string) ([]api.Object, int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := c.resources[gr]
	switch {
	case s == nil:
		return nil, c.revision
	case namespace != "":
		return s.namespaces[namespace].all(), c.revision
	case len(s.names) == 1:
		return s.namespaces[s.names[0]].all(), c.revision
	}
	if all := s.all.Load(); all != nil {
		return slices.Clip(*all), c.revision
	}
	var all []api.Object
	for _, ns := range s.names {
		all = append(all, s.namespaces[ns].values...)
	}
	s.all.Store(&all)
	return slices.Clip(all), c.revision
}

// Owned implements Reader.
func (c *cache) Owned(uid types.UID) []api.Object {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.owned[uid].all()
}

// OnNode implements Reader.
func (c *cache) OnNode(node string) []*corev1.Pod {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.onNode[node].all()
}

// Revision implements Reader.
func (c *cache) Revision() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.revision
}

// set puts obj under key, or removes the key when obj is nil, and returns what
// was there. The caller holds the lock.
func (c *cache) set(key Key, obj api.Object) (previous api.Object) {
	s := c.resources[key.GroupResource]
	if s == nil {
		if obj == nil {
			return nil
		}
		s = &shelf{namespaces: map[string]*list[api.Object]{}}
		c.resources[key.GroupResource] = s
	}
	l := s.namespaces[key.Namespace]
	if l == nil {
		if obj == nil {
			return nil
		}
		l = &list[api.Object]{}
		s.namespaces[key.Namespace] = l
		i := sort.SearchStrings(s.names, key.Namespace)
		s.names = slices.Insert(s.names, i, key.Namespace)
	}
	previous, _ = l.get(key.Name)
	s.all.Store(nil)
	if obj != nil {
		l.put(obj.GetName(), obj) // the object's own string: key's may hold its whole path
	} else {
		l.remove(key.Name)
		if len(l.ids) == 0 {
			delete(s.namespaces, key.Namespace)
			i := sort.SearchStrings(s.names, key.Namespace)
			s.names = slices.Delete(s.names, i, i+1)
		}
	}
	c.reindex(key, previous, obj)
	return previous
}

// reindex keeps the indexes by owner and by node.
func (c *cache) reindex(key Key, previous, obj api.Object) {
	var id string // made only when an index changes
	path := func() string {
		if id == "" {
			id = key.Path()
		}
		return id
	}
	if previous != nil {
		for _, ref := range previous.GetOwnerReferences() {
			if obj != nil && owns(obj, ref.UID) {
				continue // replaced below
			}
			drop(c.owned, ref.UID, path())
		}
		if node := nodeOf(previous); node != "" && (obj == nil || nodeOf(obj) != node) {
			drop(c.onNode, node, path())
		}
	}
	if obj == nil {
		return
	}
	for _, ref := range obj.GetOwnerReferences() {
		put(c.owned, ref.UID, path(), obj)
	}
	if node := nodeOf(obj); node != "" {
		put(c.onNode, node, path(), obj.(*corev1.Pod))
	}
}

func owns(obj api.Object, uid types.UID) bool {
	for _, ref := range obj.GetOwnerReferences() {
		if ref.UID == uid {
			return true
		}
	}
	return false
}

func nodeOf(obj api.Object) string {
	if pod, ok := obj.(*corev1.Pod); ok {
		return pod.Spec.NodeName
	}
	return ""
}

func put[K comparable, T any](index map[K]*list[T], k K, id string, v T) {
	l := index[k]
	if l == nil {
		l = &list[T]{}
		index[k] = l
	}
	l.put(id, v)
}

func drop[K comparable, T any](index map[K]*list[T], k K, id string) {
	l := index[k]
	if l == nil {
		return
	}
	l.remove(id)
	if len(l.ids) == 0 {
		delete(index, k)
	}
}
