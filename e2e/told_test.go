package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"headway.dev/headway/syncer"
)

// namespace is containerd's namespace of the cluster.
func (c *cluster) namespace() string {
	sum := sha256.Sum256([]byte(c.data()))
	return "headway-" + hex.EncodeToString(sum[:4])
}

// ctr runs containerd's own client in the cluster's namespace.
func (c *cluster) ctr(args ...string) string {
	c.t.Helper()
	out, err := c.run("", "ctr", append([]string{"--address", host.socket, "--namespace", c.namespace()}, args...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// pidOf is the first process of a container, whose id may be as a pod has it.
func (c *cluster) pidOf(id string) int {
	c.t.Helper()
	id = strings.TrimPrefix(id, "containerd://")
	for line := range strings.Lines(c.ctr("tasks", "list")) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == id {
			pid, err := strconv.Atoi(f[1])
			if err != nil {
				c.t.Fatal(err)
			}
			return pid
		}
	}
	c.t.Fatalf("containerd has no task %s", id)
	return 0
}

// onTheNodes is what headway drift tells of the nodes.
func (c *cluster) onTheNodes() ([]syncer.RuntimeDrift, error) {
	out, err := c.headway("drift", "-o", "json")
	if err != nil {
		return nil, err
	}
	var report syncer.DriftReport
	err = json.Unmarshal([]byte(out), &report)
	return report.Runtime, err
}

// What somebody kills by hand on a node is started again, and told.
func TestKilledContainerIsTold(t *testing.T) {
	t.Parallel()
	c := probing(t)
	commit, _ := c.deploy("web", map[string]string{"web.yaml": web("one", 1)})
	before := c.lives("app=web", 1)[0]
	if drift, err := c.onTheNodes(); err != nil || len(drift) != 0 {
		t.Fatalf("before anything: %+v %v", drift, err)
	}
	if err := syscall.Kill(c.pidOf(before.id), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	pod, _, _ := strings.Cut(before.pod, " ")
	eventually(t, "headway drift to tell of the kill", func() error {
		drift, err := c.onTheNodes()
		if err != nil {
			return err
		}
		if len(drift) != 1 {
			return fmt.Errorf("it tells %+v", drift)
		}
		return nil
	})
	drift, err := c.onTheNodes()
	if err != nil {
		t.Fatal(err)
	}
	if d := drift[0]; d.What != "killed" || d.Object != "Pod default/"+pod || d.Container != "web" || d.Node == "" || d.Time.IsZero() {
		t.Errorf("%+v", d)
	}
	contains(t, "headway drift", drift[0].Message, "ended by signal 9, which Headway did not send")
	eventually(t, "the Event", func() error {
		out, err := c.tryKubectl("get", "events", "--field-selector", "reason=ContainerKilled,involvedObject.name="+pod)
		if err == nil && !strings.Contains(out, "Container web ended by signal 9, which Headway did not send") {
			err = fmt.Errorf("there is\n%s", out)
		}
		return err
	})
	after := c.lives("app=web", 1)[0]
	if after.pod != before.pod || after.restarts != 1 {
		t.Errorf("after the kill %+v, before %+v", after, before)
	}
	c.healthy(commit)
	out, err := c.headway("drift")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "headway drift", out, "Every declared object is as commit "+commit[:10]+" says", "On the nodes:\n  Pod default/"+pod+", container web, on ")
}

// A container that somebody runs in Headway's namespace of containerd is told, left
// alone, and forgotten when it is gone.
func TestForeignContainerIsTold(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.deploy("web", map[string]string{"web.yaml": web("one", 1)})
	before := c.lives("app=web", 1)
	c.ctr("run", "--detach", "--null-io", probeName, "toy", "/probe", "serve")
	pid := c.pidOf("toy")
	told := func(when string, want int) {
		t.Helper()
		eventually(t, "headway drift "+when, func() error {
			drift, err := c.onTheNodes()
			if err == nil && (len(drift) != want || want > 0 && (drift[0].What != "foreign" ||
				!strings.HasPrefix(drift[0].Message, "container toy ("+probeName+") in containerd's namespace "+c.namespace()+" belongs to no pod"))) {
				err = fmt.Errorf("it tells %+v", drift)
			}
			return err
		})
	}
	told("to tell of the container", 1)
	events := func() string {
		return c.kubectl("get", "events", "--field-selector", "reason=ForeignContainer,involvedObject.kind=Node", "-o", "jsonpath={range .items[*]}{.count} {.message}{\"\\n\"}{end}")
	}
	eventually(t, "the Event", func() error {
		if out := events(); !strings.HasPrefix(out, "1 container toy ") {
			return fmt.Errorf("there is %q", out)
		}
		return nil
	})
	// It outlives headway, as what is Headway's does, and is told once.
	c.end(syscall.SIGKILL)
	c.start()
	c.waitReady()
	told("after a restart", 1)
	c.deploy("two", map[string]string{"web.yaml": web("one", 1) + "# nothing new\n"})
	if out := events(); strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "1 ") {
		t.Errorf("the Events are\n%s", out)
	}
	if now := c.pidOf("toy"); now != pid {
		t.Errorf("its process is %d, was %d", now, pid)
	}
	c.same("beside it", "app=web", before)
	c.ctr("tasks", "delete", "--force", "toy")
	c.ctr("containers", "delete", "toy")
	told("to forget it", 0)
}
