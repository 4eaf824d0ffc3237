package clusterrole

import (
	"slices"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const toView = "rbac.authorization.k8s.io/aggregate-to-view"

func rule(resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}}
}

func role(name string, labels map[string]string, resources ...string) *rbacv1.ClusterRole {
	out := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	for _, r := range resources {
		out.Rules = append(out.Rules, rule(r))
	}
	return out
}

func aggregate(name, label string, labels map[string]string) *rbacv1.ClusterRole {
	out := role(name, labels)
	out.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{label: "true"}}}}
	return out
}

func resourcesOf(r *rbacv1.ClusterRole) (out []string) {
	for _, rule := range r.Rules {
		out = append(out, rule.Resources...)
	}
	return out
}

type world struct {
	t  *testing.T
	st *store.Store
	c  *controller
}

func open(t *testing.T, builtin ...api.Object) *world {
	st := storetest.Open(t)
	return &world{t: t, st: st, c: &controller{Config{Store: st, Fence: func() store.Fence { return store.Fence{} }, Builtin: builtin, Now: time.Now}}}
}

// settle reconciles until nothing changes, and says how often something did.
func (w *world) settle() (rounds int) {
	w.t.Helper()
	for ; rounds < 10; rounds++ {
		before := w.st.Revision()
		if err := w.c.Reconcile(w.t.Context(), store.Key{}); err != nil {
			w.t.Fatal(err)
		}
		storetest.Settle(w.t, w.st)
		if w.st.Revision() == before {
			return rounds
		}
	}
	w.t.Fatal("it does not come to rest")
	return rounds
}

func (w *world) write(verb store.Verb, obj api.Object) {
	w.t.Helper()
	if verb == store.Create {
		store.Stamp(obj, time.Now())
	}
	if _, err := w.st.Commit(w.t.Context(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.t.Fatal(err)
	}
	storetest.Settle(w.t, w.st)
}

func (w *world) role(name string) *rbacv1.ClusterRole {
	w.t.Helper()
	r, ok := w.st.Get(store.Key{GroupResource: api.ClusterRoles(), Name: name}).(*rbacv1.ClusterRole)
	if !ok {
		w.t.Fatalf("no ClusterRole %s", name)
	}
	return r.DeepCopy()
}

// Roles that are made of roles that are made of others are filled, follow what comes
// and goes, and rest.
func TestRolesAreMadeOfOthers(t *testing.T) {
	const toEdit = "example.com/edit"
	w := open(t, aggregate("edit", toEdit, nil), aggregate("view", toView, map[string]string{toEdit: "true"}), role("basic", map[string]string{toView: "true"}, "pods"))
	if n := w.settle(); n > 4 {
		t.Errorf("%d rounds", n)
	}
	if got := resourcesOf(w.role("edit")); !slices.Equal(got, []string{"pods"}) {
		t.Errorf("edit has %v", got)
	}
	w.write(store.Create, role("crons", map[string]string{toView: "true"}, "cronjobs", "pods"))
	w.settle()
	if got := resourcesOf(w.role("edit")); !slices.Equal(got, []string{"pods", "cronjobs"}) {
		t.Errorf("with crons, edit has %v", got)
	}
	w.write(store.Delete, w.role("crons"))
	w.settle()
	if got := resourcesOf(w.role("edit")); !slices.Equal(got, []string{"pods"}) {
		t.Errorf("without crons, edit has %v", got)
	}
	edited := w.role("view")
	edited.Rules = append(edited.Rules, rule("secrets"))
	w.write(store.Update, edited)
	w.settle()
	if got := resourcesOf(w.role("view")); !slices.Equal(got, []string{"pods"}) {
		t.Errorf("what was written by hand stayed: %v", got)
	}
}

// What every cluster has is made, and mended without taking anything away.
func TestBuiltinRolesAreMended(t *testing.T) {
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "basic"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "basic"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "all"}}}
	w := open(t, role("basic", map[string]string{"made": "here"}, "pods", "events"), binding)
	w.settle()
	changed := w.role("basic")
	changed.Labels, changed.Rules = map[string]string{"own": "1"}, []rbacv1.PolicyRule{rule("secrets"), rule("pods")}
	w.write(store.Update, changed)
	bound := w.st.Get(store.KeyOf(binding)).DeepCopyObject().(*rbacv1.ClusterRoleBinding)
	bound.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ana"}}
	w.write(store.Update, bound)
	w.settle()
	if got := w.role("basic"); !slices.Equal(resourcesOf(got), []string{"secrets", "pods", "events"}) || got.Labels["own"] != "1" || got.Labels["made"] != "here" {
		t.Errorf("%v %v", got.Labels, resourcesOf(got))
	}
	if got := w.st.Get(store.KeyOf(binding)).(*rbacv1.ClusterRoleBinding); len(got.Subjects) != 2 {
		t.Errorf("%+v", got.Subjects)
	}
	w.write(store.Delete, w.role("basic"))
	w.settle()
	w.role("basic")

	for name, change := range map[string]func(*rbacv1.ClusterRole){
		"one that git declares": func(r *rbacv1.ClusterRole) {
			api.SetProvenance(r, api.Provenance{Source: "main", Commit: "c", Path: "r.yaml", Line: 1, Hash: "h"})
		},
		"one that asks to be left": func(r *rbacv1.ClusterRole) {
			r.Annotations = map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}
		},
	} {
		kept := w.role("basic")
		kept.Annotations, kept.Rules = nil, []rbacv1.PolicyRule{rule("secrets")}
		change(kept)
		w.write(store.Update, kept)
		w.settle()
		if got := resourcesOf(w.role("basic")); !slices.Equal(got, []string{"secrets"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
