package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// driftRecord is the record about an object; nil when there is none of this source.
func (s *Syncer) driftRecord(key store.Key) *api.DriftRecord {
	r, _ := s.cfg.Store.Get(store.Key{GroupResource: api.DriftRecords(), Name: api.RecordName(key.GroupResource, key.Namespace, key.Name)}).(*api.DriftRecord)
	if r == nil || r.Source != s.cfg.Source {
		return nil
	}
	return r
}

// driftRecords lists the records of this source.
func (s *Syncer) driftRecords() []*api.DriftRecord {
	var out []*api.DriftRecord
	for _, obj := range s.cfg.Store.List(api.DriftRecords(), "") {
		if r, ok := obj.(*api.DriftRecord); ok && r.Source == s.cfg.Source {
			out = append(out, r)
		}
	}
	return out
}

// editOf is who changed an object since it was looked at.
func (s *Syncer) editOf(key store.Key) *api.Edit {
	e, _ := s.cfg.Store.Get(store.Key{GroupResource: api.Edits(), Name: api.RecordName(key.GroupResource, key.Namespace, key.Name)}).(*api.Edit)
	if e == nil || e.Source != s.cfg.Source {
		return nil
	}
	return e
}

func keyOfRef(r api.ObjectRef) store.Key {
	return store.Key{GroupResource: r.GroupResource(), Namespace: r.Namespace, Name: r.Name}
}

// lookAtDrift has the objects looked at again whose drift lasts: another commit may
// have ended it, or may have another policy.
func (s *Syncer) lookAtDrift() {
	var keys []store.Key
	for _, r := range s.driftRecords() {
		if r.Open() {
			key := keyOfRef(r.Object)
			delete(s.checked, key)
			keys = append(keys, key)
		}
	}
	s.addDirty(keys)
}

// recordKeys are those of the objects that something is recorded about.
func (s *Syncer) recordKeys() []store.Key {
	var keys []store.Key
	for _, r := range s.driftRecords() {
		if r.Open() {
			keys = append(keys, keyOfRef(r.Object))
		}
	}
	for _, obj := range s.cfg.Store.List(api.Edits(), "") {
		if e, ok := obj.(*api.Edit); ok && e.Source == s.cfg.Source {
			keys = append(keys, keyOfRef(e.Object))
		}
	}
	return keys
}

// recordedOnly is the reason of a step that writes nothing but records.
const recordedOnly = "recorded"

// anyRecord says whether something is recorded about one of the keys.
func (s *Syncer) anyRecord(keys []store.Key) bool {
	return slices.ContainsFunc(keys, func(key store.Key) bool {
		r := s.driftRecord(key)
		return r != nil && r.Open() || s.editOf(key) != nil
	})
}

// lookPause is the least time between two looks at an object that drifts: who sets
// it a thousand times a second must not make us write as often.
const lookPause = time.Second

// ready leaves out the keys that are looked at later.
func (s *Syncer) ready(keys []store.Key, now time.Time) []store.Key {
	return slices.DeleteFunc(keys, func(key store.Key) bool {
		next := s.looked[key].Add(lookPause)
		if !now.Before(next) {
			delete(s.looked, key)
			return false
		}
		if due, ok := s.later[key]; !ok || next.Before(due) {
			s.later[key] = next
		}
		return true
	})
}

// due has the objects looked at whose time has come.
func (s *Syncer) due(now time.Time) {
	var keys []store.Key
	for key, at := range s.later {
		if !at.After(now) {
			keys = append(keys, key)
			delete(s.later, key)
		}
	}
	s.addDirty(keys)
}

// nextDue is when due has something to do; zero when it has not.
func (s *Syncer) nextDue() time.Time {
	var next time.Time
	for _, at := range s.later {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// recording decides what is recorded about the drift in the steps, and which steps
// are done now. A record and the write that heals are one transaction: whoever sees
// the object put back finds the record, and a kill loses neither or both. Without a
// heal the record is written alone.
func (s *Syncer) recording(o Observed, keys []store.Key, steps []Step) (do []Step, notes map[store.Key]noted) {
	now := s.cfg.Now()
	edits, records := map[store.Key]*api.Edit{}, map[store.Key]*api.DriftRecord{}
	for _, key := range keys {
		if e := s.editOf(key); e != nil {
			edits[key] = e
		}
		if r := s.driftRecord(key); r != nil {
			records[key] = r
		}
	}
	seen := sightings(steps, edits, s.back)
	for key, g := range seen {
		if _, scaled := o.Autoscaled[key]; scaled || g.manifest != nil && isAggregate(g.manifest.Object) {
			g.live = likeDeclared(g.manifest, g.live)
		}
	}
	notes = map[store.Key]noted{}
	also := map[store.Key][]store.Op{}
	for _, key := range keys {
		g, edit := seen[key], edits[key]
		if edit != nil {
			also[key] = append(also[key], store.Op{Verb: store.Delete, Object: edit})
		}
		n := noted{before: records[key]}
		switch {
		case g != nil:
			n = note(records[key], g, s.responsible(key, g, edit), s.holds(g.manifest.Path), o.Source, o.Commit, now)
			notes[key] = n
		default:
			by := api.Actor{}
			if edit != nil {
				by = edit.Actor
			}
			if n.record = over(records[key], by, now); n.record != nil {
				notes[key] = n
			}
		}
		if n.record != nil {
			op := store.Op{Verb: store.Create, Object: n.record}
			if n.before != nil {
				op.Verb = store.Update
			} else if old := s.cfg.Store.Get(store.KeyOf(n.record)); old != nil { // of a source that declared it before
				op.Verb = store.Update
				n.record.SetResourceVersion(old.GetResourceVersion())
			}
			also[key] = append(also[key], op)
		}
	}
	for _, step := range steps {
		if seen[step.Key] != nil && !notes[step.Key].heal && step.Verb != Record && step.Verb != Wait {
			continue // not now
		}
		if step.Verb != Wait && step.Verb != Stuck {
			step.Also = also[step.Key]
			delete(also, step.Key)
		}
		do = append(do, step)
	}
	for _, key := range slices.SortedFunc(maps.Keys(also), compareKeys) {
		ops := also[key]
		do = append(do, Step{Verb: Record, Key: key, Op: ops[0], Also: ops[1:], Reason: recordedOnly})
	}
	return do, notes
}

// responsible is who changed an object: what goes with a namespace was deleted by whoever
// deleted that.
func (s *Syncer) responsible(key store.Key, g *sighting, edit *api.Edit) *api.Edit {
	if edit != nil || !g.deleted || key.Namespace == "" {
		return edit
	}
	space := store.Key{GroupResource: api.Namespaces(), Name: key.Namespace}
	if r := s.driftRecord(space); r != nil && r.Deleted && r.Actor != (api.Actor{}) {
		by := r.Actor
		by.Verb = "delete namespace"
		return &api.Edit{Actor: by}
	}
	return nil
}

// announce tells people what was recorded about an object: in the log and as an
// Event on it, once for each drift.
func (s *Syncer) announce(ctx context.Context, o Observed, key store.Key, n noted) {
	r := n.record
	if r == nil {
		return
	}
	say := func(reason, text string) {
		s.cfg.Log.Warn("drift", "object", r.Object.Title(), "what", text, "commit", r.Commit)
		about := o.Live[key]
		if m := s.desired.manifest(key); about == nil && m != nil {
			about = m.Object
		}
		if about != nil {
			s.events.Event(ctx, about, corev1.EventTypeWarning, reason, text)
		}
	}
	where := declaring(s.desired.manifest(key), r)
	if n.news {
		text := driftText(r) + "; put back as " + where
		if r.Open() {
			text = driftText(r) + "; not put back: " + r.Why
		}
		say("Drift", text)
	}
	if len(n.fought) > 0 {
		if where == r.Path+" says" {
			where = fmt.Sprintf("%s:%d says", r.Path, r.Line)
		}
		say("DriftFight", fightText(r, where, n.fought))
	}
}
