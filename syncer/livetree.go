package syncer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/live"
	"headway.dev/headway/syncer/render"
	corev1 "k8s.io/api/core/v1"
)

// LiveEdits is for LiveConfig.Edits: the files of a commit's tree that have to be
// others so that they declare what is live. What cannot be written into a file is
// left out; the commit's message says it all the same.
func (c *Checkout) LiveEdits(ctx context.Context, commit string, drift []Shown) ([]git.Edit, error) {
	var drifts []*live.Drift
	var unwritten []api.Problem
	for _, s := range drift {
		if !s.Deleted && s.Live == nil {
			unwritten = append(unwritten, problem(s.Manifest, "", fmt.Sprintf("the live values of %s cannot be written: the live object has more than %s bytes", titleOf(keyOf(s.Manifest)), thousands(api.MaxDriftLive))))
			continue
		}
		d, err := s.drift()
		if err != nil {
			return nil, err
		}
		if d != nil {
			drifts = append(drifts, d)
		}
	}
	changed := map[string][]byte{}
	if len(drifts) > 0 {
		tree, err := c.Objects.Tree(ctx, commit, "")
		if err != nil {
			return nil, err
		}
		files, err := render.NewFiles(treeAt{ctx, tree, c.Objects})
		if err != nil {
			return nil, err
		}
		var problems []api.Problem
		if changed, problems, err = live.Tree(files, drifts); err != nil {
			return nil, err
		}
		unwritten = append(unwritten, problems...)
	}
	if c.Unwritten != nil && len(unwritten) > 0 {
		c.Unwritten(unwritten)
	}
	var edits []git.Edit
	for _, path := range slices.Sorted(maps.Keys(changed)) {
		edits = append(edits, git.Edit{Path: path, Content: changed[path], Delete: changed[path] == nil})
	}
	return edits, nil
}

// drift is what package live makes files of; nil when there is nothing to write.
func (s Shown) drift() (*live.Drift, error) {
	m := s.Manifest
	if s.Deleted {
		return live.Compare(m, nil)
	}
	if want, ok := m.Object.(*corev1.Secret); ok {
		return live.Compare(m, secretLike(want, s.Live))
	}
	raw, err := json.Marshal(s.Live)
	if err != nil {
		return nil, err
	}
	obj := m.Kind.New()
	if err := json.Unmarshal(raw, obj); err != nil {
		return nil, fmt.Errorf("read what was live of %s: %w", titleOf(keyOf(m)), err)
	}
	return live.Compare(m, obj)
}

// What a record has in the place of a Secret's value.
const (
	sameValue  = "same"
	otherValue = "other"
)

// secretShape is what a record keeps of a live Secret: which of its values and
// annotations are not as declared, and none of them (R14); its labels, its type, and
// whether it is immutable.
func secretShape(m *api.Manifest, obj api.Object) map[string]any {
	want, ok := m.Object.(*corev1.Secret)
	is, also := obj.(*corev1.Secret)
	if !ok || !also {
		return nil
	}
	labels := map[string]any{}
	for name := range want.Labels {
		if value, there := is.Labels[name]; there {
			labels[name] = value
		}
	}
	return map[string]any{
		"data": otherThan(want.Data, is.Data, func(a, b []byte) bool { return string(a) == string(b) }),
		"metadata": map[string]any{
			"labels":      labels,
			"annotations": otherThan(want.Annotations, is.Annotations, func(a, b string) bool { return a == b }),
		},
		"type":      string(is.Type),
		"immutable": is.Immutable != nil && *is.Immutable,
	}
}

// otherThan says which of the wanted values are others; one that is not there is
// left out.
func otherThan[V any](want, is map[string]V, equal func(a, b V) bool) map[string]any {
	out := map[string]any{}
	for name, value := range want {
		switch found, there := is[name]; {
		case !there:
		case equal(found, value):
			out[name] = sameValue
		default:
			out[name] = otherValue
		}
	}
	return out
}

// secretLike is the declared Secret with other values where the live one has them.
// A record of an earlier version has the data alone: the rest is as declared.
func secretLike(want *corev1.Secret, shape map[string]any) *corev1.Secret {
	out := want.DeepCopy()
	data, _ := shape["data"].(map[string]any)
	spoil(out.Data, data, func(v []byte) []byte { return append([]byte("not "), v...) })
	if meta, ok := shape["metadata"].(map[string]any); ok {
		annotations, _ := meta["annotations"].(map[string]any)
		spoil(out.Annotations, annotations, func(v string) string { return "not " + v })
		labels, _ := meta["labels"].(map[string]any)
		for name := range out.Labels {
			value, there := labels[name].(string)
			if out.Labels[name] = value; !there {
				delete(out.Labels, name)
			}
		}
	}
	if of, ok := shape["type"].(string); ok {
		out.Type = corev1.SecretType(of)
	}
	if immutable, ok := shape["immutable"].(bool); ok && (immutable || out.Immutable != nil) {
		out.Immutable = &immutable
	}
	return out
}

// spoil makes those values others that a shape says are, and takes those away that
// it does not have.
func spoil[V any](values map[string]V, shape map[string]any, other func(V) V) {
	for name, value := range values {
		switch shape[name] {
		case sameValue:
		case otherValue:
			values[name] = other(value)
		default:
			delete(values, name)
		}
	}
}
