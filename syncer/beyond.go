package syncer

import (
	"context"
	"fmt"
	"slices"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// beyond applies the rules that need more than one object.
func (s *Syncer) beyond(ctx context.Context, src *api.Source, o Observed, a asked, v *Verdict, commits Commits, f *findings) error {
	d := v.desired
	v.classes = o.Classes
	gone := d.trusted(deletions(v.steps))
	applied, err := s.applied(ctx, src, gone, commits)
	if err != nil {
		return err
	}
	gone = lost(applied, d, gone, a, f)
	for i, g := range gone {
		if g.key.GroupResource == api.Namespaces() {
			gone[i].along = s.along(g.key.Name, v.steps)
			if v.along == nil {
				v.along = map[store.Key][]string{}
			}
			v.along[g.key] = gone[i].along
		}
	}
	for _, step := range v.steps {
		if i := slices.IndexFunc(gone, func(g deletion) bool { return g.key == step.Key && g.data }); i >= 0 {
			gone[i].along = ownedClaims(step.Live, s.cfg.Store)
		}
	}
	c := &scene{desired: d, changed: o.Desired, live: s.cfg.Store, steps: v.steps, gone: map[store.Key]api.Provenance{}, first: src.Status.Applied == "", autoscaled: o.Autoscaled}
	for _, g := range gone {
		c.gone[g.key] = g.from
	}
	if d.whole() {
		s.checkNamespaces(c, f)
		checkAutoscaled(c, f)
		checkReferences(c, f)
		checkSelectors(c, f)
		checkAddresses(c, s.cfg.Services, f)
		checkExternalNames(c.changed, f)
		checkReserved(c, f)
		checkMarkers(c, f)
		checkVolumes(c, f)
		if err := checkSecurity(c, f); err != nil {
			return err
		}
		checkBounds(c, v.classes, s.cfg.Now(), f)
	}
	if refused := checkDeletions(src, applied, v.Commit, gone, a); refused != nil {
		v.Refusal, v.names = refused.message, refused.names
	}
	return nil
}

// room adds what the scheduler says of an accepted commit. Only people want to
// know.
func (s *Syncer) room(v *Verdict) {
	if !v.OK() {
		return
	}
	f := findings{warnings: v.Warnings}
	checkCapacity(intakes(v.steps, s.cfg.Store.Owned, v.classes), s.cfg.Capacity, &f)
	v.Problems, v.Warnings = inOrder(f.problems), inOrder(f.warnings)
}

// checkDeletions refuses a plan that deletes too much, by the limit of the applied
// commit: the one that deletes does not set it. An object that the applied commit
// does not declare is not counted: a commit that came no further than a part of
// its plan must not hold up the one that takes it back (R13).
func checkDeletions(src *api.Source, applied *desired, commit string, gone []deletion, a asked) *refusedDeletion {
	if len(gone) == 0 {
		return nil
	}
	limit := api.DefaultConfig().DeletionLimit
	if applied != nil {
		limit = applied.config.DeletionLimit
	}
	whole := applied == nil || len(applied.problems) == 0 // else it is not known what it does not declare
	for i, g := range gone {
		gone[i].new = whole && applied.manifest(g.key) == nil
	}
	return judgeDeletions(limit, commit, src.Status.Objects, gone, a)
}

// applied is what the applied commit declares, when it matters; nil: nothing is
// applied.
func (s *Syncer) applied(ctx context.Context, src *api.Source, gone []deletion, commits Commits) (*desired, error) {
	if len(gone) == 0 || src.Status.Applied == "" {
		return nil, nil
	}
	d, err := s.render(ctx, commits, src.Status.Applied, src.Status.Path)
	if err != nil {
		return nil, fmt.Errorf("read the applied commit: %w", err)
	}
	return d, nil
}

// maxAlong bounds how many objects of a deleted Namespace are named.
const maxAlong = 20

// along names what goes with a Namespace though no step deletes it.
func (s *Syncer) along(namespace string, steps []Step) []string {
	planned := map[store.Key]bool{}
	for _, step := range steps {
		planned[step.Key] = true
	}
	var out []string
	more := 0
	for _, k := range api.Kinds() {
		if !k.Namespaced || k.GroupResource() == api.Events() || k.GroupResource() == api.DoneRecords() {
			continue
		}
		for _, obj := range s.cfg.Store.List(k.GroupResource(), namespace) {
			key := store.KeyOf(obj)
			if planned[key] || isDefaultAccount(key) || metav1.GetControllerOfNoCopy(obj) != nil {
				continue
			}
			if len(out) == maxAlong {
				more++
				continue
			}
			out = append(out, titleOf(key))
		}
	}
	if more > 0 {
		out = append(out, thousands(more)+" more")
	}
	return out
}

// checkNamespaces finds the objects whose namespace does not exist: of those that
// change, and of all where the plan takes a namespace away.
func (s *Syncer) checkNamespaces(c *scene, f *findings) {
	d, list := c.desired, c.changed
	for key := range c.gone {
		if key.GroupResource == api.Namespaces() {
			list = d.list
		}
	}
	reasons := map[string]string{}
	for _, m := range list {
		ns := m.Object.GetNamespace()
		if !m.Kind.Namespaced || admission.Permanent(ns) {
			continue
		}
		reason, known := reasons[ns]
		if !known {
			if d.manifest(store.Key{GroupResource: api.Namespaces(), Name: ns}) == nil {
				reason = s.namespaceProblem(ns)
			}
			reasons[ns] = reason
		}
		if reason != "" {
			f.add(ruleNamespace, problem(m, "metadata.namespace", reason))
		}
	}
}

// namespaceProblem says why a namespace that the commit does not declare cannot
// be used.
func (s *Syncer) namespaceProblem(name string) string {
	if name == "" {
		return "missing"
	}
	live := s.cfg.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: name})
	if live == nil {
		if s.cfg.Spec.Further() {
			return fmt.Sprintf("namespace %q does not exist: declare it in the repository of the main source", name)
		}
		return fmt.Sprintf("namespace %q does not exist: declare it in this repository", name)
	}
	if live.GetDeletionTimestamp() != nil {
		return fmt.Sprintf("namespace %q is being deleted", name)
	}
	if from, ok := api.ProvenanceOf(live); ok && from.Source == s.cfg.Source {
		return fmt.Sprintf("namespace %q is removed by this commit: keep its manifest (it was %s)", name, from.Path)
	}
	return ""
}
