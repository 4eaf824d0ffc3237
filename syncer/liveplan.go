package syncer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/api"
)

// What the live ref tells about a drift, and when.
const (
	liveWait   = time.Second     // changes of one object within it are one commit
	liveBurst  = 20              // commits that may come at once
	liveRefill = 5 * time.Second // one more after each
	keepHealed = time.Hour       // how long a record is shown after all is told
	maxHealed  = 200             // how many such records are kept, the newest
	maxNamed   = 50              // objects that one commit names
	forgetting = 5 * time.Minute // between two looks at what can be forgotten
)

// The events of the live ref, in the trailer Headway-Event.
const (
	liveDrift   = "drift"
	liveHealed  = "healed"
	liveApplied = "applied"
)

// liveState is all that decides what the live ref tells next.
type liveState struct {
	applied string             // the applied commit
	shown   string             // the one that the live ref names; "" when there is no live ref
	records []*api.DriftRecord // of the source
	tokens  int                // commits that may be written now
	now     time.Time
}

// liveStep is one commit of the live ref, and what it tells.
type liveStep struct {
	event string
	base  string             // the applied commit that its tree is made of
	tell  []*api.DriftRecord // what it is about
	show  []*api.DriftRecord // whose values its tree has
}

// planLive decides what the live ref tells next; nil when it has nothing to tell
// now. wait is when to ask again; zero: at the next change. forget are records that
// nobody needs any more.
//
// What drifted before the applied commit moved is told first, on the commit that it
// was found on. Then each change is a commit of its own, in the order in which they
// were found. When too many come, those that wait are told in one.
func planLive(s liveState) (step *liveStep, wait time.Time, forget []*api.DriftRecord) {
	records := slices.Clone(s.records)
	slices.SortFunc(records, func(a, b *api.DriftRecord) int {
		return cmp.Or(a.Changed.Compare(b.Changed.Time), strings.Compare(a.Name, b.Name))
	})
	moved := s.applied != s.shown
	soon := func(at time.Time) {
		if at.After(s.now) && (wait.IsZero() || at.Before(wait)) {
			wait = at
		}
	}
	var fresh, ended, showing, done []*api.DriftRecord
	for _, r := range records {
		told := r.Told == r.Digest()
		switch {
		case !told && moved && s.shown != "" && r.Commit == s.shown:
			fresh = append(fresh, r)
		case !told && r.Commit == s.applied:
			if due := r.Changed.Add(liveWait); due.After(s.now) {
				soon(due)
			} else if !moved {
				fresh = append(fresh, r)
			}
		case !told && !r.Open():
			// Found on a commit that was never shown: there is nothing to show it on.
			done = append(done, r)
		case told && r.Shown && !r.Open():
			ended = append(ended, r)
		case told && !r.Shown && !r.Open():
			done = append(done, r)
		}
		if r.Shown && (r.Open() || told || slices.Contains(fresh, r)) {
			showing = append(showing, r)
		}
	}
	forget = outlived(done, s.now)
	if len(done) > len(forget) {
		soon(s.now.Add(forgetting))
	}
	pick := func(list []*api.DriftRecord) []*api.DriftRecord {
		if len(list) > s.tokens {
			return list // they have waited: all in one
		}
		return list[:1]
	}
	base := s.shown
	if base == "" {
		base = s.applied
	}
	switch {
	case s.shown == "":
		return &liveStep{event: liveApplied, base: s.applied}, wait, forget
	case len(fresh)+len(ended) > 0 && s.tokens < 1:
		return nil, s.now.Add(liveRefill), forget
	case len(fresh) > 0 && (len(ended) == 0 || !fresh[0].Changed.After(ended[0].Healed.Time)):
		tell := pick(fresh)
		show := slices.Clone(showing)
		for _, r := range tell {
			if !slices.Contains(show, r) {
				show = append(show, r)
			}
		}
		return &liveStep{event: liveDrift, base: base, tell: tell, show: show}, wait, forget
	case len(ended) > 0:
		tell := pick(ended)
		show := slices.DeleteFunc(slices.Clone(showing), func(r *api.DriftRecord) bool { return slices.Contains(tell, r) })
		return &liveStep{event: liveHealed, base: base, tell: tell, show: show}, wait, forget
	case moved:
		return &liveStep{event: liveApplied, base: s.applied, show: showing}, wait, forget
	}
	return nil, wait, forget
}

// outlived are the records that are kept no longer.
func outlived(done []*api.DriftRecord, now time.Time) []*api.DriftRecord {
	slices.SortFunc(done, func(a, b *api.DriftRecord) int {
		return cmp.Or(b.Healed.Compare(a.Healed.Time), strings.Compare(a.Name, b.Name))
	})
	var out []*api.DriftRecord
	for i, r := range done {
		if i >= maxHealed || now.Sub(r.Healed.Time) > keepHealed {
			out = append(out, r)
		}
	}
	return out
}

// actor is who did what the step tells; false when it was more than one, or
// Headway.
func (s *liveStep) actor() (api.Actor, bool) {
	var by api.Actor
	for i, r := range s.tell {
		a := r.Actor
		if s.event == liveHealed {
			a = r.Healer
		}
		if a == (api.Actor{}) && s.event == liveHealed || i > 0 && a.User != by.User {
			return api.Actor{}, false
		}
		by = a
	}
	return by, len(s.tell) > 0
}

// subject is the first line of the commit's message.
func (s *liveStep) subject() string {
	switch {
	case s.event == liveApplied:
		return "applied: " + short(s.base)
	case len(s.tell) > 1:
		return s.event + ": " + plural(len(s.tell), "object")
	}
	r := s.tell[0]
	text := s.event + ": " + r.Object.Title()
	switch {
	case s.event == liveDrift && r.Deleted:
		text += " deleted"
	case s.event == liveDrift && len(r.Fields) == 1:
		text += " " + fieldText(r.Fields[0])
	case s.event == liveDrift:
		text += ", " + plural(len(r.Fields), "field")
	}
	return text
}

func fieldText(f api.DriftField) string {
	return FieldChange{Field: f.Path, Old: f.Declared, New: f.Live, Hidden: f.Hidden}.String()
}

// body says it in full.
func (s *liveStep) body() string {
	var b strings.Builder
	for i, r := range s.tell {
		if i == maxNamed {
			fmt.Fprintf(&b, "… and %s\n", plural(len(s.tell)-maxNamed, "more object"))
			break
		}
		fmt.Fprintf(&b, "%s, declared in %s:%d\n", r.Object.Title(), r.Path, r.Line)
		switch {
		case s.event == liveHealed && r.Healer != (api.Actor{}):
			fmt.Fprintf(&b, "  as declared again: %s\n", r.Healer)
		case s.event == liveHealed:
			fmt.Fprintf(&b, "  as declared again\n")
		case r.Deleted:
			fmt.Fprintf(&b, "  deleted\n")
		}
		if s.event != liveDrift {
			continue
		}
		for j, f := range r.Fields {
			if j == maxNamed {
				fmt.Fprintf(&b, "  … and %s\n", plural(len(r.Fields)-maxNamed, "more field"))
				break
			}
			fmt.Fprintf(&b, "  %s\n", fieldText(f))
		}
		if r.Fight {
			fmt.Fprintf(&b, "  set again each time that it is put back\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
