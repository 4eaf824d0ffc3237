package reconcile

import (
	"hash/fnv"
	"time"
)

// slices is how many parts a resync is cut into, so that the work of looking at
// every key is spread over the period.
const slices = 32

// resync hands out every key once per period. A key is always in the same slice,
// and slices without keys wake nobody.
type resync struct {
	list   func() []Key
	period time.Duration
	start  time.Time     // of the round
	round  [slices][]Key // what is left of it
	next   time.Time     // when due has something to do
}

// begin starts rounds; the first is a period away, since the loop has just listed
// everything.
func (r *resync) begin(now time.Time) {
	r.round = [slices][]Key{}
	r.start = now
	r.next = now.Add(r.period)
}

// due returns the keys whose slice has come.
func (r *resync) due(now time.Time) []Key {
	if now.Before(r.next) {
		return nil
	}
	if end := r.start.Add(r.period); !now.Before(end) {
		keys := r.take(slices - 1)
		r.start = now
		for _, key := range r.list() {
			s := sliceOf(key)
			r.round[s] = append(r.round[s], key)
		}
		keys = append(keys, r.take(0)...)
		r.plan()
		return keys
	}
	keys := r.take(int(now.Sub(r.start) * slices / r.period))
	r.plan()
	return keys
}

// take empties the slices up to and including last.
func (r *resync) take(last int) []Key {
	var keys []Key
	for i := range last + 1 {
		keys = append(keys, r.round[i]...)
		r.round[i] = nil
	}
	return keys
}

// plan sets next to the first slice with keys, or the end of the round.
func (r *resync) plan() {
	for i, keys := range r.round {
		if len(keys) > 0 {
			// Rounded up, so that due finds the slice begun.
			r.next = r.start.Add((r.period*time.Duration(i) + slices - 1) / slices)
			return
		}
	}
	r.next = r.start.Add(r.period)
}

func sliceOf(key Key) int {
	h := fnv.New32a()
	for _, part := range []string{key.Group, key.Resource, key.Namespace, key.Name} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return int(h.Sum32() % slices)
}
