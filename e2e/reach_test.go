package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// kubectl's ways into pods, over the WebSockets it tries first and over SPDY.
func TestKubectlReachesPods(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.deploy("web", map[string]string{"web.yaml": web("one", 1)})
	pod := c.pods("app=web")[0].Name
	for _, webSockets := range []string{"true", "false"} {
		t.Run("WebSockets "+webSockets, func(t *testing.T) {
			with := func(stdin string, args ...string) (out, errs string, code int) {
				t.Helper()
				cmd := c.reaching(webSockets, args...)
				var stdout, stderr bytes.Buffer
				cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
				if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
					t.Fatal(err)
				}
				return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
			}
			if out, errs, code := with("", "exec", pod, "--", "/probe", "env"); code != 0 || !strings.Contains(out, "PATH=/") {
				t.Errorf("exec: %d %q %q", code, out, errs)
			}
			if _, errs, code := with("", "exec", pod, "--", "/probe", "exit", "7"); code != 7 || !strings.Contains(errs, "exit code 7") {
				t.Errorf("exit code: %d %q", code, errs)
			}
			if out, errs, code := with("", "exec", pod, "--", "/probe", "nonsense"); code != 1 || out != "" || !strings.Contains(errs, `probe: unknown verb "nonsense"`) {
				t.Errorf("what it prints as an error: %d %q %q", code, out, errs)
			}
			text := strings.Repeat("a line of text\n", 50_000)
			if out, errs, code := with(text, "exec", "-i", pod, "--", "/probe", "copy"); code != 0 || out != text {
				t.Errorf("its input: %d, %d bytes of %d, %q", code, len(out), len(text), errs)
			}
			if _, errs, code := with("", "exec", pod, "--", "/absent"); code == 0 || !strings.Contains(errs, "no such file") {
				t.Errorf("a program that is not there: %d %q", code, errs)
			}
			forward := c.streamOf(c.reaching(webSockets, "port-forward", pod, ":8080"))
			defer forward.stop()
			forward.until(t, "Forwarding from 127.0.0.1:")
			at := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(strings.Join(forward.seen, ""))
			for range 2 {
				if out, err := fetch("http://" + at + "/"); err != nil || out != "one" {
					t.Errorf("port-forward: %q, %v", out, err)
				}
			}
		})
	}
	get := func(path string) (string, error) {
		return c.tryKubectl("get", "--raw", "/api/v1/namespaces/default/"+path)
	}
	if out, err := get("pods/" + pod + ":8080/proxy/host"); err != nil || out != pod {
		t.Errorf("pods/proxy: %q, %v", out, err)
	}
	if out, err := get("pods/" + pod + ":81/proxy/"); err == nil || !strings.Contains(out, "connection refused") {
		t.Errorf("pods/proxy of a port that nobody listens on: %q, %v", out, err)
	}
	c.kubectl("expose", "deployment", "web", "--port=80", "--target-port=8080")
	eventually(t, "the Service's proxy", func() error {
		_, err := get("services/web:80/proxy/")
		return err
	})
	if out, err := get("services/web:80/proxy/host"); err != nil || out != pod {
		t.Errorf("services/proxy: %q, %v", out, err)
	}
	if s := c.out.String(); !strings.Contains(s, "command in a container") || strings.Contains(s, "nonsense") {
		t.Error("the log does not say who runs commands, or says more")
	}
}

func (c *cluster) reaching(webSockets string, args ...string) *exec.Cmd {
	cmd := exec.Command(host.kubectl, append([]string{"--kubeconfig", filepath.Join(c.data(), "kubeconfig")}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+webSockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+webSockets)
	return cmd
}
