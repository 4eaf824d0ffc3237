package syncer

import (
	"context"
	"errors"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
)

// maxHeal bounds how many objects are looked at before the source is looked at
// again, so that a new commit never waits for a resync.
const maxHeal = 200

// heal puts back what differs from the applied commit, writes the done records of
// Jobs, and removes what has no manifest, for the objects that have changed.
func (s *Syncer) heal(ctx context.Context, src *api.Source) error {
	s.due(s.cfg.Now())
	if !s.hasDirty() {
		return nil
	}
	if err := s.load(ctx, src); err != nil {
		return err
	}
	keys, more := s.takeDirty()
	keys = s.ready(keys, s.cfg.Now())
	err := s.healKeys(ctx, src, keys)
	if err != nil {
		s.addDirty(keys)
		return err
	}
	if more {
		s.loop.Wake(s.key)
	} else {
		s.back = false
	}
	return nil
}

func (s *Syncer) healKeys(ctx context.Context, src *api.Source, keys []store.Key) error {
	o := Observed{Source: s.cfg.Source, Commit: src.Status.Applied, Live: map[store.Key]api.Object{}, Done: map[store.Key]*api.DoneRecord{}, Ended: s.endedJobs(), Verify: true}
	o.Autoscaled = s.autoscaled(s.desired)
	tags := map[store.Key]tag{}
	done := s.doneRecords()
	var looked []store.Key
	for _, key := range keys {
		m, live := s.desired.manifest(key), s.cfg.Store.Get(key)
		if d := done[key]; d != nil {
			o.Done[key] = d
		}
		if m != nil && live != nil {
			_, scaled := o.Autoscaled[key]
			tags[key] = tag{live.GetResourceVersion(), m.Hash, scaled}
			if s.checked[key] == tags[key] && recorded(live, done[key]) && s.editOf(key) == nil {
				delete(tags, key)
				delete(o.Done, key)
				continue
			}
		}
		looked = append(looked, key)
		if m != nil {
			o.Desired = append(o.Desired, m)
		}
		if live != nil && (m != nil || s.owns(live)) {
			o.Live[key] = live
		}
		if live == nil {
			delete(s.checked, key)
		}
	}
	if len(o.Desired)+len(o.Live)+len(o.Done) == 0 && !s.anyRecord(looked) && !s.others {
		return nil
	}
	s.borders(&o, s.desired)
	if s.others {
		s.lead(&o, s.desired, nil) // without its trailers: what a commit left is let go
	}
	if s.author.commit != o.Commit {
		name, err := s.cfg.Commits.Author(ctx, o.Commit)
		if err != nil {
			return err
		}
		s.author = authorship{o.Commit, name}
	}
	o.Author = s.author.name
	var err error
	o.Spaces, o.Classes = s.spaces(o.Desired), thereWillBe(api.PriorityClasses(), s.cfg.Store, o.Desired)
	o.Storage = thereWillBe(api.StorageClasses(), s.cfg.Store, o.Desired)
	if len(o.Desired) > len(o.Live) { // one of them is made again
		if o.Origins, err = s.cfg.Commits.Origins(ctx, "", o.Commit); err != nil {
			return err
		}
	}
	if o.Base, err = s.bases(ctx, src, o, s.cfg.Commits); err != nil {
		return err
	}
	steps, problems := Plan(o, s.cfg.Now())
	for _, p := range problems {
		s.tell(p)
	}
	s.others = slices.ContainsFunc(steps, func(step Step) bool { return step.Key.GroupResource == api.Sources() })
	steps, notes := s.recording(o, looked, steps)
	for key, n := range notes {
		if !n.later.IsZero() {
			s.later[key] = n.later
		}
		if !n.later.IsZero() || s.pause != nil {
			delete(tags, key) // it is looked at again although it does not change
		}
	}
	if s.pause != nil {
		// What is left is looked at again when the pause is over.
		for key := range notes {
			delete(tags, key)
		}
		for _, step := range steps {
			delete(tags, step.Key)
		}
		steps = records(steps)
	}
	var conflict error
	batches, waiting := cut(steps, s.bulk)
	s.block(waiting)
	for _, batch := range batches {
		for _, step := range batch {
			if step.Reason != recordedOnly {
				delete(tags, step.Key)
			}
		}
		// Only as long as this is the applied commit.
		err := s.healBatch(ctx, src, batch)
		switch {
		case isConflict(err):
			conflict = err
		case err != nil:
			return err
		default:
			for _, step := range batch {
				n := notes[step.Key]
				if n.record != nil && n.record.Open() && !n.record.Deleted {
					s.looked[step.Key] = s.cfg.Now()
				}
				s.announce(ctx, o, step.Key, n)
				delete(notes, step.Key)
			}
		}
	}
	if conflict != nil {
		return store.ErrConflict
	}
	for _, step := range steps {
		if step.Verb != Wait && step.Reason != recordedOnly {
			s.cfg.Log.Info("declared object healed", "verb", step.Verb, "object", step.Key.String(), "reason", step.Reason)
		}
	}
	for key, t := range tags {
		s.checked[key] = t
	}
	s.forgetEnded()
	return nil
}

func (s *Syncer) healBatch(ctx context.Context, src *api.Source, batch []Step) error {
	var ops []store.Op
	for _, step := range batch {
		ops = append(append(ops, step.Op), step.Also...)
	}
	return s.commit(ctx, ops, src)
}

// block notes what cannot be made while its namespace goes away, for the
// namespace's next event. What goes away itself is looked at when it is gone.
func (s *Syncer) block(waiting []Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, step := range waiting {
		if ns := step.Key.Namespace; ns != "" && !slices.Contains(s.blocked[ns], step.Key) {
			s.blocked[ns] = append(s.blocked[ns], step.Key)
		}
	}
}

// tell logs a problem of a live object once.
func (s *Syncer) tell(p api.Problem) {
	key := store.Key{Name: p.Path + ":" + p.Field}
	if s.told[key] == p.Reason {
		return
	}
	s.told[key] = p.Reason
	s.cfg.Log.Warn("declared object cannot be healed", "problem", p.String())
}

func isConflict(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound)
}

func (s *Syncer) hasDirty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verify || len(s.dirty) > 0 || s.others
}

// takeDirty takes some of the changed keys, and says whether there are more.
func (s *Syncer) takeDirty() (keys []store.Key, more bool) {
	s.mu.Lock()
	all := s.verify
	s.verify = false
	s.mu.Unlock()
	if all {
		s.refused = refusal{}
		s.others = !s.cfg.Spec.Further()
		clear(s.looked) // a look at everything is seldom enough
		for key := range s.checked {
			if s.desired.manifest(key) == nil {
				delete(s.checked, key)
			}
		}
		var every []store.Key
		every = append(every, s.desired.keys()...)
		for key := range s.owned() {
			every = append(every, key)
		}
		for key := range s.doneRecords() {
			every = append(every, key)
		}
		every = append(every, s.recordKeys()...)
		s.addDirty(every)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	keys = make([]store.Key, 0, len(s.dirty))
	for key := range s.dirty {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareKeys)
	if len(keys) > maxHeal {
		keys, more = keys[:maxHeal], true
	}
	for _, key := range keys {
		delete(s.dirty, key)
	}
	return keys, more
}

func (s *Syncer) addDirty(keys []store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.dirty[key] = true
	}
}

// forgetEnded drops the ended Jobs whose record is written, or whose manifest is
// another now.
func (s *Syncer) forgetEnded() {
	done := s.doneRecords()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, job := range s.ended {
		from, _ := api.ProvenanceOf(job)
		m := s.known.manifest(key)
		if d := done[key]; m == nil || m.Hash != from.Hash || d != nil && d.Hash == from.Hash {
			delete(s.ended, key)
		}
	}
}

// recorded says whether obj needs no done record, or has one.
func recorded(obj api.Object, d *api.DoneRecord) bool {
	job, ok := obj.(*batchv1.Job)
	return !ok || outcome(job) == "" || d != nil
}
