package store

import (
	"slices"
	"sort"
	"sync/atomic"
)

// list holds values sorted by id. What it hands out stays as it is: the next
// change copies once, so that many readers between two changes cost nothing, and
// many changes between two readers cost one copy.
type list[T any] struct {
	ids    []string
	values []T
	shared atomic.Bool // values has been handed out
}

func (l *list[T]) get(id string) (T, bool) {
	if i, ok := l.find(id); ok {
		return l.values[i], true
	}
	var none T
	return none, false
}

func (l *list[T]) all() []T {
	if l == nil || len(l.values) == 0 {
		return nil
	}
	l.shared.Store(true)
	return slices.Clip(l.values)
}

func (l *list[T]) find(id string) (int, bool) {
	i := sort.SearchStrings(l.ids, id)
	return i, i < len(l.ids) && l.ids[i] == id
}

func (l *list[T]) put(id string, v T) {
	l.own()
	i, ok := l.find(id)
	if ok {
		l.ids[i], l.values[i] = id, v
		return
	}
	l.ids = slices.Insert(l.ids, i, id)
	l.values = slices.Insert(l.values, i, v)
}

func (l *list[T]) remove(id string) {
	i, ok := l.find(id)
	if !ok {
		return
	}
	l.own()
	l.ids = slices.Delete(l.ids, i, i+1)
	l.values = slices.Delete(l.values, i, i+1)
}

// own makes values safe to change in place.
func (l *list[T]) own() {
	if l.shared.Swap(false) {
		// Room for one more, so that an insert right after does not copy again.
		l.values = append(make([]T, 0, len(l.values)+1), l.values...)
	}
}
