package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"headway.dev/headway/runtime/agent"
)

// Exec is agent.Runtime's. The pipes of a command are in a directory named for its
// container, each named for the command: so the next agent knows what this one left.
func (r *Runtime) Exec(ctx context.Context, req agent.ExecRequest) (code int32, err error) {
	r.mu.Lock()
	uid, c := r.find(req.ID)
	runs := c != nil && r.connected && c.state.Phase == agent.Running
	r.mu.Unlock()
	if !runs {
		return 0, fmt.Errorf("run a command: container %s does not run", req.ID)
	}
	var eof chan struct{}
	if req.Stdin != nil {
		eof = make(chan struct{})
		req.Stdin = &input{Reader: req.Stdin, ended: sync.OnceFunc(func() { close(eof) })}
	}
	// The time that a command has counts from its start, as in Kubernetes: on a busy machine
	// the making of a process takes longer than most probes last.
	making, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	p, err := r.command(making, filepath.Join(r.pod(uid).execs(), req.ID), req)
	if err != nil {
		return 0, fmt.Errorf("run a command in container %s: %w", c.state.Name, err)
	}
	defer func() {
		after, cancel := undo(ctx)
		defer cancel()
		if _, gone := p.Delete(after, client.WithProcessKill); gone != nil && !errdefs.IsNotFound(gone) {
			r.cfg.Log.Warn("a command is not cleaned up after yet", "container", c.state.Name, "error", gone)
			r.endLater(ctx, req.ID, p)
		}
	}()
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended, err := p.Wait(waiting)
	if err == nil {
		err = p.Start(making)
	}
	if err != nil { // also in the end: an engine that hangs says nothing of the container (R8)
		return 0, fmt.Errorf("run a command in container %s: %w", c.state.Name, err)
	}
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Timeout)
		defer cancel()
	}
	for sizes := req.Sizes; ; {
		select {
		case status := <-ended:
			n, _, err := status.Result()
			if err != nil {
				return 0, fmt.Errorf("run a command in container %s: %w", c.state.Name, err)
			}
			if req.Stdout != nil || req.Stderr != nil { // else nobody waits for what a child of it may yet print
				printed(ctx, p)
			}
			return int32(n), nil
		case <-ctx.Done():
			return 0, agent.ErrKilled // what is deferred kills it
		case <-eof:
			eof = nil
			r.closeInput(ctx, p, c.state.Name)
		case size, more := <-sizes:
			if !more {
				sizes = nil
				continue
			}
			if err := p.Resize(ctx, uint32(size.Width), uint32(size.Height)); err != nil && !errdefs.IsNotFound(err) {
				r.cfg.Log.Debug("a terminal keeps its size", "container", c.state.Name, "error", err)
			}
		}
	}
}

// commandTime is how long the engine may take to start a command.
const commandTime = 30 * time.Second

// printed waits until everything that a command has printed is handed on, which is not
// said by its end: the pipes still hold some, and a child of it may have them open.
func printed(ctx context.Context, p client.Process) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.IO().Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// input tells when there is no more of it.
type input struct {
	io.Reader
	ended func()
}

func (i *input) Read(p []byte) (int, error) {
	n, err := i.Reader.Read(p)
	if err != nil {
		i.ended()
	}
	return n, err
}

// closeInput has the shim close its own end of a command's input, which it holds open
// so that the input outlives whoever writes it. A command that has ended has none.
func (r *Runtime) closeInput(ctx context.Context, p client.Process, container string) {
	if err := p.CloseIO(ctx, client.WithStdinCloser); err != nil && !errdefs.IsNotFound(err) {
		r.cfg.Log.Debug("a command's input stays open", "container", container, "error", err)
	}
}

// command makes a process beside the container's own, with its user, environment and
// directory.
func (r *Runtime) command(ctx context.Context, pipes string, req agent.ExecRequest) (client.Process, error) {
	c, err := r.client.LoadContainer(ctx, req.ID)
	if err != nil {
		return nil, err
	}
	spec, err := c.Spec(ctx)
	if err != nil {
		return nil, err
	}
	task, err := c.Task(ctx, nil)
	if err != nil {
		return nil, err
	}
	process := *spec.Process
	process.Args, process.Terminal = req.Command, req.TTY
	// Also what nobody wants to read is read: without any stream the shim gives the
	// command a /dev/null that is open for reading only, and what prints something fails.
	out, errs := orDropped(req.Stdout), orDropped(req.Stderr)
	options := []cio.Opt{cio.WithFIFODir(pipes), cio.WithStreams(req.Stdin, out, errs)}
	if req.TTY {
		options = append(options, cio.WithStreams(req.Stdin, out, nil), cio.WithTerminal)
		if !slices.ContainsFunc(process.Env, func(e string) bool { return strings.HasPrefix(e, "TERM=") }) {
			process.Env = append(slices.Clip(process.Env), "TERM=xterm")
		}
	}
	return task.Exec(ctx, rand.Text(), &process, cio.NewCreator(options...))
}

func orDropped(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// execs is where the pipes of the pod's commands are.
func (p podDir) execs() string { return p.path("execs") }

// endCommands ends what an agent before this one ran in containers.
func (r *Runtime) endCommands(ctx context.Context) error {
	left, err := filepath.Glob(filepath.Join(r.cfg.Dir, "pods", "*", "execs", "*", "*", "*-std*"))
	if err != nil {
		return fmt.Errorf("find commands that were left: %w", err)
	}
	var errs []error
	for _, pipe := range left {
		container := filepath.Base(filepath.Dir(filepath.Dir(pipe)))
		command, _, _ := strings.Cut(filepath.Base(pipe), "-std")
		errs = append(errs, r.endCommand(ctx, container, command), os.RemoveAll(filepath.Dir(pipe)))
	}
	return errors.Join(errs...)
}

// endLater ends a command that containerd would not let go of, and then removes its
// pipes, by which the next agent would know it: until that has succeeded they stay.
func (r *Runtime) endLater(ctx context.Context, container string, p client.Process) {
	ctx = context.WithoutCancel(ctx)
	r.group.Go(func() {
		for tries := 0; tries < endTries; tries++ {
			err := r.endCommand(ctx, container, p.ID())
			if err == nil {
				p.IO().Cancel()
				if err = p.IO().Close(); err == nil {
					return
				}
			}
			select {
			case <-r.over:
				return // the next agent finds it
			case <-time.After(endPause):
			}
		}
	})
}

// How often, and how often at most, a command is tried to be ended.
const endPause, endTries = 10 * time.Second, 60

func (r *Runtime) endCommand(ctx context.Context, container, command string) error {
	ts := r.client.TaskService()
	deadline := time.Now().Add(settleTime)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		_, err := ts.Kill(ctx, &tasks.KillRequest{ContainerID: container, ExecID: command, Signal: uint32(unix.SIGKILL)})
		if err = native(err); err == nil || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) {
			_, err = ts.DeleteProcess(ctx, &tasks.DeleteProcessRequest{ContainerID: container, ExecID: command})
			err = native(err)
		}
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("end a command that was left in container %s: %w", container, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
