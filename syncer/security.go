package syncer

import (
	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// checkSecurity holds pods and pod templates against the Pod Security level of their
// namespace: what changes, and everything in a namespace that changes. Kubernetes
// takes such a workload and then makes none of its pods.
func checkSecurity(c *scene, f *findings) error {
	changed, spaces := map[*api.Manifest]bool{}, map[string]bool{}
	for _, m := range c.changed {
		changed[m] = true
		if m.Kind.GroupResource() == api.Namespaces() {
			spaces[m.Object.GetName()] = true
		}
	}
	list := c.changed
	if len(spaces) > 0 {
		list = c.desired.list
	}
	for _, m := range list {
		t, at := template(m.Object)
		if t == nil || !changed[m] && !spaces[m.Object.GetNamespace()] {
			continue
		}
		enforced, warned, err := admission.PodSecurity(c.namespace(m.Object.GetNamespace()), t)
		if err != nil {
			return err
		}
		if enforced != "" {
			f.add(ruleSecurity, problem(m, at+"spec", enforced))
		}
		if warned != "" {
			f.add(ruleSecurityWarned, problem(m, at+"spec", warned))
		}
	}
	return nil
}

// namespace is the one that there will be, with the labels that nobody declares, too;
// nil: none.
func (c *scene) namespace(name string) *corev1.Namespace {
	key := store.Key{GroupResource: api.Namespaces(), Name: name}
	for _, s := range c.steps {
		if s.Key == key && (s.Verb == Create || s.Verb == Update) {
			ns, _ := s.Op.Object.(*corev1.Namespace)
			return ns
		}
	}
	if ns, ok := c.live.Get(key).(*corev1.Namespace); ok {
		return ns
	}
	if m := c.desired.manifest(key); m != nil {
		ns, _ := m.Object.(*corev1.Namespace)
		return ns
	}
	return nil
}
