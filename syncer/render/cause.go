package render

import (
	"slices"
	"strings"

	"headway.dev/headway/api"
	"sigs.k8s.io/kustomize/api/types"
)

// patched finds the outermost patch that gives a field the value that it has.
func (in *instance) patched(way []string, object map[string]any, value any) (api.Place, bool) {
	for _, l := range slices.Backward(in.layers) {
		for _, p := range slices.Backward(l.patches) {
			if !p.mayMatch(in) {
				continue
			}
			if p.merge != nil {
				if len(way) < 1 || way[0] == "metadata" && len(way) == 2 && way[1] == "name" || way[0] == "kind" || way[0] == "apiVersion" {
					continue
				}
				own, got, full := match(object, p.merge, way)
				if full && len(own) > 0 && (same(got, value) || !scalar(value) && !in.has(way, object)) {
					return p.place(pathOf(own)), true
				}
				continue
			}
			for _, o := range slices.Backward(p.ops) {
				if (o.op == "add" || o.op == "replace") && prefix(o.way, way) {
					if got, ok := follow(o.value, way[min(len(o.way), len(way)):]); ok && same(got, value) {
						return p.place(o.field), true
					}
				}
			}
		}
	}
	return api.Place{}, false
}

// has says whether the document itself has a field.
func (in *instance) has(way []string, object map[string]any) bool {
	_, _, full := match(object, in.part.value, way)
	return full
}

// removed finds the patch that takes a field away.
func (in *instance) removed(way []string, object map[string]any) (api.Place, bool) {
	for _, l := range slices.Backward(in.layers) {
		for _, p := range slices.Backward(l.patches) {
			if !p.mayMatch(in) {
				continue
			}
			if p.merge != nil {
				if own, got, full := match(object, p.merge, way); full && got == nil {
					return p.place(pathOf(own)), true
				}
				continue
			}
			for _, o := range slices.Backward(p.ops) {
				if o.op == "remove" && slices.Equal(o.way, way) {
					return p.place(o.field), true
				}
			}
		}
	}
	return api.Place{}, false
}

// prefix says whether a JSON pointer leads to a field or above it. "-" is the end
// of a list.
func prefix(pointer, way []string) bool {
	if len(pointer) > len(way) {
		return false
	}
	for i, step := range pointer {
		if step != way[i] && step != "-" {
			return false
		}
	}
	return true
}

// mayMatch says whether a patch is for an object. It does not look at label
// selectors: the value decides.
func (p *patch) mayMatch(in *instance) bool {
	if p.target != nil {
		return p.target.selects(in)
	}
	name := text(p.merge, "metadata", "name")
	return text(p.merge, "kind") == in.kind && (name == in.original || name == in.name || name != "" && strings.Contains(in.name, name))
}

// set finds what in a kustomization gives a field its value.
func (in *instance) set(way []string, value any) (api.Place, bool) {
	for _, l := range slices.Backward(in.layers) {
		if field := setter(&l.k.spec, way, value); field != "" {
			return l.k.at(field), true
		}
	}
	return api.Place{}, false
}

func setter(s *types.Kustomization, way []string, value any) string {
	if len(way) == 0 {
		return ""
	}
	last := way[len(way)-1]
	str, isText := value.(string)
	if last == "image" && isText {
		for i, img := range s.Images {
			field := "images" + nth(i)
			name := img.Name
			if img.NewName != "" {
				name = img.NewName
			}
			if !strings.HasPrefix(str, name) {
				continue
			}
			switch {
			case img.Digest != "" && strings.HasSuffix(str, img.Digest):
				return field + ".digest"
			case img.NewTag != "" && strings.HasSuffix(str, ":"+img.NewTag):
				return field + ".newTag"
			case img.NewName != "":
				return field + ".newName"
			}
		}
	}
	if last == "replicas" {
		for i, r := range s.Replicas {
			if same(r.Count, value) {
				return "replicas" + nth(i) + ".count"
			}
		}
	}
	if last == "namespace" && isText && str == s.Namespace {
		return "namespace"
	}
	if last == "name" && isText {
		switch {
		case s.NamePrefix != "" && strings.Contains(str, s.NamePrefix):
			return "namePrefix"
		case s.NameSuffix != "" && strings.Contains(str, s.NameSuffix):
			return "nameSuffix"
		}
	}
	if len(way) > 1 && slices.Contains([]string{"labels", "matchLabels", "selector", "annotations"}, way[len(way)-2]) {
		for i, l := range s.Labels {
			if v, ok := l.Pairs[last]; ok && v == str {
				return "labels" + nth(i) + ".pairs[" + last + "]"
			}
		}
		if v, ok := s.CommonLabels[last]; ok && v == str {
			return "commonLabels[" + last + "]"
		}
		if v, ok := s.CommonAnnotations[last]; ok && v == str {
			return "commonAnnotations[" + last + "]"
		}
	}
	return ""
}
