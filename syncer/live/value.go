package live

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

func isQuantity(ref schema.TypeRef) bool {
	return ref.NamedType != nil && *ref.NamedType == "io.k8s.apimachinery.pkg.api.resource.Quantity"
}

// equal says whether two decoded values mean the same. An empty list or map is
// none at all; an empty object is not, as it may stand for a choice (emptyDir).
func (c *comparer) equal(ref schema.TypeRef, a, b any) bool {
	if isQuantity(ref) {
		return sameQuantity(a, b)
	}
	atom := c.resolve(ref)
	am, aIsMap := a.(map[string]any)
	bm, bIsMap := b.(map[string]any)
	al, aIsList := a.([]any)
	bl, bIsList := b.([]any)
	switch {
	case aIsMap || bIsMap:
		if !(aIsMap && bIsMap) && (a != nil && b != nil || atom.Map == nil || len(atom.Map.Fields) > 0) {
			return false
		}
		for name := range union(am, bm) {
			if !c.equal(child(atom.Map, name), am[name], bm[name]) {
				return false
			}
		}
		return true
	case aIsList || bIsList:
		if len(al) != len(bl) || a != nil && !aIsList || b != nil && !bIsList {
			return false
		}
		for i := range al {
			if !c.equal(element(atom), al[i], bl[i]) {
				return false
			}
		}
		return true
	}
	return sameScalar(a, b)
}

func element(atom schema.Atom) schema.TypeRef {
	if atom.List == nil {
		return schema.TypeRef{}
	}
	return atom.List.ElementType
}

func union(a, b map[string]any) map[string]bool {
	out := make(map[string]bool, len(a)+len(b))
	for k := range a {
		out[k] = true
	}
	for k := range b {
		out[k] = true
	}
	return out
}

func sameScalar(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y && sameInt(a, b)
	}
	return a == b
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// sameInt tells integers apart that are the same as floats.
func sameInt(a, b any) bool {
	x, okX := a.(int64)
	y, okY := b.(int64)
	return !okX || !okY || x == y
}

func sameQuantity(a, b any) bool {
	x, okX := a.(string)
	y, okY := b.(string)
	if !okX || !okY {
		return sameScalar(a, b)
	}
	p, errX := resource.ParseQuantity(x)
	q, errY := resource.ParseQuantity(y)
	if errX != nil || errY != nil {
		return x == y
	}
	return p.Cmp(q) == 0
}

// project writes the live value is in the form of raw: what means the same is
// spelled as it is declared, and defaults that nobody declared are left out.
func (c *comparer) project(ref schema.TypeRef, raw, want, is any) any {
	if raw != nil && c.equal(ref, want, is) {
		return raw
	}
	atom := c.resolve(ref)
	switch live := is.(type) {
	case map[string]any:
		rawMap, ok := raw.(map[string]any)
		if !ok {
			return is
		}
		wantMap, _ := want.(map[string]any)
		out := map[string]any{}
		for name, v := range live {
			if v == nil {
				continue
			}
			r, declared := rawMap[name]
			if !declared && c.equal(child(atom.Map, name), wantMap[name], v) {
				continue
			}
			out[name] = c.project(child(atom.Map, name), r, wantMap[name], v)
		}
		return out
	case []any:
		rawList, ok := raw.([]any)
		wantList, _ := want.([]any)
		if !ok || len(rawList) != len(wantList) {
			return is
		}
		out := make([]any, 0, len(live))
		used := 0 // the declared items up to here have found their place
		for i, v := range live {
			at := -1
			for j := used; j < len(wantList) && at < 0; j++ {
				if c.equal(element(atom), wantList[j], v) {
					at = j
				}
			}
			switch {
			case at >= 0:
				used = at + 1
				out = append(out, rawList[at])
			case len(live) == len(rawList):
				out = append(out, c.project(element(atom), rawList[i], wantList[i], v))
			default:
				out = append(out, v)
			}
		}
		return out
	case string:
		if _, ok := number(raw); ok && isQuantity(ref) {
			if n, err := strconv.ParseInt(live, 10, 64); err == nil {
				return n
			}
		}
	}
	return is
}
