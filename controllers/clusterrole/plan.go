package clusterrole

import (
	"slices"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// observed is the state that a plan decides on.
type observed struct {
	builtin []api.Object
	roles   []*rbacv1.ClusterRole
	live    map[store.Key]api.Object // roles and bindings
}

// Step is one decided change.
type Step struct {
	Verb   store.Verb
	Object api.Object
	Reason string
}

// plan decides what the cluster's roles need now.
func plan(o observed) []Step {
	var steps []Step
	touched := map[store.Key]bool{}
	for _, wanted := range o.builtin {
		key := store.KeyOf(wanted)
		switch live := o.live[key]; {
		case live == nil:
			steps = append(steps, Step{Verb: store.Create, Object: wanted.DeepCopyObject().(api.Object), Reason: "every cluster has it"})
		case left(live):
		default:
			if next := mended(live, wanted); !equality.Semantic.DeepEqual(next, live) {
				touched[key] = true
				steps = append(steps, Step{Verb: store.Update, Object: next, Reason: "it lacks what it has in every cluster"})
			}
		}
	}
	for _, role := range o.roles {
		if role.AggregationRule == nil || role.DeletionTimestamp != nil || touched[store.KeyOf(role)] {
			continue // what is written wakes us again
		}
		rules, ok := aggregated(role, o.roles)
		if !ok || equality.Semantic.DeepEqual(rules, role.Rules) {
			continue
		}
		next := role.DeepCopy()
		next.Rules = rules
		steps = append(steps, Step{Verb: store.Update, Object: next, Reason: "the roles that it is made of changed"})
	}
	return steps
}

// left says whether a built-in object is somebody else's to keep.
func left(live api.Object) bool {
	_, declared := api.ProvenanceOf(live)
	return declared || live.GetDeletionTimestamp() != nil || live.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false"
}

// mended is a built-in object with everything that it has to have, and what it has
// beside.
func mended(live, wanted api.Object) api.Object {
	out := live.DeepCopyObject().(api.Object)
	out.SetLabels(labels.Merge(wanted.GetLabels(), live.GetLabels()))
	out.SetAnnotations(labels.Merge(wanted.GetAnnotations(), live.GetAnnotations()))
	switch to := out.(type) {
	case *rbacv1.ClusterRole:
		from, ok := wanted.(*rbacv1.ClusterRole)
		if !ok {
			return live
		}
		if from.AggregationRule != nil {
			to.AggregationRule = withSelectors(to.AggregationRule, from.AggregationRule)
			return out
		}
		_, missing := validation.Covers(to.Rules, from.Rules)
		to.Rules = append(to.Rules, missing...)
	case *rbacv1.ClusterRoleBinding:
		from, ok := wanted.(*rbacv1.ClusterRoleBinding)
		if !ok || to.RoleRef != from.RoleRef { // another binding under its name
			return live
		}
		for _, s := range from.Subjects {
			if !slices.Contains(to.Subjects, s) {
				to.Subjects = append(to.Subjects, s)
			}
		}
	}
	return out
}

// withSelectors is a rule with the selectors of another added.
func withSelectors(own, more *rbacv1.AggregationRule) *rbacv1.AggregationRule {
	out := own.DeepCopy()
	if out == nil {
		out = &rbacv1.AggregationRule{}
	}
	for _, s := range more.ClusterRoleSelectors {
		if !slices.ContainsFunc(out.ClusterRoleSelectors, func(x metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(x, s) }) {
			out.ClusterRoleSelectors = append(out.ClusterRoleSelectors, s)
		}
	}
	return out
}

// aggregated are the rules of the roles that a role selects, each once, in the order of
// their names under each selector; false when a selector says nothing.
func aggregated(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) (rules []rbacv1.PolicyRule, ok bool) {
	sorted := slices.SortedFunc(slices.Values(all), func(x, y *rbacv1.ClusterRole) int { return strings.Compare(x.Name, y.Name) })
	rules = []rbacv1.PolicyRule{}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, false
		}
		for _, r := range sorted {
			if r.Name == role.Name || !selector.Matches(labels.Set(r.Labels)) {
				continue
			}
			for _, rule := range r.Rules {
				if !slices.ContainsFunc(rules, func(x rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(x, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, true
}
