package syncer

import (
	"fmt"
	"maps"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	rbacv1 "k8s.io/api/rbac/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
)

// autoscaled are the objects whose replicas are an autoscaler's matter, with who that
// is: one that d declares, or a live one but for those that d takes away. Their
// declared replicas count only when they are made (D6).
func (s *Syncer) autoscaled(d *desired) map[store.Key]store.Key {
	out := map[store.Key]store.Key{}
	add := func(key store.Key, obj api.Object) {
		a, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler)
		if !ok {
			return
		}
		if resource, name, ok := api.ScaleTarget(a); ok {
			out[store.Key{GroupResource: resource, Namespace: key.Namespace, Name: name}] = key
		}
	}
	for _, obj := range s.cfg.Store.List(api.HorizontalPodAutoscalers(), "") {
		key := store.KeyOf(obj)
		if d.manifest(key) == nil && !s.owns(obj) && obj.GetDeletionTimestamp() == nil {
			add(key, obj)
		}
	}
	for _, m := range d.autoscalers {
		add(keyOf(m), m.Object)
	}
	return out
}

// ofAutoscaler has the targets of an autoscaler looked at again that came, went or has
// another: its replicas are declared again, or are not any more.
func (s *Syncer) ofAutoscaler(e store.Event) []reconcile.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	targets := map[store.Key]int{}
	for i, obj := range []api.Object{e.Previous, e.Object} {
		if a, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler); ok {
			if resource, name, ok := api.ScaleTarget(a); ok {
				targets[store.Key{GroupResource: resource, Namespace: e.Key.Namespace, Name: name}] += i + 1
			}
		}
	}
	maps.DeleteFunc(targets, func(key store.Key, seen int) bool { return seen == 3 || s.known.manifest(key) == nil })
	for key := range targets {
		s.dirty[key] = true
	}
	if len(targets) == 0 {
		return nil
	}
	return []reconcile.Key{s.key}
}

// withoutReplicas is the manifest of an autoscaled object, which leaves its replicas as
// they are. Zero of them, declared or live, is no autoscaler's doing but switches it
// off: then the manifest counts.
func withoutReplicas(m *api.Manifest, live api.Object) *api.Manifest {
	spec, ok := m.Declared["spec"].(map[string]any)
	if _, declared := spec["replicas"]; !ok || !declared || isOff(m.Object) || live != nil && isOff(live) {
		return m
	}
	spec = maps.Clone(spec)
	delete(spec, "replicas")
	out := *m
	out.Declared = maps.Clone(m.Declared)
	out.Declared["spec"] = spec
	return &out
}

func isOff(obj api.Object) bool {
	scale, err := api.ScaleOf(obj)
	return err == nil && scale.Replicas == 0
}

// likeDeclared is a live object with the declared replicas in the place of those that
// an autoscaler has set, or the declared rules of a ClusterRole that is made of others: what is told of its drift says nothing of them.
func likeDeclared(m *api.Manifest, live api.Object) api.Object {
	if role, ok := live.(*rbacv1.ClusterRole); ok && isAggregate(m.Object) {
		out := role.DeepCopy()
		out.Rules = m.Object.(*rbacv1.ClusterRole).Rules
		return out
	}
	if live == nil || withoutReplicas(m, live) == m {
		return live
	}
	scale, err := api.ScaleOf(m.Object)
	if err != nil {
		return live
	}
	out, err := api.WithReplicas(live, scale.Replicas)
	if err != nil {
		return live
	}
	return out
}

// checkAutoscaled finds the manifests that declare replicas which an autoscaler sets:
// where either of the two changes.
func checkAutoscaled(c *scene, f *findings) {
	changed := make(map[store.Key]bool, len(c.changed))
	for _, m := range c.changed {
		changed[keyOf(m)] = true
	}
	for key, by := range c.autoscaled {
		m := c.desired.manifest(key)
		if m == nil || withoutReplicas(m, nil) == m || !changed[key] && !changed[by] {
			continue
		}
		who := titleOf(by)
		if a := c.desired.manifest(by); a != nil {
			who += " (" + place(a) + ")"
		}
		f.add(ruleAutoscaled, problem(m, "spec.replicas", fmt.Sprintf("%s sets the replicas: these count only when the object is made, and a later change of them does nothing; leave them out", who)))
	}
}
