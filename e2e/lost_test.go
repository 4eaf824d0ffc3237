package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// join makes a node of another data dir on this machine and returns its process.
func (c *cluster) join(name string) *cluster {
	c.t.Helper()
	node := prepareCluster(c.t)
	node.addProbe()
	token, err := c.headway("token")
	if err != nil {
		c.t.Fatal(err)
	}
	args := []string{"agent", "--data-dir", node.data(), "--server", "https://" + c.listen, "--containerd", host.socket, undisturbed, "--node-name", name}
	node.args = append(slices.Clone(args), "--token", strings.TrimSpace(token))
	node.start()
	eventually(c.t, "node "+name+" to be Ready", func() error { return c.nodeIs(name, corev1.ConditionTrue) })
	node.args = args
	return node
}

// nodeIs says how a node differs from one that is Ready or lost, with what goes with
// that.
func (c *cluster) nodeIs(name string, want corev1.ConditionStatus) error {
	if _, err := c.tryKubectl("get", "node", name); err != nil {
		return err
	}
	node := get[corev1.Node](c, "node", name)
	var status corev1.ConditionStatus
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			status = cond.Status
		}
	}
	var taints []string
	for _, t := range node.Spec.Taints {
		taints = append(taints, t.Key+":"+string(t.Effect))
	}
	slices.Sort(taints)
	expected := ""
	if want == corev1.ConditionUnknown {
		expected = "node.kubernetes.io/unreachable:NoExecute node.kubernetes.io/unreachable:NoSchedule"
	}
	if got := strings.Join(taints, " "); status != want || got != expected {
		return fmt.Errorf("Ready is %q, the taints are %q", status, got)
	}
	return nil
}

// A node whose agent is killed is NotReady and tainted, and what ran on it runs on
// (R9); when the agent is back the taints are gone and nothing was restarted. Then
// the real kubectl drains it, and keeps to a PodDisruptionBudget.
func TestR9_LostNodeRecoveryAndDrain(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.args = []string{"server", "--data-dir", c.data(), "--listen", c.listen}
	c.start()
	eventually(t, "the server to answer", func() error {
		_, err := c.tryKubectl("get", "nodes")
		return err
	})
	one := c.join("one")
	c.join("two")
	c.deploy("web", map[string]string{
		"web.yaml": web("here", 4),
		"pdb.yaml": "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec:\n  minAvailable: 3\n  selector: {matchLabels: {app: web}}\n",
	})
	c.answers("here", 4)
	on := func(node string) (out []corev1.Pod) {
		for _, p := range c.pods("app=web") {
			if p.Spec.NodeName == node {
				out = append(out, p)
			}
		}
		return out
	}
	if a, b := len(on("one")), len(on("two")); a != 2 || b != 2 {
		t.Fatalf("%d pods on one, %d on two", a, b)
	}

	before := c.lives("app=web", 4)
	one.end(syscall.SIGKILL)
	eventually(t, "the node to be lost", func() error { return c.nodeIs("one", corev1.ConditionUnknown) })
	contains(t, "kubectl get nodes", c.kubectl("get", "nodes"), "NotReady")
	for _, p := range on("one") {
		if got, err := ask(p.Status.PodIP); err != nil || got != "here" {
			t.Errorf("a pod of the lost node says %q, %v", got, err)
		}
	}
	eventually(t, "its pods to be shown as not ready", func() error {
		for _, p := range on("one") {
			for _, cond := range p.Status.Conditions {
				if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
					return fmt.Errorf("pod %s is Ready", p.Name)
				}
			}
		}
		return nil
	})
	one.start()
	eventually(t, "the node to be back", func() error { return c.nodeIs("one", corev1.ConditionTrue) })
	c.answers("here", 4)
	c.same("after the node was lost", "app=web", before)

	contains(t, "kubectl get pdb", c.kubectl("get", "pdb", "web"), "ALLOWED DISRUPTIONS")
	out := c.kubectl("drain", "one", "--ignore-daemonsets", "--timeout=100s")
	contains(t, "kubectl drain", out, "node/one cordoned", "evicting pod default/web-", "node/one drained")
	if left := on("one"); len(left) != 0 {
		t.Errorf("%d pods are left", len(left))
	}
	c.answers("here", 4)
	eventually(t, "the cordon to be a taint", func() error {
		if out := c.kubectl("get", "node", "one", "-o", "jsonpath={.spec.taints[*].key}"); out != "node.kubernetes.io/unschedulable" {
			return fmt.Errorf("taints %q", out)
		}
		return nil
	})
	c.kubectl("uncordon", "one")
	eventually(t, "the taint to be gone", func() error { return c.nodeIs("one", corev1.ConditionTrue) })
}
