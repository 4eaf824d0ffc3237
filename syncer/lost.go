package syncer

import (
	"fmt"
	"slices"

	"headway.dev/headway/api"
)

// lost finds what would be deleted only because a file that is still there is no
// manifest any more, and leaves it out of gone (R3). A kustomization that stops to name
// a file means it, and so does a trailer.
func lost(applied, d *desired, gone []deletion, a asked, f *findings) []deletion {
	if applied == nil || len(gone) == 0 || len(d.skipped) == 0 {
		return gone
	}
	skipped := make(map[string]string, len(d.skipped))
	for _, p := range d.skipped {
		skipped[p.Path] = p.Reason
	}
	first, count := map[string]*api.Manifest{}, map[string]int{}
	var paths []string
	left := slices.DeleteFunc(gone, func(g deletion) bool {
		m := applied.manifest(g.key)
		if m == nil || m.Unit != "" || skipped[m.Path] == "" || a.deletes(g.key) {
			return false
		}
		if count[m.Path]++; count[m.Path] == 1 {
			paths = append(paths, m.Path)
		}
		if was := first[m.Path]; was == nil || m.Line < was.Line {
			first[m.Path] = m
		}
		return true
	})
	for _, path := range paths {
		what := titleOf(keyOf(first[path]))
		if more := count[path] - 1; more > 0 {
			what += " and " + plural(more, "object") + " more"
		}
		f.add(ruleManifestLost, api.Problem{Path: path, Reason: fmt.Sprintf("the applied commit declares %s here, and now the file is %s: mend it, or delete it if what it declared is to go", what, skipped[path])})
	}
	return left
}
