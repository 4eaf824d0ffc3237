package syncer

import (
	"fmt"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// borders adds to what a plan is made from whose the objects are that other sources
// declare.
func (s *Syncer) borders(o *Observed, d *desired) {
	sources := s.sources()
	further := s.cfg.Spec.Further()
	if further {
		o.Allows = s.cfg.Spec.WritesTo
	} else if len(sources) == 0 {
		return
	}
	o.Theirs = func(name string) bool {
		src := sources[name]
		return name == api.MainSource || src != nil && src.DeletionTimestamp == nil && (further || d.names(name))
	}
	o.Claims = map[store.Key]api.Provenance{}
	for _, m := range o.Desired {
		if key := keyOf(m); o.Live[key] == nil {
			if from, ok := s.claim(key); ok {
				o.Claims[key] = from
			}
		}
	}
}

// lead adds which further sources the main source's commit wants followed, and which
// there are.
func (s *Syncer) lead(o *Observed, d *desired, prunes func(source string) bool) {
	if s.cfg.Spec.Further() {
		return
	}
	o.Follows, o.Sources, o.Prunes, o.Leaves = d.config.Sources, s.sources(), prunes, map[string][]api.Object{}
	for name := range o.Sources {
		if !d.names(name) {
			o.Leaves[name] = s.leaves(name)
		}
	}
}

// names says whether the commit wants a further source followed.
func (d *desired) names(source string) bool {
	return slices.ContainsFunc(d.config.Sources, func(c api.SourceConfig) bool { return c.Name == source })
}

// sources are the further ones that there are, but for our own.
func (s *Syncer) sources() map[string]*api.Source {
	out := map[string]*api.Source{}
	for _, obj := range s.cfg.Store.List(api.Sources(), "") {
		if src, ok := obj.(*api.Source); ok && src.Name != s.cfg.Source && src.Name != api.MainSource {
			out[src.Name] = src
		}
	}
	return out
}

// claim is what is recorded of an object that is not there and that another source
// declares: its deletion was found as drift, or it is a Job that has run.
func (s *Syncer) claim(key store.Key) (api.Provenance, bool) {
	r, _ := s.cfg.Store.Get(store.Key{GroupResource: api.DriftRecords(), Name: api.RecordName(key.GroupResource, key.Namespace, key.Name)}).(*api.DriftRecord)
	if r != nil && r.Open() && r.Deleted && r.Source != s.cfg.Source {
		return api.Provenance{Source: r.Source, Commit: r.Commit, Path: r.Path, Line: r.Line}, true
	}
	if key.GroupResource != api.Jobs() {
		return api.Provenance{}, false
	}
	d, _ := s.cfg.Store.Get(store.Key{GroupResource: api.DoneRecords(), Namespace: key.Namespace, Name: key.Name}).(*api.DoneRecord)
	if d == nil || d.Source == s.cfg.Source {
		return api.Provenance{}, false
	}
	return api.Provenance{Source: d.Source}, true
}

// leaves is everything that a source has made: the objects that it declares, and what
// is recorded about them and about its commits.
func (s *Syncer) leaves(source string) []api.Object {
	var out []api.Object
	for _, obj := range s.declarable() {
		if ownedBy(obj, source) {
			out = append(out, obj)
		}
	}
	for _, obj := range s.cfg.Store.List(api.DoneRecords(), "") {
		if r, ok := obj.(*api.DoneRecord); ok && r.Source == source {
			out = append(out, r)
		}
	}
	for _, obj := range s.cfg.Store.List(api.DriftRecords(), "") {
		if r, ok := obj.(*api.DriftRecord); ok && r.Source == source {
			out = append(out, r)
		}
	}
	for _, obj := range s.cfg.Store.List(api.Edits(), "") {
		if r, ok := obj.(*api.Edit); ok && r.Source == source {
			out = append(out, r)
		}
	}
	for _, obj := range s.cfg.Store.List(api.Receipts(), "") {
		if r, ok := obj.(*api.Receipt); ok && r.Source == source {
			out = append(out, r)
		}
	}
	return out
}

// limit takes out of what a commit declares what the source may not write, and says
// so of each.
func (s *Syncer) limit(r *Rendered) []api.Problem {
	spec := s.cfg.Spec
	if !spec.Further() {
		return nil
	}
	var out []api.Problem
	if r.Config != nil && len(r.Config.Sources) > 0 {
		out = append(out, r.Config.Problem("sources", fmt.Sprintf("only the main source may name further ones, and source %s is one of these: take them out here, and name them there", s.cfg.Source)))
	}
	r.Manifests = slices.DeleteFunc(slices.Clone(r.Manifests), func(m *api.Manifest) bool {
		key := keyOf(m)
		svc, _ := m.Object.(*corev1.Service)
		switch {
		case spec.WritesTo(key.Namespace) && svc != nil && len(svc.Spec.ExternalIPs) > 0 && !spec.WritesTo(""):
			// The pods of every namespace, and the nodes, reach the Service by them.
			out = append(out, problem(m, "spec.externalIPs", fmt.Sprintf("source %s may not take addresses from the pods of other namespaces, which would reach this Service by them: take them out, or declare the Service in the main source", s.cfg.Source)))
			return true
		case spec.WritesTo(key.Namespace):
			return false
		}
		field, what := "metadata.namespace", spaceName(key.Namespace)
		if key.Namespace == "" {
			field, what = "kind", "a "+m.Kind.Kind+", which is in no namespace"
		}
		out = append(out, problem(m, field, fmt.Sprintf("source %s may not write to %s: its entry in the configuration of the main source names %s", s.cfg.Source, what, spaceNames(spec.Namespaces))))
		return true
	})
	return out
}

// outsideText says of an applied commit what of it the source may not write any more.
func (d *desired) outsideText(source string) (message string, problems []string) {
	if len(d.outside) == 0 {
		return "", nil
	}
	v := &Verdict{Problems: d.outside}
	return fmt.Sprintf("source %s may not write %s of the applied commit any more, and leaves that alone", source, plural(len(d.outside), "object")), v.reasons()
}

// named is the name of a loop: those of further sources name theirs.
func (s *Syncer) named(loop string) string {
	if s.cfg.Source == api.MainSource {
		return loop
	}
	return loop + "/" + s.cfg.Source
}

// follows says whether src is what this syncer was made for.
func (s *Syncer) follows(src *api.Source) bool {
	return src != nil && src.DeletionTimestamp == nil && src.Spec.Equal(s.cfg.Spec)
}

// reconsider has a refused commit judged again at each resync as long as nothing is
// applied: what was missing may have come. After that heal does so.
func (s *Syncer) reconsider(src *api.Source) {
	if src.Status.Applied != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.verify {
		s.verify, s.refused = false, refusal{}
	}
}
