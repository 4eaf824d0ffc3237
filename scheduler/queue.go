package scheduler

import (
	"cmp"
	"container/heap"

	"headway.dev/headway/store"
)

// queue is the pods that are due, each once: the highest priority first, and of one
// priority who came first.
type queue struct {
	heap        entries
	at          map[store.Key]*entry
	first, last int64
}

type entry struct {
	key      store.Key
	priority int32
	seq      int64
	index    int
}

func newQueue() queue { return queue{at: map[store.Key]*entry{}} }

func (q *queue) has(key store.Key) bool { return q.at[key] != nil }

// push puts a key into the queue; one that is there keeps its place.
func (q *queue) push(key store.Key, priority int32) {
	if q.at[key] != nil {
		return
	}
	q.last++
	q.insert(key, priority, q.last)
}

// putBack puts a key before the others of its priority.
func (q *queue) putBack(key store.Key, priority int32) {
	q.drop(key)
	q.first--
	q.insert(key, priority, q.first)
}

func (q *queue) insert(key store.Key, priority int32, seq int64) {
	e := &entry{key: key, priority: priority, seq: seq}
	q.at[key] = e
	heap.Push(&q.heap, e)
}

func (q *queue) pop() (store.Key, bool) {
	if len(q.heap) == 0 {
		return store.Key{}, false
	}
	e := heap.Pop(&q.heap).(*entry)
	delete(q.at, e.key)
	return e.key, true
}

func (q *queue) drop(key store.Key) {
	if e := q.at[key]; e != nil {
		heap.Remove(&q.heap, e.index)
		delete(q.at, key)
	}
}

// entries is a heap.Interface.
type entries []*entry

func (e entries) Len() int { return len(e) }
func (e entries) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[j].priority, e[i].priority), cmp.Compare(e[i].seq, e[j].seq)) < 0
}
func (e entries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}
func (e *entries) Push(x any) {
	n := x.(*entry)
	n.index = len(*e)
	*e = append(*e, n)
}
func (e *entries) Pop() any {
	old := *e
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	return n
}
