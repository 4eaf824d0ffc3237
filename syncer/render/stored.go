package render

import (
	"fmt"
	"path"
	"slices"

	"headway.dev/headway/api"
)

// judgeStored judges what is declared and nothing acts on: r.foreign and, of the
// manifests, those of stored kinds. It gives what is to be told of them.
func (r *renderer) judgeStored(manifests []*api.Manifest) []api.Problem {
	if len(manifests)+len(r.foreign) > MaxObjects {
		r.problem(api.Problem{Path: r.opts.Path, Reason: fmt.Sprintf("the source declares more than %d objects, those in git only counted", MaxObjects)})
		return nil
	}
	slices.SortStableFunc(r.foreign, func(a, b api.Foreign) int {
		return comparePlaces(api.Problem{}.At(a.Place), api.Problem{}.At(b.Place))
	})
	problems, told := api.JudgeStored(manifests, r.foreign, r.opts.AllowStored, path.Join(r.root, api.ConfigFile))
	for _, p := range problems {
		r.problem(p)
	}
	return told
}

// warnings puts together as many as anybody would read: first what is told once for
// each kind, then those of the kustomizations, then those of the manifests.
func warnings(told, units []api.Problem, manifests []*api.Manifest) (all []api.Problem) {
	add := func(some []api.Problem) { all = append(all, some[:min(len(some), MaxNotices-len(all))]...) }
	add(told)
	add(units)
	for _, m := range manifests {
		if len(m.Warnings) > 0 {
			add(m.Warnings)
		}
	}
	return all
}
