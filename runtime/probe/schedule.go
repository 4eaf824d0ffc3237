package probe

import (
	"container/heap"
	"time"
)

// Schedule says which probes are due. An idle one costs a place in a heap. It is not
// safe for concurrent use.
type Schedule[T any] struct {
	lanes [2]lane[T] // checks over the network, commands
}

// Item is one probe in a Schedule.
type Item[T any] struct {
	Value T
	at    time.Time
	lane  int
	index int // in the heap; -1 when it is not there
	gone  bool
	// The check is under way and its room is others'.
	yielded bool
}

type lane[T any] struct {
	heap []*Item[T]
	room int
}

// NewSchedule gives room for so many checks at one time: over the network, and by
// command.
func NewSchedule[T any](network, commands int) *Schedule[T] {
	s := &Schedule[T]{}
	s.lanes[0].room, s.lanes[1].room = network, commands
	return s
}

// Add puts a probe in that is due at a time.
func (s *Schedule[T]) Add(value T, at time.Time, command bool) *Item[T] {
	it := &Item[T]{Value: value, at: at}
	if command {
		it.lane = 1
	}
	heap.Push((*dues[T])(&s.lanes[it.lane].heap), it)
	return it
}

// Remove takes a probe out. One that is under way is not put back.
func (s *Schedule[T]) Remove(it *Item[T]) {
	it.gone = true
	if it.index >= 0 {
		heap.Remove((*dues[T])(&s.lanes[it.lane].heap), it.index)
	}
}

// Take takes the next probe that is due and for which there is room. Done gives it
// back.
func (s *Schedule[T]) Take(now time.Time) *Item[T] {
	var first *lane[T]
	for i := range s.lanes {
		l := &s.lanes[i]
		if l.room > 0 && len(l.heap) > 0 && !l.heap[0].at.After(now) && (first == nil || l.heap[0].at.Before(first.heap[0].at)) {
			first = l
		}
	}
	if first == nil {
		return nil
	}
	first.room--
	return heap.Pop((*dues[T])(&first.heap)).(*Item[T])
}

// Yield gives its room to others while the check that Take took goes on: one that takes
// long keeps nobody else's waiting.
func (s *Schedule[T]) Yield(it *Item[T]) {
	if it.index < 0 && !it.yielded {
		it.yielded = true
		s.lanes[it.lane].room++
	}
}

// Done gives back what Take took. The probe is due again a period after it was, or,
// when that is over, after now. False: it was removed meanwhile.
func (s *Schedule[T]) Done(it *Item[T], period time.Duration, now time.Time) bool {
	l := &s.lanes[it.lane]
	if !it.yielded {
		l.room++
	}
	it.yielded = false
	if it.gone {
		return false
	}
	if it.at = it.at.Add(period); it.at.Before(now) {
		it.at = now.Add(period)
	}
	heap.Push((*dues[T])(&l.heap), it)
	return true
}

// Next is when a probe is due for which there is room; zero: none, until Done or
// Add.
func (s *Schedule[T]) Next() (at time.Time) {
	for i := range s.lanes {
		l := &s.lanes[i]
		if l.room > 0 && len(l.heap) > 0 && (at.IsZero() || l.heap[0].at.Before(at)) {
			at = l.heap[0].at
		}
	}
	return at
}

// dues is the heap.
type dues[T any] []*Item[T]

func (d dues[T]) Len() int           { return len(d) }
func (d dues[T]) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dues[T]) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}
func (d *dues[T]) Push(x any) {
	it := x.(*Item[T])
	it.index = len(*d)
	*d = append(*d, it)
}
func (d *dues[T]) Pop() any {
	old := *d
	it := old[len(old)-1]
	it.index = -1
	*d = old[:len(old)-1]
	return it
}
