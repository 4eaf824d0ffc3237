package syncer

import (
	"sync"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// ledger remembers which objects are not as a commit declares them, so that
// judging the next commit costs what differs, and not what there is. Events keep
// it up; what they may have missed is found when everything is looked at again.
type ledger struct {
	mu   sync.Mutex
	than *desired           // the commit; nil: nothing is known
	odd  map[store.Key]bool // not as than declares them; some may be all the same
	at   time.Time          // when everything was looked at
}

// suspect has keys looked at by the next who asks.
func (l *ledger) suspect(keys ...store.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if l.than != nil {
			l.odd[jobOf(key)] = true
		}
	}
}

// jobOf is the Job of a done record, and the key itself of all else.
func jobOf(key store.Key) store.Key {
	if key.GroupResource == api.DoneRecords() {
		key.GroupResource = api.Jobs()
	}
	return key
}

// note takes events into account.
func (l *ledger) note(events []store.Event, odd func(*desired, store.Key) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.than == nil {
		return
	}
	for _, e := range events {
		key := jobOf(e.Key)
		kind, known := api.ResourceKind(key.GroupResource)
		if !known || !kind.Declarable {
			continue
		}
		if odd(l.than, key) {
			l.odd[key] = true
		} else {
			delete(l.odd, key)
		}
	}
}

// differing lists, in no order, the keys that are not as d declares them, and
// remembers that of d. all lists every key that may be.
func (l *ledger) differing(d *desired, now time.Time, every time.Duration, odd func(*desired, store.Key) bool, all func(*desired) []store.Key) []store.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []store.Key
	if l.than == nil || now.Sub(l.at) > every {
		keys, l.at = all(d), now
	} else {
		for key := range l.odd {
			keys = append(keys, key)
		}
		compareLists(l.than.list, d.list, func(before, after int) bool {
			if before >= 0 && after < 0 {
				keys = append(keys, keyOf(l.than.list[before]))
			} else if before < 0 {
				keys = append(keys, keyOf(d.list[after]))
			}
			return true
		})
	}
	found := make(map[store.Key]bool, len(keys))
	out := keys[:0]
	for _, key := range keys {
		if !found[key] && odd(d, key) {
			found[key] = true
			out = append(out, key)
		}
	}
	l.than, l.odd = d, found
	return out
}
