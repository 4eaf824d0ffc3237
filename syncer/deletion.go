package syncer

import (
	"fmt"
	"slices"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// deletion is one object that a plan deletes for good, or a precious one that it
// deletes and makes again.
type deletion struct {
	key   store.Key
	from  api.Provenance
	new   bool     // the applied commit does not declare it: another that came no further made it
	data  bool     // claims go with it, and the data in them
	along []string // titles of what goes with it, as with a Namespace, and stands in no manifest of the source
}

func (d deletion) String() string {
	what := titleOf(d.key) + " would be deleted"
	if len(d.along) > 0 {
		what += ", and with it " + strings.Join(d.along, ", ")
	}
	return api.Problem{Path: d.from.Path, Line: d.from.Line, Reason: what}.String()
}

// deletions lists what the steps delete, in their order.
func deletions(steps []Step) []deletion {
	var out []deletion
	for _, s := range steps {
		data := takesClaims(s.Live)
		if s.Verb != Delete || s.Manifest != nil && !precious(s.Key) && !data || s.Key.GroupResource == api.Sources() {
			continue
		}
		d := deletion{key: s.Key, data: data}
		if s.Live != nil {
			d.from, _ = api.ProvenanceOf(s.Live)
		}
		out = append(out, d)
	}
	return out
}

// refusedDeletion is why a plan deletes too much: one line, and the names.
type refusedDeletion struct {
	message string
	names   []string
}

// judgeDeletions refuses deletions above the limit, and every precious one, unless the
// trailers allow them. declared is how many objects the applied commit declares.
func judgeDeletions(l api.DeletionLimit, commit string, declared int, gone []deletion, a asked) *refusedDeletion {
	var kept, counted []deletion // precious ones, and the others, that no trailer names
	for _, d := range gone {
		switch {
		case a.deletes(d.key):
		case precious(d.key) || d.data:
			kept = append(kept, d)
		case !d.new:
			counted = append(counted, d)
		}
	}
	tooMany := len(counted) > max(l.Most(declared), a.most)
	if !tooMany {
		counted = nil
	}
	if len(kept) == 0 && !tooMany {
		return nil
	}
	var why, lines []string
	if tooMany {
		why = append(why, fmt.Sprintf("%s of the %s that the applied commit declares, more than the %s that a commit may delete unasked (the limit is %s)",
			plural(len(counted), "object"), thousands(declared), thousands(l.Most(declared)), l))
	}
	covered := func(key store.Key) bool {
		return slices.ContainsFunc(kept, func(d deletion) bool { return d.key.GroupResource == api.Namespaces() && d.key.Name == key.Namespace })
	}
	for _, d := range kept {
		why = append(why, titleOf(d.key))
		if !covered(d.key) {
			lines = append(lines, TrailerAllowDelete+": "+targetOf(d.key))
		}
	}
	if left := len(slices.DeleteFunc(slices.Clone(counted), func(d deletion) bool { return covered(d.key) })); left > l.Most(declared) {
		lines = append(lines, fmt.Sprintf("%s: %d", TrailerAllowDelete, left))
	}
	const many = 5
	if len(lines) > many {
		lines = []string{TrailerAllowDelete + ": all"}
	}
	if len(why) > many {
		why = append(why[:many], fmt.Sprintf("%d more", len(why)-many))
	}
	r := &refusedDeletion{message: fmt.Sprintf("%s would delete %s; nothing is changed. If that is meant, say so in the last paragraph of a commit message in this push: %s",
		called(commit), strings.Join(why, ", "), strings.Join(lines, " and "))}
	for _, d := range gone {
		if slices.ContainsFunc(slices.Concat(kept, counted), func(o deletion) bool { return o.key == d.key }) {
			r.names = append(r.names, d.String())
		}
	}
	return r
}
