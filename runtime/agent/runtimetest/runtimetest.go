// Package runtimetest says what every agent.Runtime must do, as a suite: the fake
// passes it, and so does the one over containerd. A second implementation under
// the same suite takes the place of mocks.
package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"headway.dev/headway/runtime/agent"
)

// Machine is an empty machine with one image and what its programs do.
type Machine struct {
	Runtime agent.Runtime
	// Restart gives the Runtime of an agent that was started again on the machine.
	Restart func(t *testing.T) agent.Runtime
	Image   string // present
	Absent  string // not present, and nobody has it

	Sleep    []string // the command that runs until its stop signal, then ends
	Stubborn []string // the command that ignores its stop signal once it has written "ready\n"
	Exit3    []string // the command that ends at once with exit code 3
	Hello    []string // the command that writes "hello\n" and "world\n" and ends with 0
	Burn     []string // the command that keeps one CPU busy and holds 32 MiB
	Cat      []string // the command that writes what it reads, and when that ends "done\n" as an error and ends with 4
	Size     []string // the command that writes the size of its terminal, "80x24\n", when it starts and whenever that changes
	Serve    []string // the command that answers "hello\n" to whoever connects to the loopback address at port 8099
}

// patience is what a test waits for an event of the machine.
const patience = 2 * time.Minute

// Run runs the suite. Each test gets a machine of its own, or a clean one.
func Run(t *testing.T, open func(t *testing.T) Machine) {
	for _, test := range []struct {
		name string
		run  func(*bench)
	}{
		{"sandbox", sandbox}, {"start", start}, {"exit", exit}, {"stop", stop}, {"grace", grace}, {"shorter grace", shorterGrace},
		{"attempts", attempts}, {"logs", logs}, {"R8 adoption", adoption}, {"stopped sandbox", stoppedSandbox}, {"images", images},
		{"nothing there", nothingThere}, {"usage", usage}, {"written", written}, {"exec", execute}, {"exec with input", executeInput}, {"exec in a terminal", executeTerminal}, {"dial", dial},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			test.run(&bench{T: t, Machine: open(t), ctx: ctx})
		})
	}
}

// bench is one test on one machine.
type bench struct {
	*testing.T
	Machine
	ctx context.Context
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// pod makes a pod of one container with its sandbox, which goes with the test.
func (b *bench) pod(command []string) *corev1.Pod {
	b.Helper()
	uid := uuid.NewUUID()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "test-" + string(uid[:8]), UID: uid},
		Spec:       corev1.PodSpec{NodeName: "test", Containers: []corev1.Container{{Name: "main", Image: b.Image, Command: command}}},
	}
	b.Cleanup(func() {
		if err := b.Runtime.RemoveSandbox(context.Background(), uid); err != nil {
			b.Error(err)
		}
	})
	_, err := b.Runtime.EnsureSandbox(b.ctx, agent.SandboxSpec{Pod: p})
	b.must(err)
	return p
}

func (b *bench) start(p *corev1.Pod, attempt int) agent.ContainerState {
	b.Helper()
	image, err := b.Runtime.EnsureImage(b.ctx, agent.ImageRequest{Reference: b.Image, Policy: corev1.PullIfNotPresent})
	b.must(err)
	c := &p.Spec.Containers[0]
	s, err := b.Runtime.StartContainer(b.ctx, agent.ContainerSpec{Pod: p, Container: c, Attempt: attempt, Image: image, Command: c.Command, Hash: "v1:test"})
	b.must(err)
	return s
}

// stubborn starts a container that ignores its stop signal, and waits until it
// does.
func (b *bench) stubborn(p *corev1.Pod, attempt int) agent.ContainerState {
	b.Helper()
	c := b.start(p, attempt)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	said := &watcher{until: "ready\n", found: cancel}
	err := b.Runtime.Logs(ctx, agent.LogRequest{UID: p.UID, Container: "main", Attempt: attempt, TailLines: -1, Follow: true}, said)
	if !strings.Contains(said.text.String(), said.until) {
		b.Fatalf("the program says %q and not that it is ready: %v", said.text.String(), err)
	}
	return c
}

// watcher calls found once what is written into it contains until.
type watcher struct {
	text  bytes.Buffer
	until string
	found func()
}

func (w *watcher) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	if strings.Contains(w.text.String(), w.until) {
		w.found()
	}
	return n, err
}

func (b *bench) state(r agent.Runtime, uid types.UID) *agent.SandboxState {
	b.Helper()
	list, err := r.List(b.ctx, uid)
	b.must(err)
	if len(list) == 0 {
		return nil
	}
	if len(list) != 1 || list[0].UID != uid {
		b.Fatalf("asked for sandbox %s, got %+v", uid, list)
	}
	return &list[0]
}

// await waits on events until a look at the sandbox satisfies ok.
func (b *bench) await(events <-chan types.UID, uid types.UID, ok func(*agent.SandboxState) bool) *agent.SandboxState {
	b.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		if s := b.state(b.Runtime, uid); ok(s) {
			return s
		}
		for got := types.UID("?"); got != uid && got != ""; {
			select {
			case got = <-events:
			case <-timeout.C:
				b.Fatalf("no event of a change; the sandbox is %+v", b.state(b.Runtime, uid))
			}
		}
	}
}

func ended(s *agent.SandboxState) bool {
	return s != nil && len(s.Containers) > 0 && s.Containers[len(s.Containers)-1].Phase == agent.Exited
}

func sandbox(b *bench) {
	p := b.pod(b.Sleep)
	one := b.state(b.Runtime, p.UID)
	if one == nil || !one.Ready || len(one.IPs) == 0 || one.Namespace != "default" || one.Name != p.Name || len(one.Containers) != 0 {
		b.Fatalf("sandbox is %+v", one)
	}
	again, err := b.Runtime.EnsureSandbox(b.ctx, agent.SandboxSpec{Pod: p})
	b.must(err)
	if again.IPs[0] != one.IPs[0] || !again.CreatedAt.Equal(one.CreatedAt) {
		b.Fatalf("made again: %+v, was %+v", again, one)
	}
	other := b.pod(b.Sleep)
	if s := b.state(b.Runtime, other.UID); s.IPs[0] == one.IPs[0] {
		b.Fatalf("two pods have the address %s", s.IPs[0])
	}
	all, err := b.Runtime.List(b.ctx)
	b.must(err)
	found := 0
	for _, s := range all {
		if s.UID == p.UID || s.UID == other.UID {
			found++
		}
	}
	if found != 2 {
		b.Fatalf("a list of everything has %d of 2", found)
	}
	b.must(b.Runtime.RemoveSandbox(b.ctx, p.UID))
	b.must(b.Runtime.RemoveSandbox(b.ctx, p.UID))
	if s := b.state(b.Runtime, p.UID); s != nil {
		b.Fatalf("removed, but %+v is left", s)
	}
}

func start(b *bench) {
	p := b.pod(b.Sleep)
	c := b.start(p, 0)
	if c.ID == "" || c.Name != "main" || c.Attempt != 0 || c.Phase != agent.Running || c.SpecHash != "v1:test" || c.Image != b.Image ||
		c.ImageID == "" || c.PID == 0 || c.StartedAt.IsZero() {
		b.Fatalf("container is %+v", c)
	}
	if again := b.start(p, 0); again.ID != c.ID || !again.StartedAt.Equal(c.StartedAt) {
		b.Fatalf("started twice: %+v, then %+v", c, again)
	}
	s := b.state(b.Runtime, p.UID)
	if len(s.Containers) != 1 || s.Containers[0].ID != c.ID || s.Containers[0].Phase != agent.Running {
		b.Fatalf("listed as %+v", s)
	}
}

func exit(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	events := b.Runtime.Events(ctx)
	p := b.pod(b.Exit3)
	b.start(p, 0)
	c := b.await(events, p.UID, ended).Containers[0]
	if c.ExitCode != 3 || c.Reason != "Error" || c.FinishedAt.IsZero() || c.FinishedAt.Before(c.StartedAt) {
		b.Fatalf("container is %+v", c)
	}
}

func stop(b *bench) {
	p := b.pod(b.Sleep)
	c := b.start(p, 0)
	b.must(b.Runtime.StopContainer(b.ctx, c.ID, time.Hour)) // longer than the test may take
	s := b.state(b.Runtime, p.UID)
	if s.Containers[0].Phase != agent.Exited {
		b.Fatalf("stopped, but %+v", s)
	}
	b.must(b.Runtime.StopContainer(b.ctx, c.ID, time.Second))
}

func grace(b *bench) {
	p := b.pod(b.Stubborn)
	c := b.stubborn(p, 0)
	began := time.Now()
	b.must(b.Runtime.StopContainer(b.ctx, c.ID, time.Second))
	if took := time.Since(began); took < 900*time.Millisecond {
		b.Fatalf("killed after %s", took)
	}
	if s := b.state(b.Runtime, p.UID); s.Containers[0].Phase != agent.Exited || s.Containers[0].ExitCode != 137 || !s.Containers[0].Signalled {
		b.Fatalf("killed, but %+v", s)
	}
}

func shorterGrace(b *bench) {
	p := b.pod(b.Stubborn)
	c := b.stubborn(p, 0)
	ctx, cancel := context.WithCancel(b.ctx)
	first := make(chan error, 1)
	go func() { first <- b.Runtime.StopContainer(ctx, c.ID, time.Hour) }()
	b.must(b.Runtime.StopContainer(b.ctx, c.ID, 100*time.Millisecond))
	select {
	case err := <-first:
		b.must(err)
	case <-time.After(patience):
		b.Fatal("the first stop still waits")
	}
	cancel()
	// A stop that is given up ends soon, whatever its grace.
	c = b.stubborn(p, 1)
	ctx, cancel = context.WithCancel(b.ctx)
	go func() { first <- b.Runtime.StopContainer(ctx, c.ID, time.Hour) }()
	cancel()
	select {
	case <-first:
	case <-time.After(patience):
		b.Fatal("a stop that was given up still waits")
	}
}

func attempts(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	events := b.Runtime.Events(ctx)
	p := b.pod(b.Exit3)
	one := b.start(p, 0)
	b.await(events, p.UID, ended)
	p.Spec.Containers[0].Command = b.Sleep
	two := b.start(p, 1)
	s := b.state(b.Runtime, p.UID)
	if len(s.Containers) != 2 || s.Containers[0].Attempt != 0 || s.Containers[1].Attempt != 1 || s.Containers[1].ID != two.ID {
		b.Fatalf("listed as %+v", s)
	}
	b.must(b.Runtime.RemoveContainer(b.ctx, one.ID))
	b.must(b.Runtime.RemoveContainer(b.ctx, one.ID))
	s = b.state(b.Runtime, p.UID)
	if len(s.Containers) != 1 || s.Containers[0].ID != two.ID || s.Containers[0].Phase != agent.Running {
		b.Fatalf("listed as %+v", s)
	}
}

func (b *bench) log(req agent.LogRequest) string {
	b.Helper()
	var out bytes.Buffer
	b.must(b.Runtime.Logs(b.ctx, req, &out))
	return out.String()
}

func logs(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	events := b.Runtime.Events(ctx)
	p := b.pod(b.Hello)
	b.start(p, 0)
	b.await(events, p.UID, ended)
	all := agent.LogRequest{UID: p.UID, Container: "main", Attempt: -1, TailLines: -1}
	// Follow of a dead container writes everything and ends.
	follow := all
	follow.Follow = true
	if got := b.log(follow); got != "hello\nworld\n" {
		b.Fatalf("followed %q", got)
	}
	if got := b.log(all); got != "hello\nworld\n" {
		b.Fatalf("log is %q", got)
	}
	tail := all
	tail.TailLines = 1
	if got := b.log(tail); got != "world\n" {
		b.Fatalf("the last line is %q", got)
	}
	limit := all
	limit.LimitBytes = 3
	if got := b.log(limit); got != "hel" {
		b.Fatalf("three bytes are %q", got)
	}
	p.Spec.Containers[0].Command = b.Sleep
	b.start(p, 1)
	previous := all
	previous.Previous = true
	if got := b.log(previous); got != "hello\nworld\n" {
		b.Fatalf("the previous log is %q", got)
	}
	// Follow of a living one ends with its context.
	short, end := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- b.Runtime.Logs(short, follow, &bytes.Buffer{}) }()
	end()
	select {
	case <-done:
	case <-time.After(patience):
		b.Fatal("a log that nobody reads is followed")
	}
}

func adoption(b *bench) {
	p := b.pod(b.Sleep)
	c := b.start(p, 0)
	before := b.state(b.Runtime, p.UID)
	r := b.Restart(b.T)
	after := b.state(r, p.UID)
	if after == nil || !after.Ready || len(after.Containers) != 1 || after.IPs[0] != before.IPs[0] {
		b.Fatalf("before %+v, after %+v", before, after)
	}
	got := after.Containers[0]
	if got.ID != c.ID || got.PID != c.PID || got.Phase != agent.Running || !got.StartedAt.Equal(before.Containers[0].StartedAt) ||
		got.SpecHash != c.SpecHash || got.Made != after.Made || got.Signalled || got.Attempt != 0 || got.Image != b.Image {
		b.Fatalf("before %+v, after %+v", before.Containers[0], got)
	}
	if strangers, err := r.Foreign(b.ctx); err != nil || len(strangers) != 0 {
		b.Errorf("what it made itself is foreign to it: %+v, %v", strangers, err)
	}
	b.must(r.StopContainer(b.ctx, c.ID, 10*time.Second))
}

func stoppedSandbox(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	events := b.Runtime.Events(ctx)
	p := b.pod(b.Hello)
	b.start(p, 0)
	b.await(events, p.UID, ended)
	b.must(b.Runtime.StopSandbox(b.ctx, p.UID))
	b.must(b.Runtime.StopSandbox(b.ctx, p.UID))
	s := b.state(b.Runtime, p.UID)
	if s == nil || s.Ready || len(s.Containers) != 1 || s.Containers[0].ExitCode != 0 || s.Containers[0].Reason != "Completed" {
		b.Fatalf("sandbox is %+v", s)
	}
	if got := b.log(agent.LogRequest{UID: p.UID, Container: "main", Attempt: -1, TailLines: -1}); got != "hello\nworld\n" {
		b.Fatalf("log is %q", got)
	}
	// Made ready again, as after a reboot, it starts the next attempt.
	_, err := b.Runtime.EnsureSandbox(b.ctx, agent.SandboxSpec{Pod: p})
	b.must(err)
	p.Spec.Containers[0].Command = b.Sleep
	c := b.start(p, 1)
	again := b.state(b.Runtime, p.UID)
	if c.Phase != agent.Running || c.Made != again.Made || again.Made != s.Made+1 || again.Containers[0].Made != s.Made {
		b.Fatalf("container is %+v, the sandbox %+v, it was %+v", c, again, s)
	}
}

func images(b *bench) {
	var said []string
	_, err := b.Runtime.EnsureImage(b.ctx, agent.ImageRequest{Reference: b.Image, Policy: corev1.PullNever, Progress: func(reason, message string) { said = append(said, reason+" "+message) }})
	b.must(err)
	if len(said) != 1 || !strings.HasPrefix(said[0], "Pulled Container image ") {
		b.Fatalf("said %q", said)
	}
	listed, err := b.Runtime.Images(b.ctx)
	b.must(err)
	if !slices.ContainsFunc(listed, func(i agent.PresentImage) bool { return slices.Contains(i.Names, b.Image) && i.Size > 0 }) {
		b.Errorf("%s is not listed: %+v", b.Image, listed)
	}
	for _, c := range []struct {
		reference string
		policy    corev1.PullPolicy
		reason    string
	}{
		{b.Absent, corev1.PullNever, "ErrImageNeverPull"},
		{b.Absent, corev1.PullIfNotPresent, "ErrImagePull"},
		{"Not:A:Reference", corev1.PullIfNotPresent, "InvalidImageName"},
	} {
		_, err := b.Runtime.EnsureImage(b.ctx, agent.ImageRequest{Reference: c.reference, Policy: c.policy})
		var known *agent.ImageError
		if !errors.As(err, &known) || known.Reason != c.reason {
			b.Errorf("%s with %s: %v, want %s", c.reference, c.policy, err, c.reason)
		}
	}
}

func nothingThere(b *bench) {
	b.must(b.Runtime.StopContainer(b.ctx, "nothing", time.Second))
	b.must(b.Runtime.RemoveContainer(b.ctx, "nothing"))
	b.must(b.Runtime.StopSandbox(b.ctx, "11111111-2222-3333-4444-555555555555"))
	b.must(b.Runtime.RemoveSandbox(b.ctx, "11111111-2222-3333-4444-555555555555"))
	if err := b.Runtime.Logs(b.ctx, agent.LogRequest{UID: "11111111-2222-3333-4444-555555555555", Container: "main", Attempt: -1, TailLines: -1}, &bytes.Buffer{}); err == nil {
		b.Error("the log of nothing was read")
	}
}
