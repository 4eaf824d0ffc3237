package syncer

import (
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// storedBodies is a manifest of each stored kind without its head, and a change of
// it that Kubernetes allows in place: "old → new".
func storedBodies() map[string][2]string {
	const (
		rules   = "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]"
		binding = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects: [{kind: User, name: ada}]"
	)
	return map[string][2]string{
		"CustomResourceDefinition": {"spec: {group: example.org, names: {plural: as, kind: A}, scope: Namespaced, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}", "name: v1 → name: v2"},
		"Ingress":                  {"spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}", "number: 80 → number: 81"},
		"IngressClass":             {"spec: {controller: example.org/a, parameters: {kind: A, name: a}}", "name: a} → name: b}"},
		"NetworkPolicy":            {"spec: {podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress]}", "app: a → app: b"},
		"ClusterRole":              {rules, "verbs: [get] → verbs: [get, list]"},
		"ClusterRoleBinding":       {binding, "name: ada → name: ben"},
		"Role":                     {rules, "verbs: [get] → verbs: [get, list]"},
		"RoleBinding":              {binding, "name: ada → name: ben"},
	}
}

// TestStoredKindsFromGit: an object of each stored kind is made from a commit,
// changed in place by the next, healed, and deleted with its manifest. It is never
// waited for, and no pod comes of it.
func TestStoredKindsFromGit(t *testing.T) {
	w := newWorld(t)
	bodies := storedBodies()
	type object struct {
		kind api.Kind
		key  store.Key
		file string
	}
	var all []object
	first, second, none := map[string]string{}, map[string]string{}, map[string]string{"keep.yaml": configMap("keep", "1")}
	for _, k := range api.Kinds() {
		body, ok := bodies[k.Kind]
		if k.Told != ok {
			t.Fatalf("%s: stored %v, has a body %v", k.Kind, k.Told, ok)
		}
		if !ok {
			continue
		}
		o := object{kind: k, key: store.Key{GroupResource: k.GroupResource(), Name: "a"}, file: k.Resource + ".yaml"}
		if k.Namespaced {
			o.key.Namespace = "default"
		}
		if k.Kind == "CustomResourceDefinition" {
			o.key.Name = "as.example.org"
		}
		all = append(all, o)
		head := "apiVersion: " + k.GroupVersion().String() + "\nkind: " + k.Kind + "\nmetadata: {name: " + o.key.Name + "}\n"
		first[o.file] = head + body[0] + "\n"
		before, after, _ := strings.Cut(body[1], " → ")
		second[o.file] = head + strings.Replace(body[0], before, after, 1) + "\n"
		if body[1] != "" && first[o.file] == second[o.file] {
			t.Fatalf("%s: %q changes nothing", k.Kind, body[1])
		}
	}
	first["keep.yaml"], second["keep.yaml"] = none["keep.yaml"], none["keep.yaml"]

	applied := func(commit string) {
		t.Helper()
		w.push(commit)
		if st := w.status(); st.Applied != commit || st.Refused != "" {
			t.Fatalf("applied %s, refused %q: %v", st.Applied, st.Message, st.Problems)
		}
	}
	c1 := w.repo.add("c1", "", first)
	applied(c1)
	uid := map[store.Key]string{}
	for _, o := range all {
		live := w.st.Get(o.key)
		if live == nil {
			t.Errorf("%s was not made", o.key)
			continue
		}
		uid[o.key] = string(live.GetUID())
		from, ok := api.ProvenanceOf(live)
		if state, message := Health(live, w.st); !ok || from.Commit != c1 || live.GetUID() == "" || state != Healthy || message != "stored, not enforced by this version" {
			t.Errorf("%s: provenance %+v, %s %s", o.key, from, state, message)
		}
	}

	applied(w.repo.add("c2", "c1", second))
	for _, o := range all {
		live := w.st.Get(o.key)
		from, _ := api.ProvenanceOf(live)
		if changed := first[o.file] != second[o.file]; live == nil || string(live.GetUID()) != uid[o.key] || (from.Commit == commitID("c2")) != changed {
			t.Errorf("%s was not changed in place: %+v", o.key, from)
		}
	}
	if d := w.get("customresourcedefinitions", "", "as.example.org").(*apiextensionsv1.CustomResourceDefinition); len(d.Status.StoredVersions) != 1 || d.Status.StoredVersions[0] != "v2" {
		t.Errorf("stored versions %v", d.Status.StoredVersions)
	}
	w.change("networkpolicies", "default", "a", func(o api.Object) {
		o.(*networkingv1.NetworkPolicy).Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	})
	w.settle()
	if p := w.get("networkpolicies", "default", "a").(*networkingv1.NetworkPolicy); len(p.Spec.PolicyTypes) != 1 || p.Spec.PolicyTypes[0] != networkingv1.PolicyTypeIngress {
		t.Errorf("it was not healed: %v", p.Spec.PolicyTypes)
	}
	before := w.versions()
	w.settle()
	for name, version := range w.versions() {
		if before[name] != version {
			t.Errorf("%s is written again and again", name)
		}
	}

	applied(w.repo.say(w.repo.add("c3", "c2", none), "Allow-Delete: all"))
	for _, o := range all {
		if w.st.Get(o.key) != nil {
			t.Errorf("%s is still there", o.key)
		}
	}
}
