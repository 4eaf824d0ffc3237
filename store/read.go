package store

import (
	"context"
	"errors"
	"strings"

	"headway.dev/headway/api"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Page is one answer of ListAt.
type Page struct {
	Objects   []api.Object // in the order of their paths
	Revision  int64        // that the page is of; give it for the next one
	Remaining int          // objects after this page
	Next      string       // give it as after for the next page; "" when this was the last
}

// GetAt reads an object from the backend at a revision, which it returns;
// revision 0 means now, linearizably. Errors: *KeyError with ErrNotFound;
// ErrCompacted, ErrFuture, ErrUnavailable.
func (s *Store) GetAt(ctx context.Context, key Key, revision int64) (api.Object, int64, error) {
	r, err := s.kv.Range(ctx, RangeRequest{Start: key.Path(), Revision: revision})
	if err != nil {
		return nil, 0, &KeyError{Key: key, Err: err}
	}
	if revision == 0 {
		revision = r.Revision
	}
	if len(r.Entries) == 0 {
		return nil, revision, &KeyError{Key: key, Err: ErrNotFound}
	}
	c, ok, err := s.decode(r.Entries[0])
	if err != nil {
		return nil, 0, err
	}
	if !ok {
		return nil, revision, &KeyError{Key: key, Err: ErrNotFound}
	}
	return c.obj, revision, nil
}

// ListAt reads a resource from the backend at a revision (0: now, linearizably),
// at most limit objects (0: all) after the place that a former page's Next names.
// Errors: ErrCompacted, ErrFuture, ErrUnavailable.
func (s *Store) ListAt(ctx context.Context, gr schema.GroupResource, namespace string, revision int64, limit int, after string) (Page, error) {
	prefix := ResourcePrefix(gr)
	within := prefix
	if namespace != "" {
		within += namespace + "/"
	}
	end := prefixEnd(within)
	start := within
	if after != "" {
		start = max(within, prefix+after+"\x00")
	}
	page := Page{Revision: revision}
	for {
		ask := loadPage
		if limit > 0 {
			ask = min(ask, limit-len(page.Objects))
		}
		r, err := s.kv.Range(ctx, RangeRequest{Start: start, End: end, Revision: page.Revision, Limit: ask})
		if err != nil {
			return Page{}, err
		}
		if page.Revision == 0 {
			page.Revision = r.Revision
		}
		for _, e := range r.Entries {
			c, ok, err := s.decode(e)
			if err != nil {
				return Page{}, err
			}
			if ok {
				page.Objects = append(page.Objects, c.obj)
			}
		}
		if len(r.Entries) == 0 || len(r.Entries) >= r.Count {
			return page, nil
		}
		last := r.Entries[len(r.Entries)-1].Key
		if limit > 0 && len(page.Objects) >= limit {
			page.Remaining = r.Count - len(r.Entries)
			page.Next = strings.TrimPrefix(last, prefix)
			return page, nil
		}
		start = last + "\x00"
	}
}

// currentRead is one read of the backend's revision that several callers share.
type currentRead struct {
	done     chan struct{}
	revision int64
	err      error
}

// Current returns the backend's revision, linearizably. Callers that come while
// one read is under way share the next one, since the one under way may be older
// than what they have seen.
func (s *Store) Current(ctx context.Context) (int64, error) {
	for {
		s.currentMu.Lock()
		read, mine := s.current, false
		if read == nil {
			read, mine = &currentRead{done: make(chan struct{})}, true
			s.current = read
		}
		s.currentMu.Unlock()
		if mine {
			s.readCurrent(ctx, read)
			return read.revision, read.err
		}
		select {
		case <-read.done:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		// The caller that did the read may have left in the middle of it.
		if errors.Is(read.err, context.Canceled) || errors.Is(read.err, context.DeadlineExceeded) {
			continue
		}
		return read.revision, read.err
	}
}

// readCurrent does the read for all who wait for it, when the one under way has
// ended.
func (s *Store) readCurrent(ctx context.Context, read *currentRead) {
	defer close(read.done)
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		read.err = ctx.Err()
	}
	s.currentMu.Lock()
	s.current = nil // from here on, callers need a later read
	s.currentMu.Unlock()
	if read.err != nil {
		return
	}
	r, err := s.kv.Range(ctx, RangeRequest{Start: Prefix, CountOnly: true})
	read.revision, read.err = r.Revision, err
}
