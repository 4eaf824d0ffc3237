package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// kubectl attach, kubectl run -i and kubectl debug, over the WebSockets that kubectl tries
// first and over SPDY; what is said stands in the log, too.
func TestKubectlAttachesToContainers(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.deploy("reads", map[string]string{"reads.yaml": fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: reads}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: %s, args: [copy], stdin: true}
`, probeName)})
	with := func(webSockets, stdin string, args ...string) (out, errs string, code int) {
		t.Helper()
		cmd := c.reaching(webSockets, args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	for i, webSockets := range []string{"true", "false"} {
		// It goes on after its input has ended, as long as the container runs.
		attached := c.reaching(webSockets, "attach", "-i", "reads")
		attached.Stdin = strings.NewReader(fmt.Sprintf("line %d\n", i))
		s := c.streamOf(attached)
		s.until(t, fmt.Sprintf("line %d", i))
		s.stop()
		if out, errs, code := with(webSockets, "said once\n", "run", fmt.Sprintf("once-%d", i), "--image="+probeName, "-i", "--rm", "--restart=Never", "--", "copy"); code != 0 || !strings.Contains(out, "said once") {
			t.Errorf("kubectl run: %d %q %q", code, out, errs)
		}
	}
	eventually(t, "the log", func() error {
		if out, err := c.tryKubectl("logs", "reads"); err != nil || !strings.Contains(out, "line 0\nline 1\n") {
			return fmt.Errorf("%q, %v", out, err)
		}
		return nil
	})

	// A killed Headway leaves the container's input as it is.
	before := c.pods("")[0].Status.ContainerStatuses[0].ContainerID
	c.end(syscall.SIGKILL)
	c.start()
	c.waitReady()
	attached := c.reaching("true", "attach", "-i", "reads")
	attached.Stdin = strings.NewReader("after\n")
	s := c.streamOf(attached)
	s.until(t, "after")
	s.stop()

	// A container for looking at another one's processes comes to the pod that runs.
	// kubectl leaves its input open, so it stays when who looks goes away.
	debug := c.reaching("true", "debug", "-i", "reads", "--image="+probeName, "--target=main", "-c", "look", "--", "/probe", "copy")
	debug.Stdin = strings.NewReader("debugged\n")
	s = c.streamOf(debug)
	s.until(t, "debugged")
	s.stop()
	eventually(t, "the debugger to run", func() error {
		p := c.pods("")[0]
		if list := p.Status.EphemeralContainerStatuses; len(list) != 1 || list[0].State.Running == nil {
			return fmt.Errorf("%+v", list)
		}
		if now := p.Status.ContainerStatuses[0]; now.ContainerID != before || p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the pod is another: %+v", now)
		}
		return nil
	})
	if out := c.kubectl("logs", "reads", "-c", "look"); out != "debugged\n" {
		t.Errorf("the debugger's log: %q", out)
	}
}
