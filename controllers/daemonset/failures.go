package daemonset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Back-off between the deletions of failed pods on one node: Kubernetes' figures.
const (
	firstDelay = time.Second
	mostDelay  = 15 * time.Minute
	maxTracked = 10000
)

// failures remembers when failed pods were deleted, by set and node.
type failures struct {
	mu    sync.Mutex
	known map[place]failure
}

type place struct {
	set  types.UID
	node string
}

type failure struct {
	at    time.Time
	delay time.Duration
}

// left is how long a failed pod on a node must still wait to be deleted.
func (f *failures) left(set types.UID, node string, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, ok := f.known[place{set, node}]
	if !ok {
		return 0
	}
	// An earlier time is a clock that was set back: never wait longer than the delay.
	return max(0, min(last.at.Add(last.delay).Sub(now), last.delay))
}

// note counts a deletion. One that comes long after the one before starts anew.
func (f *failures) note(set types.UID, node string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil || len(f.known) >= maxTracked {
		kept := map[place]failure{}
		for p, last := range f.known {
			if now.Sub(last.at) <= 2*mostDelay && len(kept) < maxTracked/2 {
				kept[p] = last
			}
		}
		f.known = kept
	}
	p := place{set, node}
	next := failure{at: now, delay: firstDelay}
	if last, ok := f.known[p]; ok && now.Sub(last.at) <= 2*mostDelay {
		next.delay = min(2*last.delay, mostDelay)
	}
	f.known[p] = next
}
