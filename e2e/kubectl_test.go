package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// The real kubectl, verb by verb.
func TestKubectl(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.deploy("web", map[string]string{"web.yaml": web("one", 2), "talk.yaml": job("talk", "", "env"), "chatty.yaml": other("chatty", 1)})
	says := func(args []string, wanted ...string) {
		t.Helper()
		contains(t, "kubectl "+strings.Join(args, " "), c.kubectl(args...), wanted...)
	}
	words := strings.Fields

	says(words("version"), "Client Version", "Server Version")
	says(words("api-resources"), "deployments", "deploy", "cronjobs", "configmaps", "apps/v1", "events")
	says(words("explain deployment.spec.strategy"), "rollingUpdate", "DESCRIPTION")
	says(words("get nodes"), "Ready", "VERSION")
	says(words("get all"), "pod/web-", "deployment.apps/web", "2/2", "replicaset.apps/web-", "job.batch/talk")
	says(words("get pods -o wide"), "Running", "NODE", c.pods("app=web")[0].Status.PodIP)
	says(words("describe deployment web"), "RollingUpdateStrategy", "headway.dev/commit", "ScalingReplicaSet")
	says([]string{"describe", "pod", c.pods("app=web")[0].Name}, probeName, "Events:", "Started", "Successfully assigned")
	says(words("rollout status deployment/web"), "successfully rolled out")
	says(words("rollout history deployment/web"), "REVISION")
	says(words("wait --for=condition=complete job/talk --timeout=60s"), "condition met")
	says(words("logs job/talk"), "PATH=/")
	if out := c.kubectl("logs", "job/talk", "--tail=1"); strings.Count(out, "\n") != 1 {
		t.Errorf("--tail=1 gives %q", out)
	}
	if out, err := c.tryKubectl("get", "pod", "absent"); err == nil || !strings.Contains(out, "NotFound") {
		t.Errorf("get of what is not there: %v %s", err, out)
	}

	t.Run("apply", func(t *testing.T) {
		file := filepath.Join(c.dir, "own.yaml")
		for _, step := range [][2]string{{"1", "created"}, {"1", "unchanged"}, {"2", "configured"}} {
			text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\ndata: {k: \"" + step[0] + "\"}\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			says([]string{"apply", "-f", file}, step[1])
		}
		says([]string{"apply", "--server-side", "--force-conflicts", "-f", file}, "serverside-applied")
		if got := get[corev1.ConfigMap](c, "configmap", "own").Data["k"]; got != "2" {
			t.Errorf("the value is %q", got)
		}
		says(words("diff -f "+file), "")

		editor := filepath.Join(c.dir, "editor")
		if err := os.WriteFile(editor, []byte("#!/bin/sh\nsed -i 's/k: \"2\"/k: \"3\"/' \"$1\"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := c.run("", "env", "EDITOR="+editor, host.kubectl, "--kubeconfig", filepath.Join(c.data(), "kubeconfig"), "edit", "configmap", "own"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got := get[corev1.ConfigMap](c, "configmap", "own").Data["k"]; got != "3" {
			t.Errorf("after edit the value is %q", got)
		}
		says(words("delete configmap own"), "deleted")
		if out, err := c.tryKubectl("create", "configmap", "Bad_Name"); err == nil || !strings.Contains(out, "RFC 1123") {
			t.Errorf("a bad name: %v %s", err, out)
		}
	})

	t.Run("services", func(t *testing.T) {
		says(words("get svc"), "NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE", "kubernetes   ClusterIP   10.43.0.1", "443/TCP")
		says(words("expose deployment web --port=8090 --target-port=8080"), "service/web exposed")
		ip := c.pods("app=web")[0].Status.PodIP + ":8080"
		for _, args := range []string{"get endpoints web", "describe service web"} {
			eventually(t, args, func() error {
				if out := c.kubectl(words(args)...); !strings.Contains(out, ip) {
					return fmt.Errorf("no %s in %s", ip, out)
				}
				return nil
			})
		}
		says(words("get endpointslices -l kubernetes.io/service-name=web"), "ADDRESSTYPE", "PORTS", "ENDPOINTS", "IPv4", "8080", c.pods("app=web")[0].Status.PodIP)
		says([]string{"patch", "service", "web", "-p", `{"spec":{"type":"LoadBalancer"}}`}, "patched")
		node := get[corev1.NodeList](c, "nodes").Items[0].Status.Addresses[0].Address
		says([]string{"wait", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}=" + node, "service/web", "--timeout=60s"}, "condition met")
		svc := get[corev1.Service](c, "service", "web")
		says(words("get service web"), "LoadBalancer", svc.Spec.ClusterIP, node, fmt.Sprintf("8090:%d/TCP", svc.Spec.Ports[0].NodePort))
		if out, err := c.tryKubectl("create", "service", "nodeport", "other", "--tcp=80", fmt.Sprintf("--node-port=%d", svc.Spec.Ports[0].NodePort)); err == nil || !strings.Contains(out, "Service default/web has it") {
			t.Errorf("a node port twice: %v %s", err, out)
		}
		says(words("delete service web"), "deleted")
		eventually(t, "the endpoints go", func() error {
			if out, err := c.tryKubectl("get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o", "name"); err != nil || out != "" {
				return fmt.Errorf("%v %s", err, out)
			}
			return nil
		})
	})

	t.Run("follow", func(t *testing.T) {
		logs := c.stream("logs", "-f", "deployment/chatty")
		ip := c.pods("app=chatty")[0].Status.PodIP
		if out, err := askPath(ip, "/print?n=3"); err != nil || out != "printed" {
			t.Fatalf("%q, %v", out, err)
		}
		logs.until(t, "line 00000002")
		logs.stop()
	})

	t.Run("delete pod", func(t *testing.T) {
		watch := c.stream("get", "pods", "-l", "app=web", "-w", "-o", "name")
		old := c.pods("app=web")[0].Name
		watch.until(t, old)
		says([]string{"delete", "pod", old}, "deleted")
		c.answers("one", 2)
		for _, p := range c.pods("app=web") {
			if p.Name == old {
				t.Errorf("pod %s is still there", old)
			}
			watch.until(t, p.Name)
		}
		watch.stop()
	})

	t.Run("informer", func(t *testing.T) {
		f, start := c.factory()
		seen := make(chan int32, 100)
		_, err := f.Apps().V1().Deployments().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { seen <- *o.(*appsv1.Deployment).Spec.Replicas },
			UpdateFunc: func(_, o any) { seen <- *o.(*appsv1.Deployment).Spec.Replicas },
		})
		if err != nil {
			t.Fatal(err)
		}
		start()
		// A hand's change of what is declared is drift: seen, and healed.
		says(words("scale deployment web --replicas=4"), "scaled")
		await := func(n int32) {
			t.Helper()
			wait, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			for {
				select {
				case got := <-seen:
					if got == n {
						return
					}
				case <-wait.Done():
					t.Fatalf("the informer never saw %d replicas", n)
				}
			}
		}
		await(4)
		await(2)
		c.answers("one", 2)
	})

	t.Run("strangers", func(t *testing.T) {
		out, err := c.run("", host.kubectl, "--server", "https://"+c.listen, "--insecure-skip-tls-verify", "--username", "x", "--password", "y", "get", "pods")
		if err == nil || !strings.Contains(out, "Unauthorized") && !strings.Contains(out, "logged in") {
			t.Errorf("without the certificate: %v\n%s", err, out)
		}
	})
}

// askPath is ask with a path.
func askPath(ip, path string) (string, error) { return fetch("http://" + ip + ":8080" + path) }

// stream is a kubectl that goes on until it is stopped.
type stream struct {
	cmd   *exec.Cmd
	lines chan string
	seen  []string
}

func (c *cluster) stream(args ...string) *stream {
	c.t.Helper()
	return c.streamOf(exec.Command(host.kubectl, append([]string{"--kubeconfig", filepath.Join(c.data(), "kubeconfig")}, args...)...))
}

func (c *cluster) streamOf(cmd *exec.Cmd) *stream {
	c.t.Helper()
	s := &stream{cmd: cmd, lines: make(chan string, 10_000)}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	s.cmd.Stderr = c.out
	if err := s.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(s.lines)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				s.lines <- line
			}
			if err != nil {
				if err != io.EOF {
					s.lines <- fmt.Sprintf("(%v)", err)
				}
				return
			}
		}
	}()
	return s
}

// until waits for a line that says a thing, be it an earlier one.
func (s *stream) until(t *testing.T, word string) {
	t.Helper()
	for _, l := range s.seen {
		if strings.Contains(l, word) {
			return
		}
	}
	wait, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		select {
		case l, ok := <-s.lines:
			if !ok {
				t.Fatalf("%v ended without %q:\n%s", s.cmd.Args, word, strings.Join(s.seen, ""))
			}
			s.seen = append(s.seen, l)
			if strings.Contains(l, word) {
				return
			}
		case <-wait.Done():
			t.Fatalf("%v did not say %q:\n%s", s.cmd.Args, word, strings.Join(s.seen, ""))
		}
	}
}

func (s *stream) stop() {
	s.cmd.Process.Kill()
	for range s.lines {
	}
	s.cmd.Wait()
}
