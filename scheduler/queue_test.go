package scheduler

import (
	"slices"
	"testing"

	"headway.dev/headway/store"
	"pgregory.net/rapid"
)

// The queue gives what a sorted list gives: priority first, then who came first, and
// what is put back stays before the others of its priority.
func TestQueueIsASortedList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type item struct {
			key      store.Key
			priority int32
		}
		q := newQueue()
		var model []item
		find := func(key store.Key) int {
			return slices.IndexFunc(model, func(i item) bool { return i.key == key })
		}
		key := func() store.Key { return store.Key{Name: rapid.StringMatching("[a-e]").Draw(rt, "key")} }
		insert := func(i item, first bool) {
			at := slices.IndexFunc(model, func(o item) bool { return o.priority < i.priority || first && o.priority == i.priority })
			if at < 0 {
				at = len(model)
			}
			model = slices.Insert(model, at, i)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(*rapid.T) {
				i := item{key(), int32(rapid.IntRange(0, 2).Draw(rt, "priority"))}
				q.push(i.key, i.priority)
				if find(i.key) < 0 {
					insert(i, false)
				}
			},
			"put back": func(*rapid.T) {
				i := item{key(), int32(rapid.IntRange(0, 2).Draw(rt, "priority"))}
				q.putBack(i.key, i.priority)
				if at := find(i.key); at >= 0 {
					model = slices.Delete(model, at, at+1)
				}
				insert(i, true)
			},
			"drop": func(*rapid.T) {
				k := key()
				q.drop(k)
				if at := find(k); at >= 0 {
					model = slices.Delete(model, at, at+1)
				}
			},
			"pop": func(*rapid.T) {
				got, ok := q.pop()
				if ok != (len(model) > 0) || ok && got != model[0].key {
					rt.Fatalf("popped %v %v of %v", got, ok, model)
				}
				if ok {
					model = model[1:]
				}
			},
			"": func(*rapid.T) {
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					if k := (store.Key{Name: name}); q.has(k) != (find(k) >= 0) {
						rt.Fatalf("has %s: %v", name, q.has(k))
					}
				}
			},
		})
	})
}
