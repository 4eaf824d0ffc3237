package syncer

import (
	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
)

// checkSecurity holds pods and pod templates against the Pod Security level of their
// namespace: what changes, and everything in a namespace that changes. Kubernetes
// takes such a workload and then makes none of its pods.
func checkSecurity(c *scene, f *findings) error {
	spaces := map[string]*corev1.Namespace{} // that there will be, with the labels that nobody declares, too
	for _, obj := range c.after(api.Namespaces())[""] {
		if ns, ok := obj.(*corev1.Namespace); ok {
			spaces[ns.Name] = ns
		}
	}
	changed, moved := map[*api.Manifest]bool{}, map[string]bool{}
	for _, m := range c.changed {
		changed[m] = true
		if m.Kind.GroupResource() == api.Namespaces() {
			moved[m.Object.GetName()] = true
		}
	}
	list := c.changed
	if len(moved) > 0 {
		list = c.desired.list
	}
	for _, m := range list {
		t, at := template(m.Object)
		if t == nil || !changed[m] && !moved[m.Object.GetNamespace()] {
			continue
		}
		enforced, warned, err := admission.PodSecurity(spaces[m.Object.GetNamespace()], t)
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
