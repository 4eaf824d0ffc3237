package image

import (
	"context"
	"slices"
	"sync"
)

// lanes says who may pull now: so many at once, so many of them from one registry, so
// that a registry that is slow leaves room for the others. Who came first goes first,
// but passes nobody's bound.
type lanes struct {
	most, perHost int

	mu    sync.Mutex
	all   int
	busy  map[string]int // by registry
	queue []*ticket
}

type ticket struct {
	host string
	turn chan struct{} // closed when it has its place
}

func newLanes(most, perHost int) *lanes {
	most = max(most, 1)
	if perHost <= 0 {
		perHost = most
	}
	return &lanes{most: most, perHost: min(perHost, most), busy: map[string]int{}}
}

// enter waits for a place; leave gives it back.
func (l *lanes) enter(ctx context.Context, host string) error {
	t := &ticket{host: host, turn: make(chan struct{})}
	l.mu.Lock()
	l.queue = append(l.queue, t)
	l.admit()
	l.mu.Unlock()
	select {
	case <-t.turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.queue, t); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	} else { // its turn came at the same moment
		l.free(host)
	}
	return ctx.Err()
}

func (l *lanes) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free(host)
}

// wanted says that somebody would have a place if one who pulls from host left.
func (l *lanes) wanted(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.queue, func(t *ticket) bool { return t.host == host || l.busy[t.host] < l.perHost })
}

// free and admit are for who holds mu.
func (l *lanes) free(host string) {
	l.all--
	if l.busy[host]--; l.busy[host] == 0 {
		delete(l.busy, host)
	}
	l.admit()
}

func (l *lanes) admit() {
	l.queue = slices.DeleteFunc(l.queue, func(t *ticket) bool {
		if l.all >= l.most || l.busy[t.host] >= l.perHost {
			return false
		}
		l.all++
		l.busy[t.host]++
		close(t.turn)
		return true
	})
}
