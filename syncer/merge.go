package syncer

import (
	"fmt"
	"maps"
	"reflect"
	"sort"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/schema"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// merge is the three-way patch of D6: the live object with the fields that base
// declared and next does not taken away, and the fields that next declares set.
// base nil means that nothing was declared before.
//
// Defaults travel with what was declared: a field that nobody declared, whose
// live value is what defaulting made of base and which defaulting would not make
// of next, is taken away too, and then defaulted again. Without this a Deployment
// could not go from RollingUpdate to Recreate, nor a probe lose its handler. All
// other undeclared fields, the status and the annotations of others stay.
//
// The result is a new object; live is not changed. changed lists the paths that
// differ from live, sorted; it is empty when there is nothing to write.
func merge(base, next *api.Manifest, live api.Object) (out api.Object, changed []string, err error) {
	return mergeKeeping(base, next, live, false)
}

// mergeKeeping is merge; with only, a field whose declared value is the same in
// base and next keeps its live value, drifted or not.
func mergeKeeping(base, next *api.Manifest, live api.Object, only bool) (out api.Object, changed []string, err error) {
	t, err := schema.TypeOf(next.Kind)
	if err != nil {
		return nil, nil, err
	}
	liveTyped, err := typedObject(t, next.Kind, live)
	if err != nil {
		return nil, nil, fmt.Errorf("live object: %w", err)
	}
	nextTyped, err := t.FromUnstructured(declaredFields(next))
	if err != nil {
		return nil, nil, err
	}
	stripped := liveTyped
	if base != nil && base.Hash != next.Hash {
		stripped, err = strip(t, base, next, nextTyped, liveTyped)
		if err != nil {
			return nil, nil, err
		}
	}
	if only && base != nil && base.Hash != next.Hash {
		if nextTyped, err = moved(t, base, nextTyped); err != nil {
			return nil, nil, err
		}
	}
	merged, err := stripped.Merge(nextTyped)
	if err != nil {
		return nil, nil, err
	}
	out = next.Kind.New()
	fields, ok := merged.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("merge gave %T, not an object", merged.AsValue().Unstructured())
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, out); err != nil {
		return nil, nil, err
	}
	keep(out, live)
	complete(out)
	if svc, ok := out.(*corev1.Service); ok {
		// What stays of what was given out, and what its new type has no use for. What it
		// cannot be is told by the validation, which prepares it again.
		_ = api.PrepareService(svc, live.(*corev1.Service))
	}
	api.CompleteChange(out, live)
	if equality.Semantic.DeepEqual(out, live) {
		return out, nil, nil
	}
	outTyped, err := typedObject(t, next.Kind, out)
	if err != nil {
		return nil, nil, err
	}
	changed, err = differences(liveTyped, outTyped)
	return out, changed, err
}

// strip takes away from live what base declared, or what defaulting made of it,
// and next does not.
func strip(t typed.ParseableType, base, next *api.Manifest, nextTyped, live *typed.TypedValue) (*typed.TypedValue, error) {
	baseTyped, err := t.FromUnstructured(declaredFields(base), typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("manifest at the commit in the provenance: %w", err)
	}
	baseFull, err := typedObject(t, base.Kind, base.Object)
	if err != nil {
		return nil, err
	}
	nextFull, err := typedObject(t, next.Kind, next.Object)
	if err != nil {
		return nil, err
	}
	var sets [3]*fieldpath.Set
	for i, v := range []*typed.TypedValue{baseTyped, nextTyped, baseFull} {
		if sets[i], err = v.ToFieldSet(); err != nil {
			return nil, err
		}
	}
	before, after, defaulted := sets[0], sets[1], sets[2]
	named := after.EnsureNamedFieldsAreMembers(nextTyped.Schema(), nextTyped.TypeRef())

	moved, err := baseFull.Compare(nextFull)
	if err != nil {
		return nil, err
	}
	drifted, err := baseFull.Compare(live)
	if err != nil {
		return nil, err
	}
	gone := before.Difference(named)
	stale := moved.Removed.Leaves().Union(moved.Modified).Difference(named).Difference(drifted.Modified)
	out := live.RemoveItems(gone.Union(stale).Difference(kept(next.Kind)))

	// What held only these fields is empty now and goes with them.
	holders := before.Union(defaulted).EnsureNamedFieldsAreMembers(nextTyped.Schema(), nextTyped.TypeRef()).Difference(named)
	var paths []fieldpath.Path
	holders.Iterate(func(p fieldpath.Path) { paths = append(paths, p.Copy()) })
	sort.SliceStable(paths, func(i, j int) bool { return len(paths[i]) > len(paths[j]) })
	for _, p := range paths {
		if v, ok := at(out.AsValue().Unstructured(), p); ok && hollow(v) {
			out = out.RemoveItems(fieldpath.NewSet(p))
		}
	}
	return out, nil
}

// moved is the part of next whose declared value is not the one in base, with the
// keys that its list items are found by.
func moved(t typed.ParseableType, base *api.Manifest, next *typed.TypedValue) (*typed.TypedValue, error) {
	before, err := t.FromUnstructured(declaredFields(base), typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("manifest at the commit in the provenance: %w", err)
	}
	c, err := before.Compare(next)
	if err != nil {
		return nil, err
	}
	return next.ExtractItems(c.Added.Union(c.Modified), typed.WithAppendKeyFields()), nil
}

// kept are the fields whose live value stays when a manifest no longer declares
// them, so that an autoscaler can be handed the replicas.
func kept(k api.Kind) *fieldpath.Set {
	switch k.Kind {
	case "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet":
		return fieldpath.NewSet(fieldpath.MakePathOrDie("spec", "replicas"))
	}
	return fieldpath.NewSet()
}

// hollow says whether v has nothing in it.
func hollow(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return v == nil
	}
	for _, e := range m {
		if !hollow(e) {
			return false
		}
	}
	return true
}

// at finds the value at a path of named fields and list keys.
func at(v any, path fieldpath.Path) (any, bool) {
	for _, pe := range path {
		switch {
		case pe.FieldName != nil:
			m, ok := v.(map[string]any)
			if !ok {
				return nil, false
			}
			if v, ok = m[*pe.FieldName]; !ok {
				return nil, false
			}
		case pe.Key != nil:
			item, ok := itemWith(v, pe)
			if !ok {
				return nil, false
			}
			v = item
		default:
			return nil, false
		}
	}
	return v, true
}

func itemWith(list any, pe fieldpath.PathElement) (any, bool) {
	items, ok := list.([]any)
	if !ok {
		return nil, false
	}
next:
	for _, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		for _, f := range *pe.Key {
			v, ok := m[f.Name]
			if ok && fmt.Sprint(v) != fmt.Sprint(f.Value.Unstructured()) {
				continue next
			}
		}
		return item, true
	}
	return nil, false
}

// assigned are the metadata fields that the cluster fills; a manifest that was
// copied out of a cluster may have them, and they mean nothing there.
func assigned() []string {
	return []string{"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
}

// declaredFields is what the manifest wants of the live object: the document
// without its status and what only the cluster can say.
func declaredFields(m *api.Manifest) map[string]any {
	out := make(map[string]any, len(m.Declared))
	for k, v := range m.Declared {
		if k != "status" {
			out[k] = v
		}
	}
	meta, _ := m.Declared["metadata"].(map[string]any)
	own := make(map[string]any, len(meta))
	for k, v := range meta {
		own[k] = v
	}
	for _, f := range assigned() {
		delete(own, f)
	}
	own["name"] = m.Object.GetName()
	if m.Kind.Namespaced {
		own["namespace"] = m.Object.GetNamespace()
	}
	out["metadata"] = own
	out["apiVersion"], out["kind"] = m.Kind.GroupVersion().String(), m.Kind.Kind
	return withoutTemplateStatus(out)
}

// withoutTemplateStatus is the fields without the status of claims' templates, which are
// whole claims to Kubernetes. The argument is not changed.
func withoutTemplateStatus(fields map[string]any) map[string]any {
	spec, _ := fields["spec"].(map[string]any)
	templates, ok := spec["volumeClaimTemplates"].([]any)
	if !ok {
		return fields
	}
	bare := make([]any, len(templates))
	for i, t := range templates {
		bare[i] = t
		if claim, ok := t.(map[string]any); ok && claim["status"] != nil {
			claim = maps.Clone(claim)
			delete(claim, "status")
			bare[i] = claim
		}
	}
	fields, spec = maps.Clone(fields), maps.Clone(spec)
	spec["volumeClaimTemplates"], fields["spec"] = bare, spec
	return fields
}

// typedObject is obj as the schema sees it, without status and managedFields.
func typedObject(t typed.ParseableType, k api.Kind, obj api.Object) (*typed.TypedValue, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	delete(fields, "status")
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	fields["apiVersion"], fields["kind"] = k.GroupVersion().String(), k.Kind
	return t.FromUnstructured(withoutTemplateStatus(fields), typed.AllowDuplicates)
}

// complete defaults a merged object. A new Job without labels gets those of its
// template, which by now have our own among them.
func complete(obj api.Object) {
	labels := obj.GetLabels()
	api.Scheme().Default(obj)
	if _, ok := obj.(*batchv1.Job); ok {
		obj.SetLabels(labels)
	}
}

// keep puts back on out what never goes through the merge.
func keep(out, live api.Object) {
	copied := live.DeepCopyObject().(api.Object)
	out.SetManagedFields(copied.GetManagedFields())
	out.GetObjectKind().SetGroupVersionKind(live.GetObjectKind().GroupVersionKind())
	from, to := reflect.ValueOf(copied).Elem().FieldByName("Status"), reflect.ValueOf(out).Elem().FieldByName("Status")
	if from.IsValid() && to.IsValid() {
		to.Set(from)
	}
}

// differences names the fields in which two objects differ, sorted.
func differences(a, b *typed.TypedValue) ([]string, error) {
	c, err := a.Compare(b)
	if err != nil {
		return nil, err
	}
	var out []string
	c.Removed.Union(c.Modified).Union(c.Added).Leaves().Iterate(func(p fieldpath.Path) {
		s := p.String()
		if len(s) > 0 && s[0] == '.' {
			s = s[1:]
		}
		out = append(out, s)
	})
	sort.Strings(out)
	if len(out) == 0 {
		// Equal to the schema and not to Kubernetes: a list in another order.
		out = []string{"the order of a list"}
	}
	return out, nil
}
