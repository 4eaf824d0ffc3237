package containerd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

// said collects what a container prints.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *said) wait(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		s.mu.Lock()
		got := s.text.String()
		s.mu.Unlock()
		if strings.Contains(got, want) {
			return
		}
		select {
		case <-s.more:
		case <-deadline:
			t.Fatalf("%q, want %q", got, want)
		}
	}
}

func newSaid() *said { return &said{more: make(chan struct{}, 1)} }

// attach attaches to a container and returns when nothing can be missed any more.
func (n *node) attach(ctx context.Context, req agent.AttachRequest) <-chan error {
	attached, ended := make(chan struct{}), make(chan error, 1)
	req.Attached = func() { close(attached) }
	go func() { ended <- n.Attach(ctx, req) }()
	select {
	case <-attached:
	case err := <-ended:
		ended <- err
	}
	return ended
}

// A container reads what those say who are attached, one after the other, also beyond a
// restart of the agent; its log has what it prints. With stdinOnce the first one's
// leaving ends it.
func TestAttachToAnInput(t *testing.T) {
	n := newNode(t)
	pod := testPod("copy")
	pod.Spec.Containers[0].Stdin = true
	c := n.start(pod)
	for _, text := range []string{"first\n", "second\n"} {
		out := newSaid()
		in, input := io.Pipe()
		ctx, leave := context.WithCancel(t.Context())
		ended := n.attach(ctx, agent.AttachRequest{ID: c.ID, Stdin: in, Stdout: out})
		if _, err := io.WriteString(input, text); err != nil {
			t.Fatal(err)
		}
		out.wait(t, text)
		if err := input.Close(); err != nil {
			t.Fatal(err)
		}
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		n.close()
		n.open()
	}
	contains(t, n.logs(all(pod)), "first\nsecond\n")
	if s := n.wait(pod.UID, "running", func(agent.SandboxState) bool { return true }); s.Containers[0].Phase != agent.Running {
		t.Errorf("%+v", s.Containers)
	}

	pod = testPod("copy")
	pod.Spec.Containers[0].Stdin, pod.Spec.Containers[0].StdinOnce = true, true
	c = n.start(pod)
	out, errs := newSaid(), newSaid()
	ended := n.attach(t.Context(), agent.AttachRequest{ID: c.ID, Stdin: strings.NewReader("all of it\n"), Stdout: out, Stderr: errs})
	if err := <-ended; err != nil {
		t.Errorf("%v", err)
	}
	out.wait(t, "all of it\n")
	errs.wait(t, "done\n")
	if c := n.exit(pod.UID, c.ID); c.ExitCode != 4 {
		t.Errorf("%+v", c)
	}

	// An agent that is killed while somebody is attached: he has left.
	pod = testPod("copy")
	pod.Spec.Containers[0].Stdin, pod.Spec.Containers[0].StdinOnce = true, true
	c = n.start(pod)
	if err := os.WriteFile(n.Runtime.pod(pod.UID).attached(c.ID), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.close()
	n.open()
	if c := n.exit(pod.UID, c.ID); c.ExitCode != 4 {
		t.Errorf("%+v", c)
	}
}

func TestAttachToATerminal(t *testing.T) {
	n := newNode(t)
	pod := testPod("size")
	pod.Spec.Containers[0].Stdin, pod.Spec.Containers[0].TTY = true, true
	pod.Spec.Containers[0].Env = []corev1.EnvVar{}
	c := n.start(pod)
	out := newSaid()
	sizes := make(chan agent.TerminalSize)
	ctx, leave := context.WithCancel(t.Context())
	ended := n.attach(ctx, agent.AttachRequest{ID: c.ID, Stdin: strings.NewReader("typed"), Stdout: out, Sizes: sizes})
	sizes <- agent.TerminalSize{Width: 99, Height: 33}
	out.wait(t, "99")
	out.wait(t, "typed") // the terminal shows it
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	contains(t, n.logs(all(pod)), "99")

	pod = testPod("sleep")
	c = n.start(pod)
	if err := n.Attach(t.Context(), agent.AttachRequest{ID: c.ID, Stdin: strings.NewReader("")}); err == nil || !strings.Contains(err.Error(), "it has no input") {
		t.Errorf("%v", err)
	}
	// Who is attached hears of the end.
	ended = n.attach(t.Context(), agent.AttachRequest{ID: c.ID, Stdout: io.Discard})
	if err := n.StopContainer(t.Context(), c.ID, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v", err)
	}
}
