package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Two instances side by side on one machine know nothing of each other, and the
// end of one, with all that it made, does not touch the other.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	a, b := probing(t), probing(t)
	a.deploy("a", map[string]string{"web.yaml": web("a", 2)})
	b.deploy("b", map[string]string{"web.yaml": web("b", 2)})
	a.answers("a", 2)
	b.answers("b", 2)
	before := a.lives("app=web", 2)
	b.end(syscall.SIGTERM)
	if out, err := b.headway("reset", "--yes", "--containerd", host.socket); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a.answers("a", 2)
	a.same("after the other's reset", "app=web", before)
	a.deploy("a2", map[string]string{"web.yaml": web("a2", 2)})
	a.answers("a2", 2)
}

// Server and agent as processes of their own, joined with a token that is good
// for one machine.
func TestServerAndAgent(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	node := prepareCluster(t) // the agent's data dir and process
	node.addProbe()
	c.args = []string{"server", "--data-dir", c.data(), "--listen", c.listen}
	c.start()
	eventually(t, "the server to answer", func() error {
		_, err := c.tryKubectl("get", "nodes")
		return err
	})
	token, err := c.headway("token")
	if err != nil {
		t.Fatal(err)
	}
	token = strings.TrimSpace(token)
	join := []string{"agent", "--data-dir", node.data(), "--server", "https://" + c.listen, "--containerd", host.socket, undisturbed, "--node-name", "worker"}
	node.args = append(join, "--token", token)
	node.start()
	c.waitReady()
	c.deploy("one", map[string]string{"web.yaml": web("one", 2)})
	c.answers("one", 2)
	for _, p := range c.pods("app=web") {
		if p.Spec.NodeName != "worker" {
			t.Errorf("pod %s is on %q", p.Name, p.Spec.NodeName)
		}
	}
	contains(t, "kubectl logs", c.kubectl("logs", "deployment/web")+".", ".")

	// A second machine cannot use the same token, and nothing of it is a node.
	out, err := exec.Command(host.headway, "agent", "--data-dir", filepath.Join(c.dir, "thief"), "--server", "https://"+c.listen,
		"--containerd", host.socket, "--node-name", "thief", "--token", token).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "token") {
		t.Errorf("a token was taken twice: %v\n%s", err, out)
	}
	if n := len(get[corev1.NodeList](c, "nodes").Items); n != 1 {
		t.Errorf("%d nodes", n)
	}

	// Both come back by what is in their data dirs, and the pods ran on.
	before := c.lives("app=web", 2)
	node.end(syscall.SIGKILL)
	c.end(syscall.SIGKILL)
	node.args = join
	node.start()
	c.start()
	c.waitReady()
	c.deploy("job", map[string]string{"job.yaml": job("again", "", "exit", "0")})
	c.same("after both were killed", "app=web", before)
	contains(t, "kubectl get nodes", c.kubectl("get", "nodes", "-o", "name"), fmt.Sprintf("node/%s", "worker"))
}
