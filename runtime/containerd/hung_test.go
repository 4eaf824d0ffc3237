package containerd

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headway.dev/headway/runtime/agent"
)

// A containerd that hangs keeps nobody beyond his own deadline, and stops nothing: when it
// answers again what ran runs on, and what was asked for is made once.
func TestContainerdThatHangs(t *testing.T) {
	n := newNode(t)
	runs := testPod("tick")
	before := n.start(runs)
	daemon, err := n.shared.daemon.process()
	if err != nil || daemon == nil {
		t.Fatalf("%v, %v", daemon, err)
	}
	defer daemon.Close()
	signal := func(s unix.Signal) error { return unix.PidfdSendSignal(int(daemon.Fd()), s, nil, 0) }
	if err := signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	woken := false
	wake := func() {
		if !woken {
			woken = true
			if err := signal(unix.SIGCONT); err != nil {
				t.Error(err)
			}
		}
	}
	defer wake()
	pod := testPod("tick")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := n.EnsureSandbox(ctx, agent.SandboxSpec{Pod: pod}); err == nil { // it needs no containerd
		if _, err = n.StartContainer(ctx, agent.ContainerSpec{
			Pod: pod, Container: &pod.Spec.Containers[0], Image: agent.Image{Reference: testImage}, Args: pod.Spec.Containers[0].Args, Hash: "h",
		}); err == nil {
			t.Error("a container was made by a containerd that hangs")
		}
	}
	if late := time.Since(mustDeadline(ctx)); late > 40*time.Second {
		t.Errorf("%s beyond the deadline", late)
	}
	wake()
	after := n.wait(runs.UID, "running", running).Containers[0]
	if after.ID != before.ID || after.PID != before.PID {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	made := n.start(pod)
	if made.Phase != agent.Running || made.Attempt != 0 {
		t.Errorf("%+v", made)
	}
	if s := n.wait(pod.UID, "running", running); len(s.Containers) != 1 {
		t.Errorf("%+v", s.Containers)
	}
}

func mustDeadline(ctx context.Context) time.Time {
	at, _ := ctx.Deadline()
	return at
}
