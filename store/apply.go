package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"headway.dev/headway/api"
)

// loadPage is how many keys one read of Load asks for.
const loadPage = 500

// change is one decoded change: an object, or its absence.
type change struct {
	key      Key
	obj      api.Object // nil: deleted
	revision int64      // of the change, for windows
}

// load reads every object at one revision and makes the cache that. What differs
// from the cache becomes events, so a load after a gap in the watch loses no
// one's attention.
func (s *Store) load(ctx context.Context) error {
	if s.sealErr != nil {
		return fmt.Errorf("load the store: %w", s.sealErr)
	}
	s.closeFeed()
	fresh, revision, err := s.readAll(ctx)
	if err != nil {
		return fmt.Errorf("load the store: %w", err)
	}
	changes := s.difference(fresh, revision)
	first := !s.isSynced
	s.next = revision // inclusive: see replay
	events := s.commitToCache(revision, changes, !first)
	if first {
		s.mu.Lock()
		s.window.floor = revision - 1
		s.mu.Unlock()
		s.isSynced = true
		close(s.synced)
	}
	s.tell(events)
	return nil
}

// readAll reads every object at one revision.
func (s *Store) readAll(ctx context.Context) ([]change, int64, error) {
	var out []change
	start, revision := Prefix, int64(0)
	for {
		r, err := s.kv.Range(ctx, RangeRequest{Start: start, End: prefixEnd(Prefix), Revision: revision, Limit: loadPage})
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = r.Revision
		}
		for _, e := range r.Entries {
			c, ok, err := s.decode(e)
			if err != nil {
				return nil, 0, err
			}
			if ok {
				out = append(out, c)
			}
		}
		if len(r.Entries) == 0 || len(r.Entries) >= r.Count {
			return out, revision, nil
		}
		start = r.Entries[len(r.Entries)-1].Key + "\x00"
	}
}

// difference returns what turns the cache into fresh: changes in the order in
// which they happened, as far as that is known.
func (s *Store) difference(fresh []change, revision int64) []change {
	there := make(map[Key]bool, len(fresh))
	var out []change
	for _, c := range fresh {
		there[c.key] = true
		if old := s.get(c.key); old == nil || old.GetResourceVersion() != c.obj.GetResourceVersion() {
			out = append(out, c)
		}
	}
	for gr, shelf := range s.resources {
		for ns, l := range shelf.namespaces {
			for _, name := range l.ids {
				if k := (Key{GroupResource: gr, Namespace: ns, Name: name}); !there[k] {
					out = append(out, change{key: k, revision: revision})
				}
			}
		}
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].revision != out[j].revision {
			return out[i].revision < out[j].revision
		}
		return out[i].key.Path() < out[j].key.Path()
	})
	return out
}

// apply makes the cache show one batch of the backend's watch.
func (s *Store) apply(ctx context.Context, b Batch) error {
	changes := make([]change, 0, len(b.Changes))
	for _, c := range b.Changes {
		if c.Deleted {
			if key, _, ok := ParsePath(c.Entry.Key); ok {
				changes = append(changes, change{key: key, revision: b.Revision})
			}
			continue
		}
		decoded, ok, err := s.decode(c.Entry)
		if err != nil {
			return err
		}
		if ok {
			changes = append(changes, decoded)
		}
	}
	if b.Revision < s.next {
		return nil // progress that is older than what was applied
	}
	s.next = b.Revision + 1
	if b.Revision <= s.revision {
		return s.replay(ctx, b, changes)
	}
	s.tell(s.commitToCache(b.Revision, changes, true))
	return nil
}

// replay is for the batch of the very revision that load read, which the watch
// is opened at: the cache has it already, but a client that was cut in the middle
// of this revision, perhaps by the end of the process before this one, may resume
// at it and needs its events.
func (s *Store) replay(ctx context.Context, b Batch, changes []change) error {
	events := make([]Event, 0, len(changes))
	for _, c := range changes {
		previous, err := s.before(ctx, c.key, b.Revision)
		if err != nil {
			return err
		}
		if c.obj != nil || previous != nil {
			events = append(events, Event{Key: c.key, Object: c.obj, Previous: previous, Revision: b.Revision})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publish(events)
	return nil
}

// before returns the object that key was just before a revision. When history
// does not reach back that far it is known by name only.
func (s *Store) before(ctx context.Context, key Key, revision int64) (api.Object, error) {
	obj, _, err := s.GetAt(ctx, key, revision-1)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case errors.Is(err, ErrCompacted):
		kind, _ := api.ResourceKind(key.GroupResource)
		obj = kind.New()
		obj.SetNamespace(key.Namespace)
		obj.SetName(key.Name)
		return obj, nil
	}
	return obj, err
}

// commitToCache makes the changes visible all at once and returns their events.
func (s *Store) commitToCache(revision int64, changes []change, publish bool) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := make([]Event, 0, len(changes))
	for _, c := range changes {
		previous := s.set(c.key, c.obj)
		switch {
		case previous == nil && c.obj == nil:
			continue
		case previous != nil && c.obj != nil && previous.GetUID() != c.obj.GetUID():
			// Another object under the same name: the end of the first was not seen.
			events = append(events, Event{Key: c.key, Previous: previous, Revision: c.revision})
			previous = nil
		}
		events = append(events, Event{Key: c.key, Object: c.obj, Previous: previous, Revision: c.revision})
	}
	s.cache.revision = revision
	if publish {
		for rest := events; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].Revision == rest[0].Revision {
				n++
			}
			s.publish(slices.Clip(rest[:n]))
			rest = rest[n:]
		}
	}
	s.wake()
	return events
}

func (s *Store) tell(events []Event) {
	if len(events) == 0 {
		return
	}
	for _, hook := range s.hooks {
		hook(events)
	}
}

// decode turns an entry into a change; ok is false for a key of no object.
func (s *Store) decode(e Entry) (c change, ok bool, err error) {
	key, kind, ok := ParsePath(e.Key)
	if !ok {
		return change{}, false, nil
	}
	obj, err := s.codec.decode(kind, e)
	if err != nil {
		return change{}, false, &KeyError{Key: key, Err: err}
	}
	if obj.GetName() != key.Name || obj.GetNamespace() != key.Namespace {
		return change{}, false, &KeyError{Key: key, Err: fmt.Errorf("decode: the value is of %s/%s", obj.GetNamespace(), obj.GetName())}
	}
	return change{key: key, obj: obj, revision: e.ModRevision}, true, nil
}

// prefixEnd is the end of the range of all keys that start with prefix, whose
// last byte must be a slash.
func prefixEnd(prefix string) string {
	return strings.TrimSuffix(prefix, "/") + "0" // the byte after '/'
}
