package containerd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

// A command runs as the container does; what an agent that was killed left of one is
// ended by the next, and its pipes go.
func TestExec(t *testing.T) {
	n := newNode(t)
	pod, user := testPod("sleep"), int64(1000)
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &user}
	c := n.start(pod)
	out := &tail{limit: 1 << 10}
	code, err := n.Exec(t.Context(), agent.ExecRequest{ID: c.ID, Command: []string{"/program", "where"}, Stdout: out})
	if err != nil || code != 0 {
		t.Fatal(code, err)
	}
	if got := string(out.text); got != "/work pod 1000 1000 [1000 2000]\n" {
		t.Fatalf("it is %q", got)
	}
	// What it prints may be of interest to nobody.
	if code, err := n.Exec(t.Context(), agent.ExecRequest{ID: c.ID, Command: []string{"/program", "say", "something"}}); err != nil || code != 0 {
		t.Fatal("a command that prints to nobody:", code, err)
	}
	// A command that did not begin says nothing of the container (R8).
	soon, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := n.Exec(soon, agent.ExecRequest{ID: c.ID, Command: []string{"/program", "where"}}); err == nil || errors.Is(err, agent.ErrKilled) {
		t.Fatalf("a command that was not begun: %v", err)
	}
	// What the process of an agent leaves that ends at once: a command that runs, and
	// its pipes.
	left, err := n.command(context.Background(), filepath.Join(n.pod(pod.UID).execs(), c.ID), agent.ExecRequest{ID: c.ID, Command: []string{"/program", "sleep"}, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	ended, err := left.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if found, err := filepath.Glob(n.pod(pod.UID).path("execs", "*", "*", "*-stdout")); err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if err := n.endCommands(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status := <-ended; status.ExitCode() != 137 {
		t.Fatalf("it ended with %d", status.ExitCode())
	}
	if found, err := filepath.Glob(n.pod(pod.UID).path("execs", "*", "*")); err != nil || len(found) != 0 {
		t.Fatal(found, err)
	}
	if s := n.wait(pod.UID, "the container", func(agent.SandboxState) bool { return true }); s.Containers[0].Phase != agent.Running || s.Containers[0].ID != c.ID {
		t.Fatalf("%+v", s.Containers[0])
	}
}

// The time of a command counts from its start: an engine that is slow to begin, on a busy
// machine, lets no probe fail that asks something quick.
func TestCommandOfASlowEngine(t *testing.T) {
	n := newNode(t)
	n.close()
	slow := filepath.Join(n.cfg.Dir, "slow")
	script := "#!/bin/sh\nfor a in \"$@\"; do [ \"$a\" = exec ] && sleep 1; done\nexec runc \"$@\"\n"
	if err := os.WriteFile(slow, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	n.cfg.OCIRuntime = slow
	n.open()
	c := n.start(testPod("sleep"))
	ask := func(timeout time.Duration, command ...string) error {
		_, err := n.Exec(t.Context(), agent.ExecRequest{ID: c.ID, Command: command, Timeout: timeout})
		return err
	}
	if err := ask(900*time.Millisecond, "/program", "where"); err != nil {
		t.Errorf("a quick command: %v", err)
	}
	if err := ask(10*time.Millisecond, "/program", "sleep"); !errors.Is(err, agent.ErrKilled) {
		t.Errorf("one that takes longer: %v", err)
	}
}
