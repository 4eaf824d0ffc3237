package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

func hasAddress(t testing.TB, ip string) bool {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if strings.HasPrefix(a.String(), ip+"/") {
			return true
		}
	}
	return false
}

func (n *node) readCgroup(uid types.UID, id, file string) string {
	n.t.Helper()
	for _, root := range n.cgroups.roots {
		if data, err := os.ReadFile(filepath.Join(root, n.cgroup(uid, id), file)); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	return "not there"
}

func running(s agent.SandboxState) bool {
	return len(s.Containers) > 0 && s.Containers[0].Phase == agent.Running
}

func TestR8_AdoptionAfterRestartOfTheAgent(t *testing.T) {
	n := newNode(t)
	pod := testPod("tick")
	before := n.start(pod)
	dead := testPod("exit", "4")
	n.exit(dead.UID, n.start(dead).ID)
	sb := n.wait(pod.UID, "ready", func(s agent.SandboxState) bool { return s.Ready })
	n.close()

	n.open()
	s := n.wait(pod.UID, "running", running)
	after := s.Containers[0]
	if after.ID != before.ID || !after.StartedAt.Equal(before.StartedAt) || after.PID != before.PID || after.SpecHash != "h" {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	if !s.Ready || fmt.Sprint(s.IPs) != fmt.Sprint(sb.IPs) || !s.CreatedAt.Equal(sb.CreatedAt) || s.Name != "pod" {
		t.Errorf("sandbox before %+v after %+v", sb, s)
	}
	// Asking for what exists changes nothing.
	if _, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod}); err != nil {
		t.Fatal(err)
	}
	same, err := n.StartContainer(t.Context(), n.specOf(pod, 0, 0))
	if err != nil || same.PID != before.PID {
		t.Errorf("%+v, %v", same, err)
	}
	ended := n.wait(dead.UID, "exit", func(s agent.SandboxState) bool { return len(s.Containers) == 1 }).Containers[0]
	if ended.Phase != agent.Exited || ended.ExitCode != 4 {
		t.Errorf("ended before: %+v", ended)
	}
}

func TestExitWhileTheAgentIsDown(t *testing.T) {
	n := newNode(t)
	pod := testPod("term", "0s")
	c := n.start(pod)
	n.ready(pod, "ready")
	n.close()
	if out, err := exec.Command("kill", "-TERM", fmt.Sprint(c.PID)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n.open()
	c = n.exit(pod.UID, c.ID)
	if c.ExitCode != 7 {
		t.Errorf("%+v", c)
	}
	contains(t, n.logs(all(pod)), "got terminated")
}

func TestR8_RestartOfContainerd(t *testing.T) {
	n := newNode(t)
	stays, ends := testPod("tick"), testPod("term", "0s")
	before, gone := n.start(stays), n.start(ends)
	n.ready(ends, "ready")
	if err := n.shared.daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	n.wait(stays.UID, "unknown", func(s agent.SandboxState) bool { return s.Containers[0].Phase == agent.Unknown })
	if out, err := exec.Command("kill", "-TERM", fmt.Sprint(gone.PID)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Its own supervisor notices that it ended.
	ctx, stop := context.WithCancel(t.Context())
	supervised := make(chan error, 1)
	go func() { supervised <- n.shared.daemon.Run(ctx) }()
	defer func() {
		stop()
		if err := <-supervised; err != nil {
			t.Error(err)
		}
	}()
	after := n.wait(stays.UID, "running again", running).Containers[0]
	if after.ID != before.ID || after.PID != before.PID || !after.StartedAt.Equal(before.StartedAt) {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	// From 1.7 on containerd does not know any more how it ended.
	if c := n.exit(ends.UID, gone.ID); c.ExitCode != 7 && (c.ExitCode != 255 || c.Reason != "Unknown") {
		t.Errorf("ended meanwhile: %+v", c)
	}
	// And it works on.
	if err := n.StopContainer(t.Context(), after.ID, 0); err != nil {
		t.Fatal(err)
	}
}

func TestD12_LogsWhileTheAgentIsDown(t *testing.T) {
	n := newNode(t)
	const lines = 110_000 // more than 10 MB
	pod := testPod("flood", fmt.Sprint(lines))
	n.start(pod)
	n.close() // at once: most of it is written without us
	n.open()
	n.exit(pod.UID, idOf(pod.UID, "c", 0))
	var out bytes.Buffer
	if err := n.Logs(t.Context(), all(pod), &out); err != nil {
		t.Fatal(err)
	}
	i := 0
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, fmt.Sprintf("line %09d ", i)) {
			t.Fatalf("line %d is %q", i, line)
		}
		i++
	}
	if i != lines {
		t.Errorf("%d lines of %d", i, lines)
	}
	if out.Len() < 10<<20 {
		t.Errorf("only %d bytes", out.Len())
	}
}

func TestPreviousAndTail(t *testing.T) {
	n := newNode(t)
	pod := testPod("flood", "10")
	n.exit(pod.UID, n.start(pod).ID)
	pod.Spec.Containers[0].Args = []string{"echo", "second"}
	c, err := n.StartContainer(t.Context(), n.specOf(pod, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	n.exit(pod.UID, c.ID)
	if got := n.logs(all(pod)); got != "second\n" {
		t.Errorf("newest: %q", got)
	}
	req := all(pod)
	req.Previous, req.TailLines = true, 2
	if got := n.logs(req); strings.Count(got, "\n") != 2 || !strings.HasPrefix(got, "line 000000008") {
		t.Errorf("previous: %q", got)
	}
}

func TestRemoveSandboxLeavesNothing(t *testing.T) {
	n := newNode(t)
	pod := testPod("sleep")
	pod.Spec.Containers[0].Ports = nil
	c := n.start(pod)
	link := n.linkCount()
	if link != 1 {
		t.Fatalf("%d ports on the bridge", link)
	}
	if err := n.RemoveSandbox(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(string(n.pod(pod.UID))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("files stay: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), string(pod.UID)) || strings.Contains(string(mounts), c.ID) {
		t.Error("mounts stay")
	}
	if got := n.linkCount(); got != 0 {
		t.Errorf("%d ports on the bridge", got)
	}
	for _, root := range n.cgroups.roots {
		if _, err := os.Stat(filepath.Join(root, n.cgroup(pod.UID, ""))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("cgroup stays in %s: %v", root, err)
		}
	}
	if _, err := n.client.SnapshotService(snapshotter).Stat(t.Context(), c.ID); err == nil {
		t.Error("snapshot stays")
	}
	if _, err := n.client.ContainerService().Get(t.Context(), c.ID); err == nil {
		t.Error("container stays")
	}
	if open, err := n.keep.List(t.Context()); err != nil || len(open) > 0 {
		t.Errorf("output stays open: %v, %v", open, err)
	}
	reserved, err := filepath.Glob(filepath.Join(n.netCfg.Dir, "ipam", "*", "10.*"))
	if err != nil || len(reserved) > 0 {
		t.Errorf("addresses stay reserved: %v, %v", reserved, err)
	}
	if list, err := n.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("listed: %+v, %v", list, err)
	}
	if err := n.RemoveSandbox(t.Context(), pod.UID); err != nil {
		t.Errorf("again: %v", err)
	}
}

// linkCount is how many pods' links the bridge has.
func (n *node) linkCount() int {
	n.t.Helper()
	entries, err := os.ReadDir("/sys/class/net/" + n.netCfg.Bridge + "/brif")
	if err != nil {
		n.t.Fatal(err)
	}
	return len(entries)
}

func TestStopSandbox(t *testing.T) {
	n := newNode(t)
	pod := testPod("echo", "kept")
	c := n.start(pod)
	n.exit(pod.UID, c.ID)
	if err := n.StopSandbox(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if got := n.linkCount(); got != 0 {
		t.Errorf("%d ports on the bridge", got)
	}
	for range 2 {
		s := n.wait(pod.UID, "stopped", func(s agent.SandboxState) bool { return !s.Ready })
		if len(s.Containers) != 1 || s.Containers[0].Phase != agent.Exited {
			t.Errorf("%+v", s)
		}
		if got := n.logs(all(pod)); got != "kept\n" {
			t.Errorf("log: %q", got)
		}
		n.close() // and a restart does not change it
		n.open()
	}
	if err := n.StopSandbox(t.Context(), pod.UID); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestLeftoversOfAnInterruptedStartAreUsedOrFreed(t *testing.T) {
	n := newNode(t)
	pod := testPod("echo", "done")
	if _, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod}); err != nil {
		t.Fatal(err)
	}
	spec := n.specOf(pod, 0, 0)
	img, err := n.engine.known(t.Context(), spec.Image.Reference)
	if err != nil {
		t.Fatal(err)
	}
	// Killed after the snapshot of one attempt…
	if _, err := n.snapshot(t.Context(), idOf(pod.UID, "c", 9), img.ChainID); err != nil {
		t.Fatal(err)
	}
	// …and after the task of another was made and not started.
	id := idOf(pod.UID, "c", 0)
	if err := n.create(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	n.close()
	n.open()
	s := n.wait(pod.UID, "created", func(s agent.SandboxState) bool { return len(s.Containers) == 1 })
	if s.Containers[0].Phase != agent.Created {
		t.Errorf("%+v", s.Containers[0])
	}
	if _, err := n.client.SnapshotService(snapshotter).Stat(t.Context(), idOf(pod.UID, "c", 9)); err == nil {
		t.Error("leftover snapshot stays")
	}
	if _, err := n.StartContainer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if c := n.exit(pod.UID, id); c.ExitCode != 0 {
		t.Errorf("%+v", c)
	}
	if got := n.logs(all(pod)); got != "done\n" {
		t.Errorf("log: %q", got)
	}
}

func TestRebootIsNoticed(t *testing.T) {
	n := newNode(t)
	pod := testPod("sleep")
	c := n.start(pod)
	before := n.wait(pod.UID, "ready", func(s agent.SandboxState) bool { return s.Ready })
	// As after a reboot: no process, no mounts, no links; files stay.
	if err := n.StopContainer(t.Context(), c.ID, 0); err != nil {
		t.Fatal(err)
	}
	n.exit(pod.UID, c.ID)
	if err := n.clean(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	n.close()
	dir := n.pod(pod.UID)
	if err := writeRecord(dir.containerRecord(c.ID), containerRecord{StartedAt: c.StartedAt}); err != nil {
		t.Fatal(err)
	}
	for _, ns := range pinned() {
		if err := unmount(dir.ns(ns.kind)); err != nil {
			t.Fatal(err)
		}
	}
	n.open()
	s := n.wait(pod.UID, "not ready", func(s agent.SandboxState) bool { return !s.Ready })
	if got := s.Containers[0]; got.Phase != agent.Exited || got.ExitCode != 255 || got.Reason != "Unknown" {
		t.Errorf("%+v", got)
	}
	again, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod})
	if err != nil || !again.Ready || len(again.IPs) != 1 {
		t.Fatalf("%+v, %v", again, err)
	}
	if !again.CreatedAt.Equal(before.CreatedAt) {
		t.Error("another sandbox")
	}
	if _, err := n.StartContainer(t.Context(), n.specOf(pod, 0, 1)); err != nil {
		t.Fatal(err)
	}
	n.wait(pod.UID, "running", func(s agent.SandboxState) bool {
		return len(s.Containers) == 2 && s.Containers[1].Phase == agent.Running
	})
}

// late lets a start answer only when the process has ended and its task is deleted:
// containerd then finds nothing to answer with.
type late struct {
	tasks.TasksClient
	ended func(id string)
}

func (l late) Start(ctx context.Context, in *tasks.StartRequest, opts ...grpc.CallOption) (*tasks.StartResponse, error) {
	if _, err := l.TasksClient.Start(ctx, in, opts...); err != nil {
		return nil, err
	}
	l.ended(in.ContainerID)
	return nil, status.Error(codes.NotFound, "task "+in.ContainerID+" not found")
}

func TestEndBeforeTheAnswerToItsStart(t *testing.T) {
	n := newNode(t)
	pod := testPod("exit", "3")
	if _, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod}); err != nil {
		t.Fatal(err)
	}
	usual := n.client
	lateClient, err := client.New(n.cfg.Socket, client.WithDefaultNamespace(n.cfg.Namespace), client.WithServices(client.WithTaskClient(late{usual.TaskService(), func(id string) {
		n.exit(pod.UID, id)
		n.mu.Lock()
		_, c := n.find(id)
		n.mu.Unlock()
		<-c.over
	}})))
	if err != nil {
		t.Fatal(err)
	}
	n.client = lateClient
	c, err := n.StartContainer(t.Context(), n.specOf(pod, 0, 0))
	n.client = usual
	if err != nil || c.Phase != agent.Exited || c.ExitCode != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	if err := lateClient.Close(); err != nil {
		t.Error(err)
	}
}
