package containerd

import (
	"strings"
	"testing"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

// sharing is a pod whose containers share their processes; each argument is one's command.
func sharing(commands ...string) *corev1.Pod {
	pod := testPod()
	pod.Spec.ShareProcessNamespace = new(true)
	pod.Spec.Containers = nil
	for i, command := range commands {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: string(rune('a' + i)), Image: testImage, Args: strings.Fields(command)})
	}
	return pod
}

// begin starts one container of a pod whose sandbox is there.
func (n *node) begin(pod *corev1.Pod, index, attempt int) agent.ContainerState {
	n.t.Helper()
	c, err := n.StartContainer(n.t.Context(), n.specOf(pod, index, attempt))
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// pausePID is the number of a pod's first process on the node; 0: it has none.
func (n *node) pausePID(uid types.UID) int {
	n.t.Helper()
	list, err := n.client.TaskService().List(n.t.Context(), &tasks.ListTasksRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, p := range list.Tasks {
		if p.ID == pauseID(uid) {
			return int(p.Pid)
		}
	}
	return 0
}

// The containers of a pod with shareProcessNamespace see one another's processes and no
// others, may end and start again one by one, and leave no dead process behind; so it is
// for an agent that was started again, too.
func TestSharedProcesses(t *testing.T) {
	n := newNode(t)
	pod := sharing("sleep", "processes", "orphan")
	first := n.start(pod)
	look := func(attempt int) string {
		t.Helper()
		n.exit(pod.UID, n.begin(pod, 1, attempt).ID)
		return n.logs(agent.LogRequest{UID: pod.UID, Container: "b", Attempt: attempt, TailLines: -1})
	}
	out := look(0)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || !strings.HasPrefix(out, "1 /pause pause ") || !strings.Contains(out, " /program sleep ") || !strings.Contains(out, " /program processes ") {
		t.Errorf("a container sees %q", out)
	}
	n.exit(pod.UID, n.begin(pod, 2, 0).ID)
	if out := look(1); strings.Count(out, "\n") != 3 {
		t.Errorf("after one that left a process behind: %q", out)
	}
	n.close()
	n.open()
	n.wait(pod.UID, "ready again", func(s agent.SandboxState) bool { return s.Ready && s.Made == 0 })
	if all, err := n.Foreign(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v are foreign", all, err)
	}
	if err := n.StopContainer(t.Context(), first.ID, 0); err != nil {
		t.Fatal(err)
	}
	n.exit(pod.UID, first.ID)
	n.begin(pod, 0, 1)
	if out := look(2); !strings.HasPrefix(out, "1 /pause pause ") || strings.Count(out, " /program sleep ") != 1 {
		t.Errorf("after a restart: %q", out)
	}
	if err := n.RemoveSandbox(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if pid := n.pausePID(pod.UID); pid != 0 {
		t.Errorf("process %d is left", pid)
	}
	if found, err := n.client.ContainerService().List(n.t.Context()); err != nil || len(found) != 0 {
		t.Errorf("%v, %v are left", found, err)
	}
}

// A pod whose first process ends gets another one, and its containers start anew; also
// when it ends while no agent looks.
func TestFirstProcessThatEnds(t *testing.T) {
	n := newNode(t)
	pod := sharing("sleep", "processes")
	n.start(pod)
	for made, away := range []bool{false, true} {
		before := n.wait(pod.UID, "container", func(s agent.SandboxState) bool { return s.Ready && len(s.Containers) == made+1 })
		pid := n.pausePID(pod.UID)
		if away {
			n.close()
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if away {
			n.open()
		}
		n.wait(pod.UID, "no sandbox", func(s agent.SandboxState) bool { return !s.Ready })
		for _, c := range before.Containers {
			if c.Attempt == made {
				if c = n.exit(pod.UID, c.ID); c.ExitCode != 137 {
					t.Errorf("%+v", c)
				}
			}
		}
		if _, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod}); err != nil {
			t.Fatal(err)
		}
		if c := n.begin(pod, 0, made+1); c.Made != made+1 {
			t.Errorf("%+v", c)
		}
	}
	n.exit(pod.UID, n.begin(pod, 1, 0).ID)
	if out := n.logs(agent.LogRequest{UID: pod.UID, Container: "b", TailLines: -1}); !strings.HasPrefix(out, "1 /pause pause ") || strings.Count(out, "\n") != 3 {
		t.Errorf("%q", out)
	}
}

// Whoever may trace the first process gains nothing by it: it has no rights and no files.
func TestFirstProcessHasNothing(t *testing.T) {
	n := newNode(t)
	pod := sharing("list /proc/1/root /proc/1/root/dev/..", "cat /proc/1/status")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}}
	n.exit(pod.UID, n.start(pod).ID)
	if out := n.logs(agent.LogRequest{UID: pod.UID, Container: "a", TailLines: -1}); out != strings.Repeat("dev\npause\nproc\n<nil>\n", 2) {
		t.Errorf("its root shows %q", out)
	}
	n.exit(pod.UID, n.begin(pod, 1, 0).ID)
	out := n.logs(agent.LogRequest{UID: pod.UID, Container: "b", TailLines: -1})
	for _, want := range []string{"Uid:\t65535\t65535\t65535\t65535\n", "CapPrm:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		contains(t, out, want)
	}
	// The signals that end a program by default do not end it.
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1} {
		if err := unix.Kill(n.pausePID(pod.UID), s); err != nil {
			t.Fatal(err)
		}
	}
	n.exit(pod.UID, n.begin(pod, 1, 1).ID)
	if runs, err := n.pauseRuns(t.Context(), pod.UID); err != nil || !runs {
		t.Errorf("%v, %v", runs, err)
	}
}
