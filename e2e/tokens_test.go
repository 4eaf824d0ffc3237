package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// asking is a pod that runs as an account and serves what the API says to it.
func asking(name, account, args string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  serviceAccountName: %[2]s
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000}
  containers: [{name: main, image: %[3]s, args: [%[4]s]}]
`, name, account, inclusterName, args)
}

const readers = `apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader}]
`

// A pod that a push brings asks the API as clients do that are made for pods: with the
// rights of its account, by name and by address. Its token is in memory only, outlives
// the agent, and is good for nothing once the pod is gone.
func TestServiceAccountTokens(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	image, err := inclusterImage()
	if err != nil {
		t.Fatal(err)
	}
	c.addImage(inclusterName, image)
	_, port, _ := strings.Cut(c.listen, ":")
	c.args = append(c.args, "--listen", "0.0.0.0:"+port) // pods do not reach a loopback address
	c.start()
	c.waitReady()
	c.deploy("readers", map[string]string{
		"readers.yaml": readers, "a.yaml": asking("a", "reader", ""), "b.yaml": asking("b", "nobody", "kubernetes.default.svc"),
	})
	says := func(pod, path string, wanted ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("pod %s to be told of %s", pod, path), func() error {
			out, err := askPath(get[corev1.Pod](c, "pod", pod).Status.PodIP, path)
			if err != nil {
				return err
			}
			for _, w := range wanted {
				if !strings.Contains(out, w) {
					return fmt.Errorf("it says %q, not %q", out, w)
				}
			}
			return nil
		})
	}
	says("a", "/pods", "found:", "a", "b")
	says("a", "/secrets", "error:", `User "system:serviceaccount:default:reader" cannot list resource "secrets"`)
	says("b", "/pods", "error:", `User "system:serviceaccount:default:nobody" cannot list resource "pods"`)

	token := c.fileOf("a", "token")
	if token == "" {
		t.Fatal("the token of pod a is nowhere in memory")
	}
	asPod := func() (string, error) {
		return c.run("", host.kubectl, "--server", "https://"+c.listen, "--certificate-authority", filepath.Join(c.data(), "ca.crt"), "--token", token, "get", "pods", "-o", "name")
	}
	out, err := asPod()
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "kubectl with the pod's token", out, "pod/a")
	who, err := c.run("", host.kubectl, "--server", "https://"+c.listen, "--certificate-authority", filepath.Join(c.data(), "ca.crt"), "--token", token, "auth", "whoami")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "whoami", who, "system:serviceaccount:default:reader", "system:serviceaccounts:default")
	made := strings.TrimSpace(c.kubectl("create", "token", "reader", "--duration", "20m"))
	if strings.Count(made, ".") != 2 {
		t.Errorf("kubectl create token printed no token of three parts")
	}

	// The added volume is no drift, and no token is told of anywhere.
	drift, err := c.headway("drift")
	if err != nil || strings.Contains(drift, "kube-api-access") {
		t.Errorf("drift: %v\n%s", err, drift)
	}
	for what, text := range map[string]string{"the log": c.out.String(), "the events": c.kubectl("get", "events", "-A", "-o", "json"), "the pods": c.kubectl("get", "pods", "-A", "-o", "json")} {
		if strings.Contains(text, token) {
			t.Errorf("the token is in %s (R14)", what)
		}
	}
	c.nowhereOnDisk(token)

	before := c.lives("app=a", 1)
	c.end(syscall.SIGKILL)
	c.start()
	c.waitReady()
	says("a", "/pods", "found:")
	c.same("after a restart of the agent", "app=a", before)
	if again := c.fileOf("a", "token"); again != token {
		t.Error("the token was replaced for no reason")
	}
	c.deploy("a leaves", map[string]string{"a.yaml": ""})
	eventually(t, "the token of a pod that is gone to be refused", func() error {
		if out, err := asPod(); err == nil {
			return fmt.Errorf("it is taken: %s", out)
		}
		return nil
	})
}

// fileOf is what a file of a pod's volume with credentials holds on the node.
func (c *cluster) fileOf(pod, file string) string {
	c.t.Helper()
	uid := get[corev1.Pod](c, "pod", pod).UID
	found, err := filepath.Glob(fmt.Sprintf("/run/*/volumes/%s/volumes/kube-api-access-*/%s", uid, file))
	if err != nil || len(found) != 1 {
		c.t.Fatalf("the volume of pod %s: %v, %v", pod, found, err)
	}
	raw, err := os.ReadFile(found[0])
	if err != nil {
		c.t.Fatal(err)
	}
	return string(raw)
}
