package agent

import (
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// agenda says which pods to look at and when: those that are due in the order in
// which they became so, the others by time. A pod stands on it at most once,
// with its earliest time.
type agenda struct {
	ready   []types.UID
	waiting []*appointment // a heap
	when    map[types.UID]*appointment
}

type appointment struct {
	uid   types.UID
	at    time.Time
	index int  // in waiting
	ready bool // stands in ready instead
}

func (g *agenda) find(uid types.UID) *appointment {
	if g.when == nil {
		g.when = map[types.UID]*appointment{}
	}
	return g.when[uid]
}

// now puts a pod among those that are due.
func (g *agenda) now(uid types.UID) {
	p := g.find(uid)
	switch {
	case p == nil:
		p = &appointment{uid: uid}
		g.when[uid] = p
	case p.ready:
		return
	default:
		heap.Remove((*queue)(&g.waiting), p.index)
	}
	p.ready = true
	g.ready = append(g.ready, uid)
}

// at has a pod looked at at a time, or earlier if it is on the agenda already.
func (g *agenda) at(uid types.UID, t time.Time) {
	p := g.find(uid)
	switch {
	case p == nil:
		p = &appointment{uid: uid, at: t}
		g.when[uid] = p
		heap.Push((*queue)(&g.waiting), p)
	case !p.ready && t.Before(p.at):
		p.at = t
		heap.Fix((*queue)(&g.waiting), p.index)
	}
}

// pop takes the first pod off that is due.
func (g *agenda) pop(now time.Time) (types.UID, bool) {
	if len(g.ready) > 0 {
		uid := g.ready[0]
		g.ready = g.ready[1:]
		delete(g.when, uid)
		return uid, true
	}
	if len(g.waiting) > 0 && !g.waiting[0].at.After(now) {
		p := heap.Pop((*queue)(&g.waiting)).(*appointment)
		delete(g.when, p.uid)
		return p.uid, true
	}
	return "", false
}

// next is when something is due: zero never, long ago now.
func (g *agenda) next() time.Time {
	if len(g.ready) > 0 {
		return time.Unix(0, 0)
	}
	if len(g.waiting) > 0 {
		return g.waiting[0].at
	}
	return time.Time{}
}

// queue is the heap.
type queue []*appointment

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].at.Equal(q[j].at) {
		return q[i].uid < q[j].uid
	}
	return q[i].at.Before(q[j].at)
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *queue) Push(x any) {
	p := x.(*appointment)
	p.index = len(*q)
	*q = append(*q, p)
}
func (q *queue) Pop() any {
	old := *q
	p := old[len(old)-1]
	*q = old[:len(old)-1]
	return p
}
