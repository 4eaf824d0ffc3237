package api

import (
	"strings"
	"testing"
)

// Roles and their bindings are judged as Kubernetes judges them.
func TestRoles(t *testing.T) {
	const rbac = "apiVersion: rbac.authorization.k8s.io/v1\n"
	const rules = "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n"
	const binding = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects: [{kind: ServiceAccount, name: a, namespace: default}]\n"
	for _, c := range []struct{ kind, rest, change, want string }{
		{"ClusterRole", rules, "[get] → []", "rules[0].verbs: Required value"},
		{"ClusterRole", "aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}\nrules: []\n", "{a: b} → {a: -}", "aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value"},
		{"ClusterRoleBinding", binding, "kind: ClusterRole, → kind: Nobody,", `roleRef.kind: Unsupported value: "Nobody"`},
		{"Role", rules, "[get] → []", "rules[0].verbs: Required value"},
		{"RoleBinding", binding, "kind: ServiceAccount → kind: Nobody", `subjects[0].kind: Unsupported value: "Nobody"`},
	} {
		text := rbac + "kind: " + c.kind + "\nmetadata: {name: a}\n" + c.rest
		if got := problemsOf(t, text); len(got) > 0 {
			t.Errorf("%s: %v", c.kind, got)
		}
		old, changed, _ := strings.Cut(c.change, " → ")
		if got := problemsOf(t, strings.Replace(text, old, changed, 1)); len(got) == 0 || !strings.Contains(got[0].String(), c.want) {
			t.Errorf("%s with %s: %v, want %s", c.kind, c.change, got, c.want)
		}
	}
}
