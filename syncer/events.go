package syncer

import (
	"maps"
	"sync"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
)

// watches wakes the syncer for its source, its ref and what it declares.
func (s *Syncer) watches() []reconcile.Watch {
	self := func(store.Event) []reconcile.Key { return []reconcile.Key{s.key} }
	out := []reconcile.Watch{
		{Resource: api.Sources(), Keys: self},
		{Resource: api.GitRefs(), Keys: self},
		{Resource: api.DoneRecords(), Keys: s.recordGone},
		{Resource: api.HorizontalPodAutoscalers(), Keys: s.ofAutoscaler},
	}
	for _, k := range api.Kinds() {
		if k.Declarable {
			out = append(out, reconcile.Watch{Resource: k.GroupResource(), Keys: s.touched})
		}
	}
	return out
}

// touched notes a declared object that somebody else has changed.
func (s *Syncer) touched(e store.Event) []reconcile.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []reconcile.Key
	if waiting := s.blocked[e.Key.Name]; len(waiting) > 0 && e.Key.GroupResource == api.Namespaces() {
		delete(s.blocked, e.Key.Name)
		for _, key := range waiting {
			s.dirty[key] = true
		}
		keys = append(keys, s.key)
	}
	if s.ours(e.Revision) {
		return keys
	}
	declared := s.known.manifest(e.Key) != nil
	if !declared && !s.owns(e.Object) && !s.owns(e.Previous) {
		return keys
	}
	if job, ok := e.Previous.(*batchv1.Job); ok && e.Deleted() && s.owns(job) && outcome(job) != "" {
		s.ended[e.Key] = job // R3: its record may not be written yet
	}
	if !meaningful(e) {
		return keys
	}
	s.dirty[e.Key] = true
	return []reconcile.Key{s.key}
}

// recordGone looks at a Job again whose done record somebody has deleted.
func (s *Syncer) recordGone(e store.Event) []reconcile.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ours(e.Revision) || !e.Deleted() {
		return nil
	}
	s.dirty[store.Key{GroupResource: api.Jobs(), Namespace: e.Key.Namespace, Name: e.Key.Name}] = true
	return []reconcile.Key{s.key}
}

// ours says whether revision was written by us. The caller holds mu.
func (s *Syncer) ours(revision int64) bool {
	is := s.own[revision]
	maps.DeleteFunc(s.own, func(r int64, _ bool) bool { return r < revision })
	return is
}

// meaningful is false for an event that changed only the status, which a manifest
// does not declare.
func meaningful(e store.Event) bool {
	if e.Object == nil || e.Previous == nil || e.Object.GetGeneration() == 0 {
		return true
	}
	a, b := e.Object, e.Previous
	switch a.(type) {
	case *batchv1.Job:
		was, ok := b.(*batchv1.Job)
		if !ok || outcome(a.(*batchv1.Job)) != outcome(was) {
			return true
		}
	}
	return !specOnlyByGeneration(e.Key) || a.GetGeneration() != b.GetGeneration() || a.GetUID() != b.GetUID() ||
		(a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil) ||
		!maps.Equal(a.GetLabels(), b.GetLabels()) || !maps.Equal(a.GetAnnotations(), b.GetAnnotations()) ||
		!equalObjects(a.GetFinalizers(), b.GetFinalizers()) || !equalObjects(a.GetOwnerReferences(), b.GetOwnerReferences())
}

// specOnlyByGeneration names the resources whose specification does not change
// without their generation.
func specOnlyByGeneration(key store.Key) bool {
	switch key.GroupResource {
	case api.Deployments(), api.ReplicaSets(), api.ReplicationControllers(), api.StatefulSets(), api.DaemonSets(), api.Jobs(), api.CronJobs(), api.HorizontalPodAutoscalers():
		return true
	}
	return false
}

// lookAtAll has every declared object looked at again.
func (s *Syncer) lookAtAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verify = true
}

// watchers wake those who follow the store.
type watchers struct {
	mu  sync.Mutex
	all map[chan struct{}]bool
}

// add returns a channel that holds something whenever the store has changed.
func (w *watchers) add() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan struct{}, 1)
	if w.all == nil {
		w.all = map[chan struct{}]bool{}
	}
	w.all[c] = true
	return c
}

func (w *watchers) remove(c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, c)
}

func (w *watchers) notify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.all {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
