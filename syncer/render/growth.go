package render

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"headway.dev/headway/api"
	"sigs.k8s.io/kustomize/api/types"
)

// selector is a kustomize selector, as far as it bounds what a patch may touch:
// it matches every object that kustomize selects, and perhaps more.
type selector struct{ kind, name *regexp.Regexp }

func newSelector(s *types.Selector) *selector {
	if s == nil {
		return nil
	}
	return &selector{kind: anchored(s.Kind), name: anchored(s.Name)}
}

// anchored is nil for an expression that matches everything, or that is none.
func anchored(text string) *regexp.Regexp {
	if text == "" {
		return nil
	}
	re, err := regexp.Compile("^(?:" + strings.TrimSuffix(strings.TrimPrefix(text, "^"), "$") + ")$")
	if err != nil {
		return nil // kustomize says so
	}
	return re
}

func (s *selector) selects(in *instance) bool {
	return (s.kind == nil || s.kind.MatchString(in.kind)) && (s.name == nil || s.name.MatchString(in.name) || s.name.MatchString(in.original))
}

// replacements are those of a kustomization and of the files that it names.
func (u *unit) replacements(k *kustomization) ([]types.Replacement, error) {
	var out []types.Replacement
	for _, r := range k.spec.Replacements {
		if r.Path == "" {
			out = append(out, r.Replacement)
			continue
		}
		real, kind, reason, err := u.r.index.target(k.dir, r.Path, u.touch)
		if err != nil {
			return nil, err
		}
		if reason != "" || kind != file {
			continue // said with the path
		}
		s, err := u.r.source(real)
		if err != nil {
			return nil, err
		}
		for _, d := range s.docs {
			list, ok := d.Value.([]any)
			if !ok {
				list = []any{d.Value}
			}
			for _, v := range list {
				var one types.Replacement
				if text, err := json.Marshal(v); err == nil && json.Unmarshal(text, &one) == nil { // else kustomize says so
					out = append(out, one)
				}
			}
		}
	}
	return out, nil
}

// grow bounds what patches, replacements and variables can make of small files.
// It counts too much rather than too little: kustomize cannot be stopped.
func (u *unit) grow(l *layer, acc []*instance) {
	for _, p := range l.patches {
		n := 1
		if p.target != nil {
			for _, in := range acc {
				if p.target.selects(in) {
					n++
				}
			}
			if n == 1 && len(l.k.spec.Generators) == 0 {
				u.warnings.add(api.Problem{Reason: "the patch changes nothing: the kustomization has no object that its target selects"}.At(p.place("")))
			}
		}
		u.growth += n * p.bytes
		u.values += n * p.values
		for _, o := range p.ops {
			if o.op == "copy" {
				u.copies++
			}
		}
	}
	from := map[string]bool{"metadata.name": true}
	for _, r := range l.replacements {
		if r.Source != nil && r.Source.FieldPath != "" {
			from[r.Source.FieldPath] = true
		}
	}
	for _, r := range l.replacements {
		size := 64
		switch {
		case r.SourceValue != nil:
			size = len(*r.SourceValue)
		case r.Source != nil:
			size = u.longestOf(acc, r.Source.Kind, r.Source.Name)
		}
		for _, t := range r.Targets {
			if t == nil {
				continue
			}
			s, n := newSelector(t.Select), 0
			for _, in := range acc {
				if s == nil || s.selects(in) {
					n++
				}
			}
			for _, field := range t.FieldPaths {
				// A text put into another that is a source in its turn doubles.
				if t.Options != nil && t.Options.Delimiter != "" && (from[field] || strings.ContainsAny(field, "*[/")) && u.doubled < 30 {
					u.doubled++
				}
				u.growth += n * size << u.doubled
				if u.growth > maxUnitGrowth {
					break
				}
			}
		}
	}
	for _, v := range l.k.spec.Vars {
		u.growth += u.variables * u.longestOf(acc, v.ObjRef.Kind, v.ObjRef.Name)
	}
	u.work += len(acc) * (1 + len(l.patches) + len(l.replacements))
	if u.work > maxUnitWork {
		u.refuse(fmt.Sprintf("patches and replacements times objects are more than %d: split the kustomization", maxUnitWork))
	}
	const split = ": name fewer objects in their targets, or split the kustomization"
	switch {
	case u.growth > maxUnitGrowth || u.copies > 20 || u.largest<<u.copies > maxUnitGrowth:
		u.refuse(fmt.Sprintf("patches, replacements and variables could add more than %d bytes to the objects"+split, maxUnitGrowth))
	case u.values > maxUnitValues:
		u.refuse(fmt.Sprintf("patches could add more than %d values to the objects"+split, maxUnitValues))
	}
}

// longestOf is the length of the longest text that an object may have.
func (u *unit) longestOf(acc []*instance, kind, name string) int {
	n := 64
	for _, in := range acc {
		if (kind == "" || in.kind == kind) && (name == "" || in.name == name || in.original == name) {
			switch {
			case in.made:
				in.longest = u.longest
			case in.longest == 0:
				in.longest = measured(in.part.value).longest
			}
			n = max(n, in.longest)
		}
	}
	return n
}
