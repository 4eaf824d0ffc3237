package reconcile

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// Delays of the backoff after errors, and of the retries after conflicts: the
// first conflict is retried at once, since most are gone by then; further ones in
// a row give the cache time to catch up.
const (
	minBackoff    = 5 * time.Millisecond
	maxBackoff    = time.Minute
	minContention = time.Millisecond
	maxContention = time.Second
	// maxConflicts in a row, which take about ten seconds, are no contention any
	// more but a cache that does not catch up: then it is an error like another.
	maxConflicts = 20
)

// item is what the queue knows of a key that is waiting, being worked, or failing.
type item struct {
	key       Key
	ready     bool      // stands in queue.ready
	working   bool      // a worker has it
	again     bool      // woken while it was being worked
	due       time.Time // when delayed
	at        int       // index in queue.delayed; -1 when not there
	failures  int       // errors in a row
	conflicts int       // conflicts in a row
	logged    string    // the last error that was logged; "" after a success
}

// queue holds keys, each at most once. It is not safe for concurrent use.
type queue struct {
	items   map[Key]*item
	ready   []*item // first in, first out
	delayed delayed
	jitter  *rand.Rand
}

func newQueue(seed uint64) *queue {
	return &queue{items: map[Key]*item{}, jitter: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
}

// wake makes key ready now, or again when it is being worked.
func (q *queue) wake(key Key) {
	it := q.items[key]
	if it == nil {
		it = &item{key: key, at: -1}
		q.items[key] = it
	}
	switch {
	case it.working:
		it.again = true
	case !it.ready:
		if it.at >= 0 {
			heap.Remove(&q.delayed, it.at)
		}
		it.ready = true
		q.ready = append(q.ready, it)
	}
}

// promote makes ready what is due.
func (q *queue) promote(now time.Time) {
	for len(q.delayed) > 0 && !q.delayed[0].due.After(now) {
		it := heap.Pop(&q.delayed).(*item)
		it.ready = true
		q.ready = append(q.ready, it)
	}
}

// take hands out the oldest ready key; nil when there is none.
func (q *queue) take() *item {
	if len(q.ready) == 0 {
		return nil
	}
	it := q.ready[0]
	q.ready[0] = nil
	q.ready = q.ready[1:]
	it.ready, it.working = false, true
	return it
}

// done takes a key back from its worker. With delay zero it is forgotten, or
// ready at once if it was woken meanwhile; else it waits, unless it was woken.
func (q *queue) done(it *item, delay time.Duration, now time.Time) {
	woken := it.again
	it.working, it.again = false, false
	switch {
	case woken:
		it.ready = true
		q.ready = append(q.ready, it)
	case delay > 0:
		it.due = now.Add(delay)
		heap.Push(&q.delayed, it)
	case it.logged == "" && it.failures == 0 && it.conflicts == 0:
		delete(q.items, it.key)
	}
}

// backoff is the delay after n errors in a row: exponential, its upper half
// random so that keys that failed together do not come back together.
func (q *queue) backoff(n int, lowest, highest time.Duration) time.Duration {
	d := highest
	if n < 32 && lowest<<(n-1) < highest {
		d = lowest << (n - 1)
	}
	return d/2 + time.Duration(q.jitter.Int64N(int64(d/2)+1))
}

// delayed is a heap of items by due time, then key order of arrival.
type delayed []*item

func (d delayed) Len() int           { return len(d) }
func (d delayed) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d delayed) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].at, d[j].at = i, j
}
func (d *delayed) Push(x any) {
	it := x.(*item)
	it.at = len(*d)
	*d = append(*d, it)
}
func (d *delayed) Pop() any {
	old := *d
	it := old[len(old)-1]
	old[len(old)-1] = nil
	it.at = -1
	*d = old[:len(old)-1]
	return it
}
