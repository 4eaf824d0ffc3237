package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"headway.dev/headway/store"
)

// streams gives each watch a stream of its own. Etcd answers a request for
// progress once per stream, for the watches that were there at the request; the
// client hands the answer to those that are there when it comes. To one that was
// opened between, from a past revision, it says that there is nothing more up to
// now, before the events up to now have come: its reader would drop them.
type streams struct {
	make func() clientv3.Watcher

	mu     sync.Mutex
	live   map[clientv3.Watcher]bool
	closed bool
}

func newStreams(make func() clientv3.Watcher) *streams {
	return &streams{make: make, live: map[clientv3.Watcher]bool{}}
}

func (s *streams) open() (clientv3.Watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("watch: %w: closed", store.ErrUnavailable)
	}
	w := s.make()
	s.live[w] = true
	return w, nil
}

// end closes a stream whose watch has ended: nothing that it says matters now.
func (s *streams) end(w clientv3.Watcher) {
	s.mu.Lock()
	delete(s.live, w)
	s.mu.Unlock()
	_ = w.Close()
}

func (s *streams) list() []clientv3.Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.live))
}

func (s *streams) has(w clientv3.Watcher) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[w]
}

// close ends every watch, now and later.
func (s *streams) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	var errs []error
	for _, w := range s.list() {
		if err := w.Close(); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, fmt.Errorf("close a watch: %w", err))
		}
	}
	return errors.Join(errs...)
}
