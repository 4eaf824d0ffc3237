package syncer

import (
	"slices"
	"testing"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Roles come from git and are healed, but for the rules of a ClusterRole that is made of
// others: those are the cluster's. What admission adds to a declared Pod is no drift, and
// a change of the Pod leaves it.
func TestAccountsAndRolesFromGit(t *testing.T) {
	const rbac = "apiVersion: rbac.authorization.k8s.io/v1\n"
	const aPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  serviceAccountName: robot\n  volumes: [{name: own, emptyDir: {}}]\n  containers: [{name: c, image: 'c:1', volumeMounts: [{name: own, mountPath: /own}]}]\n"
	files := map[string]string{
		"robot.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot}\nimagePullSecrets: [{name: hub}]\n",
		"role.yaml":  rbac + "kind: Role\nmetadata: {name: r}\nrules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n",
		"all.yaml":   rbac + "kind: ClusterRole\nmetadata: {name: all}\naggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}\nrules: []\n",
		"p.yaml":     aPod,
	}
	w := newWorld(t)
	applied := func(commit string) {
		t.Helper()
		w.push(commit)
		if st := w.status(); st.Applied != commit || st.Refused != "" {
			t.Fatalf("applied %s, refused %q: %v", st.Applied, st.Message, st.Problems)
		}
	}
	pod := func() *corev1.Pod { return w.get("pods", "default", "p").(*corev1.Pod) }
	whole := func(when string) {
		t.Helper()
		p := pod()
		if len(p.Spec.Volumes) != 2 || len(p.Spec.Containers[0].VolumeMounts) != 2 || len(p.Spec.ImagePullSecrets) != 1 || p.Spec.ImagePullSecrets[0].Name != "hub" {
			t.Errorf("%s: %+v", when, p.Spec)
		}
	}
	applied(w.repo.add("c1", "", files))
	whole("made")
	before := pod().UID

	list := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
	w.change("clusterroles", "", "all", func(o api.Object) { o.(*rbacv1.ClusterRole).Rules = list }) // as its controller does
	w.change("roles", "default", "r", func(o api.Object) { o.(*rbacv1.Role).Rules = list })
	w.settle()
	if r := w.get("clusterroles", "", "all").(*rbacv1.ClusterRole); len(r.Rules) != 1 {
		t.Error("the rules that the cluster fills in are taken away")
	}
	if r := w.get("roles", "default", "r").(*rbacv1.Role); !slices.Equal(r.Rules[0].Resources, []string{"pods"}) {
		t.Errorf("the role was not healed: %+v", r.Rules)
	}
	versions := w.versions()
	w.settle()
	for name, version := range w.versions() {
		if versions[name] != version {
			t.Errorf("%s is written again and again", name)
		}
	}
	files["p.yaml"] = edit(aPod, "c:1", "c:2")
	files["all.yaml"] = edit(files["all.yaml"], "{a: b}", "{a: c}")
	applied(w.repo.add("c2", "c1", files))
	whole("changed")
	if pod().UID != before || pod().Spec.Containers[0].Image != "c:2" {
		t.Errorf("the pod is another, or its image is %s", pod().Spec.Containers[0].Image)
	}
	if r := w.get("clusterroles", "", "all").(*rbacv1.ClusterRole); len(r.Rules) != 1 || r.AggregationRule.ClusterRoleSelectors[0].MatchLabels["a"] != "c" {
		t.Errorf("%+v", r)
	}
}
