package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// writing is a pod of the probe with resources of its container, bound to a node if one
// is named.
func writing(name, node, resources string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s, what: resources}}
spec:
  nodeName: %[3]q
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: %[2]s, args: [serve], resources: %[4]s}]
`, name, probeName, node, resources)
}

// What a node gives is measured and held: a pod that writes more than it may is evicted,
// one that was bound to a node without room for it is rejected, and neither is told as
// ended while it runs; kubectl top says what is used.
func TestResources(t *testing.T) {
	t.Parallel()
	c := probing(t, "--eviction-hard", "memory.available<100Mi,nodefs.available<1Mi")
	c.deploy("resources", map[string]string{"modest.yaml": writing("modest", "", "{requests: {cpu: 10m, ephemeral-storage: 1Mi}, limits: {ephemeral-storage: 100Mi}}")})
	lives := c.lives("app=modest", 1)
	node := get[corev1.Node](c, "node", c.pods("app=modest")[0].Spec.NodeName)
	have, room := node.Status.Capacity, node.Status.Allocatable
	if have.StorageEphemeral().IsZero() || room.StorageEphemeral().Cmp(*have.StorageEphemeral()) >= 0 || room.Memory().Cmp(*have.Memory()) >= 0 {
		t.Errorf("capacity %v, allocatable %v", have, room)
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		held := false
		for _, s := range node.Status.Conditions {
			held = held || s.Type == kind && s.Status == corev1.ConditionFalse
		}
		if !held {
			t.Errorf("the node does not say that %s is False: %+v", kind, node.Status.Conditions)
		}
	}
	apply := func(name, text string) {
		t.Helper()
		file := filepath.Join(c.dir, name+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.kubectl("apply", "-f", file)
	}
	ends := func(name, reason string) corev1.Pod {
		t.Helper()
		var pod corev1.Pod
		eventually(t, "pod "+name+" to end", func() error {
			pod = get[corev1.Pod](c, "pod", name)
			if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != reason {
				return fmt.Errorf("it is %s %s: %s", pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
			}
			return nil
		})
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Running != nil {
				t.Errorf("%s has ended, and %s runs", name, s.Name)
			}
		}
		return pod
	}

	apply("greedy", writing("greedy", "", "{limits: {ephemeral-storage: 1Mi}}"))
	c.lives("app=greedy", 1)
	if _, err := c.inside("greedy", "/write?path=/big&n=3000000"); err != nil {
		t.Fatal(err)
	}
	if pod := ends("greedy", "Evicted"); pod.Status.Message != "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. " {
		t.Errorf("the message is %q", pod.Status.Message)
	}

	apply("huge", writing("huge", node.Name, "{requests: {cpu: 1000}}"))
	if pod := ends("huge", "OutOfcpu"); !strings.HasPrefix(pod.Status.Message, "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000, used: ") || len(pod.Status.ContainerStatuses) != 0 {
		t.Errorf("%+v", pod.Status)
	}
	contains(t, "kubectl get pod", c.kubectl("get", "pod", "huge"), "OutOfcpu")

	if _, err := c.inside("modest", "/burn?percent=50"); err != nil {
		t.Fatal(err)
	}
	words := strings.Fields
	eventually(t, "kubectl top to tell of a busy pod", func() error {
		out, err := c.tryKubectl(words("top pods -l app=modest --containers --no-headers")...)
		if f := words(out); err != nil || len(f) != 4 || f[0] != "modest" || f[1] != "main" || len(f[2]) < 4 || !strings.HasSuffix(f[3], "Mi") { // of three digits
			return fmt.Errorf("kubectl top pods says %q: %w", out, err)
		}
		return nil
	})
	contains(t, "kubectl top pods", c.kubectl("top", "pods"), "NAME", "CPU(cores)", "MEMORY(bytes)", "modest")
	if out, err := c.tryKubectl("top", "pods", "-l", "app=nobody"); err != nil || !strings.Contains(out, "No resources found") {
		t.Errorf("of no pod: %v %q", err, out)
	}
	contains(t, "kubectl top nodes", c.kubectl("top", "nodes"), node.Name, "%", "Mi")
	contains(t, "kubectl get nodes.metrics.k8s.io", c.kubectl("get", "nodes.metrics.k8s.io"), node.Name, "WINDOW")

	if now := c.lives("app=modest", 1); fmt.Sprint(now) != fmt.Sprint(lives) {
		t.Errorf("who keeps its limits was restarted: %v, before %v", now, lives)
	}
}
