package dns

import (
	"net/netip"
	"sync"
)

// limit bounds how much is under way, in all and for each asker, so that one pod
// cannot take everybody's share.
type limit struct {
	most, each int

	mu    sync.Mutex
	taken map[netip.Addr]int
	total int
}

func newLimit(most, each int) *limit {
	return &limit{most: most, each: each, taken: map[netip.Addr]int{}}
}

func (l *limit) take(who netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.most || l.taken[who] >= l.each {
		return false
	}
	l.total++
	l.taken[who]++
	return true
}

func (l *limit) give(who netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.taken[who]--; l.taken[who] == 0 {
		delete(l.taken, who)
	}
}

func (l *limit) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
