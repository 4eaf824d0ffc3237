package syncer

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// observe reads what a plan for a commit is made from, but for what the plan
// would leave as it is: that would be nearly everything, every time.
func (s *Syncer) observe(ctx context.Context, src *api.Source, d *desired, commits Commits) (Observed, error) {
	author, err := commits.Author(ctx, d.commit)
	if err != nil {
		return Observed{}, fmt.Errorf("author of commit %s: %w", short(d.commit), err)
	}
	o := Observed{Source: s.cfg.Source, Commit: d.commit, Author: author, Live: map[store.Key]api.Object{}, Done: map[store.Key]*api.DoneRecord{}, Ended: s.endedJobs(), Left: map[store.Key]string{}}
	if o.Origins, err = commits.Origins(ctx, src.Status.Applied, d.commit); err != nil {
		return o, fmt.Errorf("files that changed up to commit %s: %w", short(d.commit), err)
	}
	for _, key := range s.ledger.differing(d, s.cfg.Now(), s.resync, s.odd, s.candidates) {
		if m := d.manifest(key); m != nil {
			o.Desired = append(o.Desired, m)
		}
		live := s.cfg.Store.Get(key)
		if live != nil && (d.manifest(key) != nil || s.owns(live)) {
			o.Live[key] = live
		}
		if m := d.manifest(key); m != nil && live == nil && d.reports(m.Path) {
			if r := s.driftRecord(key); r != nil && r.Deleted && r.Open() {
				o.Left[key] = r.Hash
			}
		}
		if done := s.done(key); done != nil {
			o.Done[key] = done
		}
	}
	slices.SortFunc(o.Desired, func(a, b *api.Manifest) int { return compareKeys(keyOf(a), keyOf(b)) })
	o.Spaces, o.Classes, o.Autoscaled = s.spaces(o.Desired), thereWillBe(api.PriorityClasses(), s.cfg.Store, o.Desired), s.autoscaled(d)
	o.Storage = thereWillBe(api.StorageClasses(), s.cfg.Store, o.Desired)
	o.Base, err = s.bases(ctx, src, o, commits)
	return o, err
}

// odd says whether a plan may have something to do about the object of a key.
func (s *Syncer) odd(d *desired, key store.Key) bool {
	live := s.cfg.Store.Get(key)
	if m := d.manifest(key); m != nil {
		return !s.unchanged(m, live, s.done(key))
	}
	return s.owns(live) || s.done(key) != nil
}

// candidates are the keys that d declares, and those of what the source declared
// once.
func (s *Syncer) candidates(d *desired) []store.Key {
	keys := d.keys()
	for key := range s.owned() {
		keys = append(keys, key)
	}
	for key := range s.doneRecords() {
		keys = append(keys, key)
	}
	return keys
}

// done is the done record of a Job of this source.
func (s *Syncer) done(key store.Key) *api.DoneRecord {
	if key.GroupResource != api.Jobs() {
		return nil
	}
	d, _ := s.cfg.Store.Get(store.Key{GroupResource: api.DoneRecords(), Namespace: key.Namespace, Name: key.Name}).(*api.DoneRecord)
	if d == nil || d.Source != s.cfg.Source {
		return nil
	}
	return d
}

// spaces are the live namespaces of the manifests.
func (s *Syncer) spaces(manifests []*api.Manifest) map[string]*corev1.Namespace {
	out := map[string]*corev1.Namespace{}
	for _, m := range manifests {
		name := m.Object.GetNamespace()
		if _, known := out[name]; known || !m.Kind.Namespaced {
			continue
		}
		if ns, ok := s.cfg.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: name}).(*corev1.Namespace); ok {
			out[name] = ns
		}
	}
	return out
}

// thereWillBe are the objects of a resource without namespaces that there will be: the
// ones that manifests declare, and the live ones that they do not.
func thereWillBe(gr schema.GroupResource, r store.Reader, manifests []*api.Manifest) (out []api.Object) {
	declared := map[string]bool{}
	for _, m := range manifests {
		if m.Kind.GroupResource() == gr {
			declared[m.Object.GetName()] = true
			out = append(out, m.Object)
		}
	}
	for _, obj := range r.List(gr, "") {
		if !declared[obj.GetName()] {
			out = append(out, obj)
		}
	}
	return out
}

// unchanged says whether the live object was made from this very manifest and
// nothing is to be done about it.
func (s *Syncer) unchanged(m *api.Manifest, live api.Object, done *api.DoneRecord) bool {
	if live == nil || live.GetDeletionTimestamp() != nil || !recorded(live, done) {
		return false
	}
	a := live.GetAnnotations()
	return a[api.AnnotationHash] == m.Hash && a[api.AnnotationSource] == s.cfg.Source
}

// declarable iterates over every live object of a kind that can be declared.
func (s *Syncer) declarable() iter.Seq2[store.Key, api.Object] {
	return func(yield func(store.Key, api.Object) bool) {
		for _, k := range api.Kinds() {
			if !k.Declarable {
				continue
			}
			for _, obj := range s.cfg.Store.List(k.GroupResource(), "") {
				if !yield(store.Key{GroupResource: k.GroupResource(), Namespace: obj.GetNamespace(), Name: obj.GetName()}, obj) {
					return
				}
			}
		}
	}
}

// owned iterates over the live objects that this source declares, or did.
func (s *Syncer) owned() iter.Seq2[store.Key, api.Object] {
	return func(yield func(store.Key, api.Object) bool) {
		for key, obj := range s.declarable() {
			if s.owns(obj) && !yield(key, obj) {
				return
			}
		}
	}
}

// owns says whether this source declares obj. What a controller has made from a
// declared object may have got its annotations, and is not declared.
func (s *Syncer) owns(obj api.Object) bool {
	return ownedBy(obj, s.cfg.Source)
}

func ownedBy(obj api.Object, source string) bool {
	return obj != nil && obj.GetAnnotations()[api.AnnotationSource] == source && metav1.GetControllerOfNoCopy(obj) == nil
}

func (s *Syncer) doneRecords() map[store.Key]*api.DoneRecord {
	out := map[store.Key]*api.DoneRecord{}
	for _, obj := range s.cfg.Store.List(api.DoneRecords(), "") {
		if d, ok := obj.(*api.DoneRecord); ok && d.Source == s.cfg.Source {
			out[store.Key{GroupResource: api.Jobs(), Namespace: d.Namespace, Name: d.Name}] = d
		}
	}
	return out
}

func (s *Syncer) endedJobs() map[store.Key]*batchv1.Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[store.Key]*batchv1.Job, len(s.ended))
	for k, v := range s.ended {
		out[k] = v
	}
	return out
}

// bases finds, for every live object whose manifest changes, the manifest that it
// was made from (D6): among those of the commit that was applied last, else at
// the commit in its provenance.
func (s *Syncer) bases(ctx context.Context, src *api.Source, o Observed, commits Commits) (map[store.Key]*api.Manifest, error) {
	out := map[store.Key]*api.Manifest{}
	missing := map[string][]store.Key{}
	for _, m := range o.Desired {
		key := keyOf(m)
		from, ok := provenanceOf(o.Live[key])
		if !ok || from.Source != o.Source || from.Hash == m.Hash {
			continue
		}
		if base := s.base(key, from); base != nil {
			out[key] = base
			continue
		}
		missing[from.Commit] = append(missing[from.Commit], key)
	}
	for _, commit := range sortedNames(missing) {
		d, err := s.render(ctx, commits, commit, s.pathAt(src))
		if err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			// The plan says so in the step's reason: nothing that is stuck can
			// block the fix (R13).
			s.cfg.Log.Warn("base commit cannot be read", "commit", commit, "error", err)
			continue
		}
		for _, key := range missing[commit] {
			from, _ := provenanceOf(o.Live[key])
			if m := d.manifest(key); m != nil && m.Hash == from.Hash {
				out[key] = m
			}
		}
	}
	return out, nil
}

func provenanceOf(obj api.Object) (api.Provenance, bool) {
	if obj == nil {
		return api.Provenance{}, false
	}
	return api.ProvenanceOf(obj)
}

// pathAt is the folder that the applied manifests stand in.
func (s *Syncer) pathAt(src *api.Source) string {
	if src.Status.Applied != "" {
		return src.Status.Path
	}
	return src.Spec.Path
}
