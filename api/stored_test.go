package api_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
)

// storedCase is a manifest of a stored kind, and mistakes in it that Kubernetes'
// validation finds.
type storedCase struct {
	text     string
	mistakes map[string]string // "old → new" → the problem that it makes
}

const daemonSetText = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\nspec:" + storedTemplate

const storedTemplate = `
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: c, image: i}]}
`

func storedCases() map[string]storedCase {
	const rbac = "apiVersion: rbac.authorization.k8s.io/v1\n"
	rules := "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n"
	binding := "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects: [{kind: ServiceAccount, name: a, namespace: default}]\n"
	noName := map[string]string{"kind: ClusterRole, → kind: Nobody,": `roleRef.kind: Unsupported value: "Nobody"`}
	return map[string]storedCase{
		"CustomResourceDefinition": {"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: as.example.org}\nspec:\n  group: example.org\n  names: {plural: as, kind: A}\n  scope: Namespaced\n  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}]\n", map[string]string{"plural: as → plural: bs": `metadata.name: Invalid value: "as.example.org": must be spec.names.plural+"."+spec.group`, "{type: object, x- → {type: any, x-": "Unsupported value", "storage: true → storage: false": "spec.versions: Invalid value"}},
		"Ingress":                  {"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\nspec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}\n", map[string]string{"path: / → path: x": "spec.rules[0].http.paths[0].path: Invalid value"}},
		"IngressClass":             {"apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: a}\nspec: {controller: example.org/a}\n", map[string]string{"example.org/a → a": "spec.controller: Invalid value"}},
		"NetworkPolicy":            {"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podSelector: {}, policyTypes: [Ingress]}\n", map[string]string{"[Ingress] → [Sometimes]": "spec.policyTypes[0]: Unsupported value"}},
		"ClusterRole":              {rbac + "kind: ClusterRole\nmetadata: {name: a}\n" + rules, map[string]string{"[get] → []": "rules[0].verbs: Required value"}},
		"ClusterRoleBinding":       {rbac + "kind: ClusterRoleBinding\nmetadata: {name: a}\n" + binding, noName},
		"Role":                     {rbac + "kind: Role\nmetadata: {name: a}\n" + rules, map[string]string{"[get] → []": "rules[0].verbs: Required value"}},
		"RoleBinding":              {rbac + "kind: RoleBinding\nmetadata: {name: a}\n" + binding, noName},
	}
}

// TestStoredKinds: each stored kind decodes, is defaulted so that it validates, is
// told or refused as its row in the table says, and its mistakes are named as
// Kubernetes names them.
func TestStoredKinds(t *testing.T) {
	cases := storedCases()
	for _, k := range api.Kinds() {
		c, ok := cases[k.Kind]
		switch {
		case k.Told && !ok:
			t.Errorf("%s has no case", k.Kind)
		case !k.Told && ok:
			t.Errorf("%s is not stored any more: take its case out", k.Kind)
		}
		if !k.Told {
			continue
		}
		t.Run(k.Kind, func(t *testing.T) {
			manifests, problems := decode(c.text)
			if len(problems) > 0 || len(manifests) != 1 || len(manifests[0].Warnings) > 0 {
				t.Fatalf("problems %v, %d manifests", problems, len(manifests))
			}
			m := manifests[0]
			if wrong := m.Check(); len(wrong) > 0 {
				t.Errorf("refused: %v", wrong)
			}
			if got, ok := api.KindOf(m.Object); !ok || got.Kind != k.Kind || k.Namespaced != (m.Object.GetNamespace() != "") {
				t.Errorf("it is a %s in namespace %q", got.Kind, m.Object.GetNamespace())
			}
			api.Complete(m.Object)
			changed := m.Object.DeepCopyObject().(api.Object)
			changed.SetLabels(map[string]string{"b": "c"})
			if errs := api.ValidateUpdate(changed, m.Object); len(errs) > 0 {
				t.Errorf("a label cannot be changed: %v", errs)
			}
			refused, told := api.JudgeStored([]*api.Manifest{&m}, nil, nil, ".headway.yaml")
			allowedRefused, allowedTold := api.JudgeStored([]*api.Manifest{&m}, nil, []string{k.Kind}, ".headway.yaml")
			if len(allowedRefused) > 0 || len(allowedTold) != 1 || !strings.Contains(allowedTold[0].String(), "f.yaml:2:1: kind: "+k.Kind+" is stored, not enforced by this version of Headway: "+k.Inert) {
				t.Errorf("allowed: refused %v, told %v", allowedRefused, allowedTold)
			}
			if k.Risk == "" {
				if len(refused) > 0 || !reflect.DeepEqual(told, allowedTold) {
					t.Errorf("it has no risk: refused %v, told %v", refused, told)
				}
			} else if len(refused) != 1 || len(told) > 0 || !strings.Contains(refused[0].Reason, ", and "+k.Risk+": add `allowStored: ["+k.Kind+"]` to .headway.yaml to keep it stored and not enforced") {
				t.Errorf("it has a risk: refused %v, told %v", refused, told)
			}
			for change, want := range c.mistakes {
				before, after, _ := strings.Cut(change, " → ")
				if strings.Count(c.text, before) != 1 {
					t.Fatalf("%q does not stand once in\n%s", before, c.text)
				}
				manifests, problems := decode(strings.Replace(c.text, before, after, 1))
				for _, m := range manifests {
					problems = append(problems, m.Check()...)
				}
				if !slices.ContainsFunc(problems, func(p api.Problem) bool { return p.Line > 2 && strings.Contains(p.String(), want) }) {
					t.Errorf("%s: got %v, want %s", change, problems, want)
				}
			}
		})
	}
}

// TestStoredKindsThatMustBeAllowed holds the decision of each kind: what is believed
// to guard, to let in, to run or to keep data is asked for.
func TestStoredKindsThatMustBeAllowed(t *testing.T) {
	var asked []string
	for _, k := range api.Kinds() {
		if k.Risk != "" {
			asked = append(asked, k.Kind)
		}
	}
	slices.Sort(asked)
	want := []string{"Ingress", "NetworkPolicy"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked for: %v, want %v", asked, want)
	}
}

// TestForeignKinds: what this version has no kind for is told to who asks, whole.
func TestForeignKinds(t *testing.T) {
	const text = `apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: a}
---
apiVersion: v1
kind: List
items:
- {apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: a}, spec: [nonsense]}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- {apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: b}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClassList
items: [{metadata: {name: a}}]
---
apiVersion: authentication.k8s.io/v1
kind: TokenReview
---
apiVersion: app/v1
kind: Deployment
`
	var foreign []api.Foreign
	manifests, problems := api.DecodeFile("f.yaml", []byte(text), api.DecodeOptions{Foreign: func(f api.Foreign) { foreign = append(foreign, f) }})
	if len(manifests) != 1 || manifests[0].Kind.Kind != "ConfigMap" {
		t.Errorf("manifests %v", manifests)
	}
	compare(t, problems, []string{
		"17: kind: TokenReview is not supported by this version of Headway: a question to the API",
		`19: apiVersion: no matches for kind "Deployment" in version "app/v1": write apiVersion apps/v1`,
	})
	refused, _ := api.JudgeStored(nil, foreign, nil, "a/.headway.yaml")
	compare(t, refused, []string{
		"2: kind: Certificate (cert-manager.io/v1) is not supported by this version of Headway: it has no custom kinds: add `allowStored: [Certificate]` to a/.headway.yaml to keep it in git only",
		"8: kind: Service (serving.knative.dev/v1) is not supported by this version of Headway: it has no custom kinds (Kubernetes' own Service is written with apiVersion v1): add `allowStored: [Service.serving.knative.dev]` to a/.headway.yaml to keep it in git only",
		"10: kind: Certificate (cert-manager.io/v1) is not supported",
		"14: kind: RuntimeClass is not supported by this version of Headway: every container runs in runc: add `allowStored: [RuntimeClass]` to a/.headway.yaml to keep it in git only",
	})
	refused, told := api.JudgeStored(nil, foreign, []string{"Certificate.cert-manager.io", "Service", "RuntimeClass"}, ".headway.yaml")
	compare(t, refused, []string{"8: kind: Service (serving.knative.dev/v1) is not supported by this version of Headway: it has no custom kinds (Kubernetes' own Service is written with apiVersion v1): add Service.serving.knative.dev to allowStored in .headway.yaml to keep it in git only"})
	compare(t, told, []string{
		"2: kind: Certificate (cert-manager.io/v1) is not supported by this version of Headway: it has no custom kinds; it is kept in git only (2 objects, of which this is the first)",
		"14: kind: RuntimeClass is not supported by this version of Headway: every container runs in runc; it is kept in git only",
	})
	if refused, _ := api.JudgeStored(nil, foreign, []string{"Certificate", "Certificate.example.org"}, ".headway.yaml"); len(refused) != 2 {
		t.Errorf("refused %v", refused)
	}
	if refused, _ := api.JudgeStored(nil, foreign, []string{"Certificate.example.org"}, ".headway.yaml"); len(refused) != 4 {
		t.Errorf("a kind of another group is allowed: %v", refused)
	}
}

// A list of more foreign objects than a file may declare is cut off.
func TestForeignKindsAreBounded(t *testing.T) {
	n := 0
	text := "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- {apiVersion: a.b/v1, kind: C}\n", api.MaxDocuments+5)
	_, problems := api.DecodeFile("f.yaml", []byte(text), api.DecodeOptions{Foreign: func(api.Foreign) { n++ }})
	if n != api.MaxDocuments || len(problems) != 1 || !strings.Contains(problems[0].Reason, "more than 10000 objects") {
		t.Errorf("%d objects, %v", n, problems)
	}
}

func TestConfigAllowStored(t *testing.T) {
	c := decodeConfig(t, configHead+"allowStored: [NetworkPolicy, StatefulSet, ClusterRole, Deployment, RuntimeClass, Certificate, postgresql.acid.zalan.do, Service.serving.knative.dev]\n")
	if len(c.AllowStored) != 8 || c.AllowStored[0] != "NetworkPolicy" {
		t.Errorf("got %v", c.AllowStored)
	}
	_, problems := api.DecodeConfig(".headway.yaml", []byte(configHead+"allowStored: [7]\n"))
	compare(t, problems, []string{"3: allowStored[0]: must be a string, not a number: put it in quotes"})
	_, problems = api.DecodeConfig(".headway.yaml", []byte(configHead+`allowStored:
- networkpolicy
- Ingres
- hunter2 secret
- Certificate.
- TokenReview
- Ingress
- Ingress
`))
	compare(t, problems, []string{
		"4: allowStored[0]: is no kind of Kubernetes: did you mean NetworkPolicy?",
		"5: allowStored[1]: is no kind of Kubernetes: did you mean Ingress?",
		"6: allowStored[2]: must be a kind such as NetworkPolicy",
		"7: allowStored[3]: must be a kind such as NetworkPolicy",
		"8: allowStored[4]: TokenReview cannot be kept: a question to the API",
		"10: allowStored[6]: is named already by allowStored[5]",
	})
	for _, p := range problems {
		if strings.Contains(p.String(), "hunter2") {
			t.Errorf("the text is told: %s", p)
		}
	}
}

// What Kubernetes' API fills in on a change lets the change pass its validation.
func TestCompleteChange(t *testing.T) {
	one := func(text string) api.Object {
		t.Helper()
		manifests, problems := decode(text)
		if len(problems) > 0 || len(manifests) != 1 {
			t.Fatal(problems)
		}
		return manifests[0].Object
	}
	for kind, change := range map[string]string{
		"DaemonSet":                "image: i → image: j",
		"CustomResourceDefinition": "name: v1, → name: v2,",
	} {
		text := daemonSetText
		if kind != "DaemonSet" {
			text = storedCases()[kind].text
		}
		before, after, _ := strings.Cut(change, " → ")
		old, obj := one(text), one(strings.Replace(text, before, after, 1))
		api.Complete(old)
		obj.SetAnnotations(maps.Clone(old.GetAnnotations()))
		api.CompleteChange(obj, old)
		if errs := api.ValidateUpdate(obj, old); len(errs) > 0 {
			t.Errorf("%s: %v", kind, errs)
		}
		again := obj.DeepCopyObject().(api.Object)
		api.CompleteChange(again, obj)
		if !reflect.DeepEqual(again, obj) {
			t.Errorf("%s: completing what has not changed changes it", kind)
		}
	}
	claim := one("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {resources: {requests: {storage: 1Gi}}, accessModes: [ReadWriteOnce]}\n").(*corev1.PersistentVolumeClaim)
	claim.Status = corev1.PersistentVolumeClaimStatus{}
	api.Complete(claim)
	if claim.Status.Phase != corev1.ClaimPending {
		t.Errorf("phase %q", claim.Status.Phase)
	}
}
