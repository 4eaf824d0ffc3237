package syncer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// checkSelectors finds the Services that select no pod that is declared or live:
// among those that change, and among those in whose namespace pods go away or get
// other labels.
func checkSelectors(c *scene, f *findings) {
	moved := movedLabels(c.steps)
	changed := make(map[*api.Manifest]bool, len(c.changed))
	for _, m := range c.changed {
		changed[m] = true
		c.checkService(m, f)
	}
	if len(moved) == 0 {
		return
	}
	for _, m := range c.desired.list {
		if !changed[m] && moved[m.Object.GetNamespace()] {
			c.checkService(m, f)
		}
	}
}

// movedLabels are the namespaces in which steps take labels of pods away.
func movedLabels(steps []Step) map[string]bool {
	out := map[string]bool{}
	for _, s := range steps {
		if s.Live == nil || s.Verb != Delete && s.Verb != Update {
			continue
		}
		before, _ := template(s.Live)
		if before == nil {
			continue
		}
		if s.Verb == Update && s.Op.Object != nil {
			if after, _ := template(s.Op.Object); after != nil && maps.Equal(before.Labels, after.Labels) {
				continue
			}
		}
		out[s.Key.Namespace] = true
	}
	return out
}

func (c *scene) checkService(m *api.Manifest, f *findings) {
	s, ok := m.Object.(*corev1.Service)
	if !ok || len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	if slices.ContainsFunc(c.podLabels(s.Namespace), func(l map[string]string) bool { return selector.Matches(labels.Set(l)) }) {
		return
	}
	f.add(ruleSelectsNothing, problem(m, "spec.selector", fmt.Sprintf("%s matches no pod of namespace %s, in this commit or in the cluster: compare it with the labels of the pods' template",
		selectorText(s.Spec.Selector), s.Namespace)))
}

func selectorText(selector map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(selector)) {
		out = append(out, k+"="+selector[k])
	}
	return strings.Join(out, ",")
}

// podLabels are the labels of the pods that a namespace will have: of what is
// declared, and of what is live and neither declared nor going away. What a
// controller has made is its owner's matter.
func (c *scene) podLabels(namespace string) []map[string]string {
	out, known := c.pods[namespace]
	if known {
		return out
	}
	for _, m := range c.desired.list {
		if t, _ := template(m.Object); t != nil && m.Object.GetNamespace() == namespace {
			out = append(out, t.Labels)
		}
	}
	for _, k := range api.Kinds() {
		if t, _ := template(k.New()); t == nil {
			continue
		}
		for _, obj := range c.live.List(k.GroupResource(), namespace) {
			key := store.Key{GroupResource: k.GroupResource(), Namespace: namespace, Name: obj.GetName()}
			_, leaves := c.gone[key]
			if metav1.GetControllerOfNoCopy(obj) == nil && !leaves && c.desired.manifest(key) == nil && obj.GetDeletionTimestamp() == nil {
				t, _ := template(obj)
				out = append(out, t.Labels)
			}
		}
	}
	if c.pods == nil {
		c.pods = map[string][]map[string]string{}
	}
	c.pods[namespace] = out
	return out
}
