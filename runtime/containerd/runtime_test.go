package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/resolv"
)

func all(pod *corev1.Pod) agent.LogRequest {
	return agent.LogRequest{UID: pod.UID, Container: "c", Attempt: -1, TailLines: -1}
}

func TestRunToCompletion(t *testing.T) {
	n := newNode(t)
	pod := testPod("echo", "hello", "world")
	c := n.start(pod)
	if c.Phase != agent.Running && c.Phase != agent.Exited {
		t.Fatalf("started container is %+v", c)
	}
	c = n.exit(pod.UID, c.ID)
	if c.ExitCode != 0 || c.Reason != "Completed" || c.FinishedAt.Before(c.StartedAt) || c.StartedAt.IsZero() {
		t.Errorf("exit: %+v", c)
	}
	if got := n.logs(all(pod)); got != "hello world\n" {
		t.Errorf("log: %q", got)
	}
}

func TestExitCodes(t *testing.T) {
	n := newNode(t)
	for _, tc := range []struct {
		args   []string
		code   int32
		reason string
		text   string
	}{
		{[]string{"exit", "0"}, 0, "Completed", ""},
		{[]string{"exit", "42"}, 42, "Error", ""},
		{[]string{"message", "the reason why"}, 3, "Error", "the reason why"},
	} {
		pod := testPod(tc.args...)
		c := n.exit(pod.UID, n.start(pod).ID)
		if c.ExitCode != tc.code || c.Reason != tc.reason || c.Message != tc.text {
			t.Errorf("%v: %+v", tc.args, c)
		}
	}
}

func TestStartErrors(t *testing.T) {
	n := newNode(t)
	for what, change := range map[string]func(*corev1.Container){
		"command":   func(c *corev1.Container) { c.Command = []string{"/not/there"} },
		"directory": func(c *corev1.Container) { c.WorkingDir = "/program/below" },
	} {
		pod := testPod("echo")
		change(&pod.Spec.Containers[0])
		if _, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod}); err != nil {
			t.Fatal(err)
		}
		_, err := n.StartContainer(t.Context(), n.specOf(pod, 0, 0))
		if err == nil {
			t.Errorf("%s: it started", what)
			continue
		}
		s := n.wait(pod.UID, "exit", func(s agent.SandboxState) bool {
			return len(s.Containers) == 1 && s.Containers[0].Phase == agent.Exited
		})
		if c := s.Containers[0]; c.ExitCode != 128 || c.Reason != "StartError" || c.Message == "" || c.FinishedAt.IsZero() {
			t.Errorf("%s: %+v", what, c)
		}
		// The same attempt again is the same ended attempt; the next one is another.
		again, err := n.StartContainer(t.Context(), n.specOf(pod, 0, 0))
		if err != nil || again.Reason != "StartError" {
			t.Errorf("%s: again: %+v, %v", what, again, err)
		}
		pod.Spec.Containers[0].Command, pod.Spec.Containers[0].WorkingDir = nil, ""
		c, err := n.StartContainer(t.Context(), n.specOf(pod, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		if c = n.exit(pod.UID, c.ID); c.Attempt != 1 || c.ExitCode != 0 {
			t.Errorf("%s: second attempt: %+v", what, c)
		}
	}
}

func TestEnvironmentAndUser(t *testing.T) {
	n := newNode(t)
	pod := testPod("env")
	pod.Spec.Hostname = "chosen"
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "BOTH", Value: "pod"}, {Name: "OWN", Value: "a b"}}
	n.exit(pod.UID, n.start(pod).ID)
	out := n.logs(all(pod))
	for _, want := range []string{"FROM=image\n", "BOTH=pod\n", "OWN=a b\n", "HOSTNAME=chosen\n", "PATH=/usr/local/sbin"} {
		contains(t, out, want)
	}
	if strings.Contains(out, "BOTH=image") {
		t.Error("the image's value was not overridden")
	}

	where := func(change func(*corev1.Pod)) string {
		pod := testPod("where")
		change(pod)
		n.exit(pod.UID, n.start(pod).ID)
		return n.logs(all(pod))
	}
	for _, tc := range []struct {
		change func(*corev1.Pod)
		want   string
	}{
		{func(*corev1.Pod) {}, "/work pod 0 0 [0]\n"},
		{func(p *corev1.Pod) { p.Spec.Containers[0].WorkingDir = "/tmp" }, "/tmp pod 0 0 [0]\n"},
		{func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000))}
		}, "/work pod 1000 1000 [1000 2000]\n"},
		{func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(5)), RunAsGroup: new(int64(7))}
		}, "/work pod 5 7 [7]\n"},
	} {
		if got := where(tc.change); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestSecurity(t *testing.T) {
	n := newNode(t)
	pod := testPod("write", "/here")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true)}
	if c := n.exit(pod.UID, n.start(pod).ID); c.ExitCode != 1 {
		t.Errorf("wrote to a read-only root: %+v", c)
	}
	pod = testPod("cat", "/proc/self/status")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
	}
	n.exit(pod.UID, n.start(pod).ID)
	out := n.logs(all(pod))
	contains(t, out, "NoNewPrivs:\t1")
	contains(t, out, "CapEff:\t0000000000000400")
	contains(t, out, "Seccomp:\t2")

	pod = testPod("cat", "/proc/self/status")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	n.exit(pod.UID, n.start(pod).ID)
	contains(t, n.logs(all(pod)), "Seccomp:\t0")
}

func TestOutOfMemory(t *testing.T) {
	n := newNode(t)
	pod := testPod("eat")
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
	c := n.exit(pod.UID, n.start(pod).ID)
	if c.Reason != "OOMKilled" || c.ExitCode != 137 {
		t.Errorf("%+v", c)
	}
}

func (n *node) ready(pod *corev1.Pod, want string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r, w := io.Pipe()
	go func() {
		req := all(pod)
		req.Follow = true
		_ = w.CloseWithError(n.Logs(ctx, req, w))
	}()
	var seen strings.Builder
	buf := make([]byte, 1024)
	for !strings.Contains(seen.String(), want) {
		k, err := r.Read(buf)
		seen.Write(buf[:k])
		if err != nil {
			n.t.Fatalf("waited for %q in the log: %v: %q", want, err, seen.String())
		}
	}
	_ = r.Close()
}

func TestStop(t *testing.T) {
	n := newNode(t)
	t.Run("graceful", func(t *testing.T) {
		pod := testPod("term", "100ms")
		c := n.start(pod)
		n.ready(pod, "ready")
		// Two at once: the program would end with 9 if it got two signals.
		second := make(chan error, 1)
		go func() { second <- n.StopContainer(context.Background(), c.ID, time.Hour) }()
		if err := errors.Join(n.StopContainer(t.Context(), c.ID, time.Hour), <-second); err != nil {
			t.Fatal(err)
		}
		if c = n.exit(pod.UID, c.ID); c.ExitCode != 7 {
			t.Errorf("%+v", c)
		}
		if err := n.StopContainer(t.Context(), c.ID, 0); err != nil {
			t.Error(err)
		}
	})
	t.Run("killed", func(t *testing.T) {
		pod := testPod("stubborn")
		c := n.start(pod)
		n.ready(pod, "ready")
		begin := time.Now()
		if err := n.StopContainer(t.Context(), c.ID, 300*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 300*time.Millisecond {
			t.Errorf("killed after %s", took)
		}
		if c = n.exit(pod.UID, c.ID); c.ExitCode != 137 || c.Reason != "Error" {
			t.Errorf("%+v", c)
		}
	})
	t.Run("shortened", func(t *testing.T) {
		pod := testPod("stubborn")
		c := n.start(pod)
		n.ready(pod, "ready")
		long := make(chan error, 1)
		go func() { long <- n.StopContainer(context.Background(), c.ID, time.Hour) }()
		if err := n.StopContainer(t.Context(), c.ID, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if err := <-long; err != nil {
			t.Error(err)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		if err := n.StopContainer(t.Context(), "nobody", time.Second); err != nil {
			t.Error(err)
		}
	})
}

func TestNetwork(t *testing.T) {
	n := newNode(t)
	server := testPod("serve", "8080")
	server.Name = "server"
	server.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 28080}}
	side := server.Spec.Containers[0]
	side.Name, side.Args, side.Ports = "side", []string{"get", "http://127.0.0.1:8080/"}, nil
	server.Spec.Containers = append(server.Spec.Containers, side)
	n.start(server)
	n.ready(server, "ready")
	sb := n.wait(server.UID, "address", func(s agent.SandboxState) bool { return s.Ready && len(s.IPs) == 1 })

	// A container of the same pod reaches it on loopback.
	c, err := n.StartContainer(t.Context(), n.specOf(server, 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if c = n.exit(server.UID, c.ID); c.ExitCode != 0 {
		t.Errorf("beside: %+v", c)
	}
	contains(t, n.logs(agent.LogRequest{UID: server.UID, Container: "side", Attempt: 0, TailLines: -1}), "hello from server to 127.0.0.1")

	// Another pod reaches it by its address, and by the node's port.
	for _, url := range []string{"http://" + sb.IPs[0] + ":8080/", "http://192.0.2.2:28080/"} {
		if strings.Contains(url, "192.0.2.2") && !hasAddress(t, "192.0.2.2") {
			continue
		}
		other := testPod("get", url)
		if c = n.exit(other.UID, n.start(other).ID); c.ExitCode != 0 {
			t.Errorf("from another pod to %s: %+v: %s", url, c, n.logs(all(other)))
		}
	}
	// The node reaches it on its own loopback.
	body := fetch(t, "http://127.0.0.1:28080/")
	contains(t, body, "hello from server")

	if err := n.RemoveSandbox(t.Context(), server.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := http.Get("http://127.0.0.1:28080/"); err == nil {
		t.Error("the host port leads somewhere still")
	}
}

func fetch(t testing.TB, url string) string {
	t.Helper()
	client := http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestFilesOfPod(t *testing.T) {
	n := newNode(t)
	n.Runtime.cfg.DNS = resolv.Cluster{Domain: "cluster.example", Server: netip.MustParseAddr("169.254.7.9")}
	pod := testPod("cat", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/proc/sys/kernel/hostname")
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.77", Hostnames: []string{"elsewhere"}}}
	pod.Spec.Subdomain = "peers"
	yes, two := true, "2"
	pod.Spec.SetHostnameAsFQDN = &yes
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: []string{"more.example"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &two}}}
	n.exit(pod.UID, n.start(pod).ID)
	sb := n.wait(pod.UID, "address", func(s agent.SandboxState) bool { return len(s.IPs) == 1 })
	out := n.logs(all(pod))
	const full = "pod.peers.default.svc.cluster.example"
	for _, want := range []string{
		"127.0.0.1\tlocalhost", sb.IPs[0] + "\t" + full + "\tpod\n", "192.0.2.77\telsewhere\n", "\n" + full + "\nnameserver",
		"nameserver 169.254.7.9\nsearch default.svc.cluster.example svc.cluster.example cluster.example", " more.example\noptions ndots:2\n" + full + "\n",
	} {
		contains(t, out, want)
	}
}

func TestResources(t *testing.T) {
	n := newNode(t)
	pod := testPod("sleep")
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
	}
	c := n.start(pod)
	files := map[string]string{"cpu.max": "50000 100000", "memory.max": fmt.Sprint(64 << 20)}
	if !n.cgroups.unified {
		files = map[string]string{"cpu.cfs_quota_us": "50000", "cpu.shares": "256", "memory.limit_in_bytes": fmt.Sprint(64 << 20)}
	}
	for file, want := range files {
		if got := n.readCgroup(pod.UID, c.ID, file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	// What holds for a pod as a whole, and for all pods together.
	n.cfg.PIDs, n.cfg.Memory = 100, 4<<30
	n.close()
	n.open()
	limited := testPod("sleep")
	n.start(limited)
	if got := n.readCgroup(limited.UID, "", "pids.max"); got != "100" {
		t.Errorf("a pod may have %q processes", got)
	}
	file := "memory.limit_in_bytes"
	if n.cgroups.unified {
		file = "memory.max"
	}
	if got, err := os.ReadFile(filepath.Join(n.cgroups.memory, n.cfg.CgroupParent, file)); err != nil || strings.TrimSpace(string(got)) != fmt.Sprint(4<<30) {
		t.Errorf("all pods may use %q, %v", got, err)
	}
}
