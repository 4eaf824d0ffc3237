package e2e

import (
	"fmt"
	"strings"
	"testing"
)

const rbacSet = `apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-reader}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get]}
`

// Kinds that nothing acts on yet are declared from git and seen by kubectl; what is
// believed to guard is refused until the repository says that it knows; a custom
// object stays in git.
func TestStoredKinds(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.start()
	c.waitReady()
	const policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec:\n  podSelector: {matchLabels: {app: web}}\n  policyTypes: [Ingress]\n"
	const certificate = "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: web}\nspec: {secretName: web}\n"
	files := map[string]string{
		"rbac.yaml":  rbacSet,
		"class.yaml": "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast}\nprovisioner: example.org/fast\n",
	}
	_, printed := c.deploy("roles and a class", files)
	contains(t, "the push", printed,
		"warning: class.yaml:4:1: provisioner: no driver example.org/fast is run",
		"warning: rbac.yaml:6:1: kind: Role is stored, not enforced by this version",
		"kind: ClusterRole is stored, not enforced by this version", "kind: RoleBinding is stored")
	if strings.Contains(printed, "ServiceAccount is stored") {
		t.Errorf("the push warns of a ServiceAccount:\n%s", printed)
	}
	contains(t, "kubectl get", c.kubectl("get", "role,rolebinding,clusterrole,storageclass", "-o", "wide"), "role.rbac.authorization.k8s.io/reader", "Role/reader", "default/reader", "clusterrole.rbac.authorization.k8s.io/node-reader", "storageclass.storage.k8s.io/fast", "PROVISIONER")
	contains(t, "kubectl describe", c.kubectl("describe", "role", "reader"), "configmaps", "[get list]")

	// A guard that does not hold, and an object of nobody's kind.
	c.write(map[string]string{"policy.yaml": policy, "certificate.yaml": certificate})
	c.commit("a guard")
	out, err := c.push()
	if err == nil {
		t.Fatalf("a NetworkPolicy was accepted:\n%s", out)
	}
	contains(t, "the refusal", out, "refused, nothing changed",
		"policy.yaml:2:1: kind: NetworkPolicy is stored, not enforced by this version of Headway: traffic between pods is not filtered, and what it forbids passes: add `allowStored: [NetworkPolicy]` to .headway.yaml to keep it stored and not enforced",
		"certificate.yaml:2:1: kind: Certificate (cert-manager.io/v1) is not supported by this version of Headway: it has no custom kinds: add `allowStored: [Certificate]` to .headway.yaml to keep it in git only")
	if got := c.kubectl("get", "networkpolicies", "-o", "name"); got != "" {
		t.Errorf("something was made: %s", got)
	}

	c.git("reset", "--quiet", "--soft", "HEAD~1")
	commit, printed := c.deploy("we know", map[string]string{".headway.yaml": "apiVersion: headway.dev/v1\nkind: Config\nallowStored: [NetworkPolicy, Certificate]\n"})
	contains(t, "the push", printed, "warning: policy.yaml:2:1: kind: NetworkPolicy is stored, not enforced by this version", "it is kept in git only", "NetworkPolicy default/deny  stored, not enforced by this version")
	contains(t, "kubectl get", c.kubectl("get", "networkpolicy", "deny"), "POD-SELECTOR", "app=web")
	contains(t, "kubectl describe", c.kubectl("describe", "networkpolicy", "deny"), "app=web", "Policy Types: Ingress")

	// Drift of what is stored is healed, and its end is its manifest's.
	c.kubectl("patch", "networkpolicy", "deny", "--type=merge", "-p", `{"spec": {"policyTypes": ["Egress"]}}`)
	eventually(t, "the policy to be healed", func() error {
		if types := c.kubectl("get", "networkpolicy", "deny", "-o", "jsonpath={.spec.policyTypes}"); types != `["Ingress"]` {
			return fmt.Errorf("policyTypes %s", types)
		}
		return nil
	})
	if out, err = c.headway("status"); err != nil {
		t.Error(err)
	}
	contains(t, "headway status", out, commit, "stored, not enforced by this version")
	c.deploy("no guard", map[string]string{"policy.yaml": ""})
	if got := c.kubectl("get", "networkpolicies", "-o", "name"); got != "" {
		t.Errorf("it is still there: %s", got)
	}

	// By hand it is warned of, too.
	if out, err = c.tryKubectl("create", "role", "small", "--verb=get", "--resource=pods", "--warnings-as-errors"); err == nil {
		t.Errorf("no warning:\n%s", out)
	}
	contains(t, "kubectl create", out, "Warning: Role is stored, not enforced by this version")
}
