package forge

import (
	"cmp"
	"slices"
	"time"
)

// keep is how many commits are remembered, the newest ones.
const keep = 50

// entry is what the loop knows about one commit.
type entry struct {
	intent Intent // the newest, as it is in the store

	// The newest report that was seen, also when it changed nothing.
	attempt, revision int64

	sent   *Intent // by this process, last
	sentAt time.Time
	sends  int // of the same state in a row

	hold      time.Time // until then a request of the leader before may be on its way
	retry     time.Time // what failed for this commit alone waits until then
	tries     int       // failed ones in a row
	complaint string    // what is wrong with this commit alone, for a person
}

// note is that the forge shows i from now on.
func (e *entry) note(i Intent, now time.Time) {
	switch {
	case e.sent == nil || e.sent.State != i.State || e.sent.Attempt != i.Attempt:
		e.sends, e.sentAt = 1, now
	case !e.sent.shows(i):
		e.sends++
		e.sentAt = now
	}
	e.sent, e.retry, e.tries = &i, time.Time{}, 0
}

// advance decides whether a report changes what the forge shall show, and to what.
// have is nil for a commit that is not known.
func advance(have *entry, r Report, want Intent) (Intent, bool) {
	if have == nil {
		return want, true
	}
	old := have.intent
	if r.Attempt < have.attempt || r.Attempt == have.attempt && r.Revision < have.revision {
		return Intent{}, false // an older report
	}
	if r.Attempt == old.Attempt && !follows(old.State, want.State) {
		return Intent{}, false
	}
	if old.shows(want) {
		if r.Attempt == old.Attempt {
			return Intent{}, false
		}
		want.Settled = old.Settled // the attempt is new, what the forge shows is not
	}
	return want, true
}

// follows says whether, within one attempt, a status may come after another. Every
// state may get another description but the final good ones.
func follows(old, next State) bool {
	switch old {
	case Pending:
		return true
	case Running:
		return next != Pending
	case Failure:
		return next == Failure || next == Success // a rollout can recover
	}
	return false
}

// pause is how long a further description of the same state waits after the n-th
// that was sent: GitHub takes 1,000 statuses per commit and context.
func pause(n int) time.Duration {
	const first, most = 10 * time.Second, time.Hour
	if n < 1 {
		return 0
	}
	if n > 9 {
		return most
	}
	return min(first<<(n-1), most)
}

// ready is when the entry's intent may be sent.
func (e entry) ready() time.Time {
	at := e.hold
	if e.sent != nil && e.sent.State == e.intent.State && e.sent.Attempt == e.intent.Attempt && !e.sent.shows(e.intent) {
		at = later(at, e.sentAt.Add(pause(e.sends)))
	}
	return later(at, e.retry)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// due picks the entry to send now: of those that are ready the one that failed
// least, then the newest. Without one, wait is how long nothing will be ready, or
// negative when nothing is to be sent at all.
func due(entries map[string]*entry, now time.Time) (commit string, wait time.Duration) {
	var best *entry
	wait = -1
	for _, e := range entries {
		if e.intent.Settled {
			continue
		}
		if left := e.ready().Sub(now); left > 0 {
			if wait < 0 || left < wait {
				wait = left
			}
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(e.tries, best.tries), newest(e.intent, best.intent)) < 0 {
			best = e
		}
	}
	if best == nil {
		return "", wait
	}
	return best.intent.Commit, 0
}

// newest orders intents: the newest attempt first.
func newest(a, b Intent) int {
	return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(b.Revision, a.Revision), cmp.Compare(a.Commit, b.Commit))
}

// surplus lists the intents beyond the newest ones that are kept.
func surplus(entries map[string]*entry) []Intent {
	if len(entries) <= keep {
		return nil
	}
	all := make([]Intent, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.intent)
	}
	slices.SortFunc(all, newest)
	return all[keep:]
}

// floor is the attempt below which a commit that is not remembered was forgotten.
func floor(entries map[string]*entry) int64 {
	if len(entries) < keep {
		return 0
	}
	least := int64(-1)
	for _, e := range entries {
		if least < 0 || e.intent.Attempt < least {
			least = e.intent.Attempt
		}
	}
	return least
}

// backoff is how long to wait after the n-th failure in a row, between first and
// most; part, of [0,1), spreads it by a tenth either way.
func backoff(n int, first, most time.Duration, part float64) time.Duration {
	wait := first
	for i := 1; i < n && wait < most; i++ {
		wait *= 2
	}
	wait = min(wait, most)
	return wait + time.Duration((part-0.5)*0.2*float64(wait))
}
