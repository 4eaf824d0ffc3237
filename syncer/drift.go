package syncer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of healing one object that somebody sets again and again: the first heals
// come at once, then the pause doubles. An object that was left alone for
// healMemory starts anew.
const (
	healsAtOnce = 3
	firstPause  = time.Second
	longPause   = 5 * time.Minute
	healMemory  = 2 * longPause
	maxFought   = 100 // fields of an object whose heals are counted
)

// sighting is the drift of one object, as a plan sees it.
type sighting struct {
	manifest *api.Manifest
	live     api.Object // as found; nil when it is gone
	deleted  bool       // it is gone, or going
	fields   []FieldChange
	stuck    string // why it cannot be put back; empty when it can
}

// sightings finds the drift in the steps of a heal. edits are by whom objects were
// changed through the API. What another commit than theirs had made of objects is
// no drift: a half applied commit is taken back by the same steps, and back says
// that one is.
func sightings(steps []Step, edits map[store.Key]*api.Edit, back bool) map[store.Key]*sighting {
	out := map[store.Key]*sighting{}
	for _, step := range steps {
		m, edit := step.Manifest, edits[step.Key]
		if m == nil || out[step.Key] != nil {
			continue
		}
		g := &sighting{manifest: m, live: step.Live}
		switch {
		case step.Verb == Update && step.Live != nil:
			from, _ := api.ProvenanceOf(step.Live)
			if g.fields = fieldChanges(step.Live, step.Op.Object); len(g.fields) == 0 || from.Hash != m.Hash && edit == nil {
				continue
			}
		case step.Verb == Stuck:
			g.fields, g.stuck = fieldChanges(step.Live, step.Op.Object), step.Reason
		case step.Verb == Create && step.Live == nil, step.Verb == Wait && step.Live == nil:
			if back && edit == nil {
				continue
			}
			if g.deleted = true; step.Verb == Wait {
				g.stuck = step.Reason
			}
		case step.Verb == Wait && step.Live.GetDeletionTimestamp() != nil:
			g.deleted, g.stuck = true, step.Reason
		default:
			continue
		}
		out[step.Key] = g
	}
	return out
}

// noted is what is to be done about the drift of one object.
type noted struct {
	record *api.DriftRecord // nil: as it is
	before *api.DriftRecord // nil: it is new
	heal   bool
	later  time.Time // when to look again; zero: at the next change
	news   bool      // a person has not heard of it
	fought []string  // nor of a fight over these fields; "": over whether it is there
}

// note decides about one drift. hold says why it is only told; empty: it is healed.
func note(before *api.DriftRecord, g *sighting, edit *api.Edit, hold, source, commit string, now time.Time) noted {
	at := metav1.NewMicroTime(now)
	n := noted{before: before}
	r := &api.DriftRecord{}
	switch {
	case before == nil:
		store.Stamp(r, now)
		r.Name = api.RecordName(g.manifest.Kind.GroupResource(), g.manifest.Object.GetNamespace(), g.manifest.Object.GetName())
		r.Since, r.Changed = at, at
	default:
		r = before.DeepCopyObject().(*api.DriftRecord)
		if !before.Open() {
			r.Since, r.Actor, r.Fields, r.Healer = at, api.Actor{}, nil, api.Actor{}
			if r.Told == before.Digest() {
				r.Told, r.Changed = "", at // it is told again, even if it is the same again
			}
		}
	}
	if r.LastHeal != nil && now.Sub(r.LastHeal.Time) > healMemory {
		r.Heals, r.LastHeal, r.FieldHeals, r.Fight = 0, nil, nil, false
	}
	if edit != nil {
		r.Actor = edit.Actor
	}
	m := g.manifest
	r.Source, r.Commit, r.Path, r.Line, r.Hash = source, commit, m.Path, m.Line, m.Hash
	r.Object = api.RefTo(m.Kind, m.Object.GetNamespace(), m.Object.GetName())
	r.Deleted, r.Live, r.Healed = g.deleted, nil, nil
	r.Fields = driftFields(r.Fields, g.fields, r.Actor, at)
	if !g.deleted {
		r.Live = liveObject(m, g.live)
	}
	pause := time.Duration(0)
	if r.LastHeal != nil {
		pause = healPause(r.Heals) - now.Sub(r.LastHeal.Time)
	}
	switch {
	case hold != "":
		r.Why = hold
	case g.stuck != "":
		r.Why = g.stuck
	case pause > 0:
		n.later = now.Add(pause)
		r.Why = "somebody sets it again and again; put back at " + n.later.UTC().Format(time.RFC3339)
	default:
		n.heal, r.Why = true, ""
		r.Healed, r.LastHeal = &at, &at
		r.Heals++
		n.fought = countHeal(r)
		r.Fight = r.Fight || len(n.fought) > 0
	}
	n.news = before == nil || !before.Open() || before.Digest() != r.Digest()
	if before != nil && before.Fight && fights(r) && before.Actor == r.Actor && samePaths(before.Fields, r.Fields) {
		n.news = false // the fight goes on
	}
	if before != nil && before.Digest() != r.Digest() && before.Told == before.Digest() {
		r.Changed = at
	}
	if n.news || n.heal || before.Commit != r.Commit || before.Hash != r.Hash || before.Actor != r.Actor || before.Fight != r.Fight || !n.later.IsZero() && before.Why != r.Why || (before.Why == "") != (r.Why == "") {
		n.record = r
	}
	return n
}

func samePaths(a, b []api.DriftField) bool {
	return slices.EqualFunc(a, b, func(x, y api.DriftField) bool { return x.Path == y.Path })
}

// over ends the record of a drift that is not seen any more; nil when it has ended
// before.
func over(before *api.DriftRecord, by api.Actor, now time.Time) *api.DriftRecord {
	if before == nil || !before.Open() {
		return nil
	}
	r := before.DeepCopyObject().(*api.DriftRecord)
	at := metav1.NewMicroTime(now)
	r.Healed, r.Healer, r.Why = &at, by, ""
	return r
}

// countHeal counts a heal for each field that is put back, and gives those that have
// been put back so often that it is a fight: each of them once. Two people who change
// different fields do not fight.
func countHeal(r *api.DriftRecord) (fought []string) {
	if r.FieldHeals == nil {
		r.FieldHeals = map[string]int{}
	}
	for _, path := range differing(r) {
		n, counted := r.FieldHeals[path]
		if !counted && len(r.FieldHeals) >= maxFought {
			continue
		}
		if r.FieldHeals[path] = n + 1; n+1 == healsAtOnce {
			fought = append(fought, path)
		}
	}
	return fought
}

// differing are the paths of the fields that differ; "" when the object is gone.
func differing(r *api.DriftRecord) []string {
	if r.Deleted {
		return []string{""}
	}
	paths := make([]string, 0, len(r.Fields))
	for _, f := range r.Fields {
		paths = append(paths, f.Path)
	}
	return paths
}

// fights says whether nothing differs but what is fought over.
func fights(r *api.DriftRecord) bool {
	return r.Fight && !slices.ContainsFunc(differing(r), func(path string) bool {
		n, counted := r.FieldHeals[path]
		return n < healsAtOnce && (counted || len(r.FieldHeals) < maxFought)
	})
}

// healPause is how long after the last of n heals the next one comes.
func healPause(n int) time.Duration {
	if n < healsAtOnce {
		return 0
	}
	return min(longPause, firstPause<<min(n-healsAtOnce, 20))
}

// driftFields are the fields as they are now; those that were so before keep who
// did it and when.
func driftFields(before []api.DriftField, now []FieldChange, by api.Actor, at metav1.MicroTime) []api.DriftField {
	var out []api.DriftField
	for _, f := range now {
		d := api.DriftField{Path: f.Field, Live: f.Old, Declared: f.New, Hidden: f.Hidden, Actor: by, Since: at}
		i := slices.IndexFunc(before, func(b api.DriftField) bool {
			return b.Path == d.Path && b.Hidden == d.Hidden && string(b.Live) == string(d.Live) && string(b.Declared) == string(d.Declared)
		})
		if i >= 0 {
			d.Actor, d.Since = before[i].Actor, before[i].Since
		}
		out = append(out, d)
	}
	return out
}

// liveObject is what a record keeps of an object; of a Secret, no value (R14).
func liveObject(m *api.Manifest, obj api.Object) json.RawMessage {
	fields := secretShape(m, obj)
	if m.Kind.GroupResource() != api.Secrets() {
		var err error
		if fields, err = plainObject(obj); err != nil {
			return nil
		}
		fields["apiVersion"], fields["kind"] = m.Kind.GroupVersion().String(), m.Kind.Kind
	}
	raw, err := json.Marshal(fields)
	if err != nil || len(raw) > api.MaxDriftLive {
		return nil
	}
	return raw
}

// driftText is a drift on one line, without any Secret's values: "admin (kubectl)
// changed spec.replicas 3 → 5".
func driftText(r *api.DriftRecord) string {
	who := r.Actor.String()
	if r.Actor == (api.Actor{}) {
		who = "somebody"
	}
	if r.Deleted {
		return who + " deleted it"
	}
	var fields []string
	const most = 5
	for i, f := range r.Fields {
		if i == most {
			fields = append(fields, fmt.Sprintf("and %d more", len(r.Fields)-most))
			break
		}
		text := f.Path
		if !f.Hidden {
			text = FieldChange{Field: f.Path, Old: f.Declared, New: f.Live}.String()
		}
		fields = append(fields, text)
	}
	return who + " changed " + strings.Join(fields, ", ")
}

// declaring names the files that declare the drifted fields, with a verb. Of what a
// kustomization made, they are not always that of the object.
func declaring(m *api.Manifest, r *api.DriftRecord) string {
	if m == nil || r.Deleted {
		return r.Path + " says"
	}
	const most = 3
	var paths []string
	for _, f := range r.Fields[:min(len(r.Fields), 5)] {
		for _, leaf := range declaredLeaves(m, f.Path) {
			if len(paths) < most && !slices.Contains(paths, leaf.Path) {
				paths = append(paths, leaf.Path)
			}
		}
	}
	switch len(paths) {
	case 0:
		return r.Path + " says"
	case 1:
		return paths[0] + " says"
	}
	return strings.Join(paths, " and ") + " say"
}

// fightText names both writers, and what they fight over.
func fightText(r *api.DriftRecord, where string, over []string) string {
	who := r.Actor.String()
	if r.Actor == (api.Actor{}) {
		who = "another writer, which did not sign in,"
	}
	what := "deletes it"
	if !r.Deleted {
		what = "sets " + fields(over)
	}
	return fmt.Sprintf("two writers fight: %s %s again each time that Headway puts it back as %s. Change the manifest, or stop the other; Headway goes on ever more slowly, at least every %d minutes",
		who, what, where, int(longPause.Minutes()))
}
