package containerd

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

// A pod has the node's namespaces that it asks for and no other of them, also for an
// agent that was started again.
func TestNamespacesOfTheNode(t *testing.T) {
	n := newNode(t)
	for _, c := range []struct {
		name   string
		change func(*corev1.PodSpec)
		shared string // of net uts ipc pid
	}{
		{"none", func(*corev1.PodSpec) {}, ""},
		{"hostNetwork", func(s *corev1.PodSpec) { s.HostNetwork = true }, "net uts"},
		{"hostIPC", func(s *corev1.PodSpec) { s.HostIPC = true }, "ipc"},
		{"hostPID", func(s *corev1.PodSpec) { s.HostPID = true }, "pid"},
		{"all", func(s *corev1.PodSpec) { s.HostNetwork, s.HostIPC, s.HostPID = true, true, true }, "net uts ipc pid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kinds := []string{"net", "uts", "ipc", "pid"}
			args := []string{"links"}
			for _, k := range kinds {
				args = append(args, "/proc/self/ns/"+k)
			}
			pod := testPod(args...)
			c.change(&pod.Spec)
			n.exit(pod.UID, n.start(pod).ID)
			out := n.logs(all(pod))
			for _, k := range kinds {
				mine, err := os.Readlink("/proc/self/ns/" + k)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := strings.Contains(out, mine), strings.Contains(c.shared, k); got != want {
					t.Errorf("the node's %s: %v, want %v:\n%s", k, got, want, out)
				}
			}
			n.close()
			n.open()
			s := n.wait(pod.UID, "ready again", func(s agent.SandboxState) bool { return s.Ready })
			if want := 1; pod.Spec.HostNetwork && len(s.IPs) != 0 || !pod.Spec.HostNetwork && len(s.IPs) != want {
				t.Errorf("addresses: %v", s.IPs)
			}
			if err := n.RemoveSandbox(t.Context(), pod.UID); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The host name, the hosts and the resolvers of a pod with the node's network are the
// node's.
func TestFilesOfTheNode(t *testing.T) {
	n := newNode(t)
	pod := testPod("cat", "/etc/hosts", "/etc/hostname", "/proc/sys/kernel/hostname")
	pod.Spec.HostNetwork = true
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.77", Hostnames: []string{"elsewhere"}}}
	n.exit(pod.UID, n.start(pod).ID)
	out := n.logs(all(pod))
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, strings.TrimRight(string(hosts), "\n")+"\n192.0.2.77\telsewhere\n"+name+"\n"+name+"\n")
}

// A container with the node's processes takes none of its own along when it ends, and
// leaves none behind.
func TestProcessesOfTheNode(t *testing.T) {
	n := newNode(t)
	pod := testPod("sleep")
	pod.Spec.HostPID = true
	c := n.start(pod)
	if err := n.StopContainer(t.Context(), c.ID, 0); err != nil {
		t.Fatal(err)
	}
	if c = n.exit(pod.UID, c.ID); c.ExitCode != 137 {
		t.Errorf("%+v", c)
	}
}

func TestSysctls(t *testing.T) {
	n := newNode(t)
	pod := testPod("cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/net/ipv4/tcp_syncookies", "/proc/sys/kernel/shm_rmid_forced")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{
		{Name: "net.ipv4.tcp_syncookies", Value: "2"}, {Name: "kernel/shm_rmid_forced", Value: "1"},
	}}
	n.exit(pod.UID, n.start(pod).ID)
	if out := n.logs(all(pod)); out != "0\n2\n1\n" {
		t.Errorf("%q", out)
	}
	pod = testPod("cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "1024"}}}
	n.exit(pod.UID, n.start(pod).ID)
	if out := n.logs(all(pod)); out != "1024\n" {
		t.Errorf("%q", out)
	}
	pod = testPod("sleep")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.tcp_syncookies", Value: "no"}}}
	_, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod})
	if err == nil || !strings.Contains(err.Error(), "set kernel parameter net.ipv4.tcp_syncookies of pod") {
		t.Errorf("%v", err)
	}
}
