package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

// The words of labelInput: a container has an input, which is closed when the first who
// was attached to it leaves; and it has a terminal.
const (
	wordStdin = "stdin"
	wordOnce  = "once"
	wordTTY   = "tty"
)

// inputLabel says what a container has of these.
func inputLabel(c *corev1.Container) string {
	var words []string
	if c.Stdin {
		words = append(words, wordStdin)
	}
	if c.Stdin && c.StdinOnce {
		words = append(words, wordOnce)
	}
	if c.TTY {
		words = append(words, wordTTY)
	}
	return strings.Join(words, " ")
}

// inputOf reads it.
func inputOf(label string) (stdin, once, tty bool) {
	for _, w := range strings.Fields(label) {
		stdin, once, tty = stdin || w == wordStdin, once || w == wordOnce, tty || w == wordTTY
	}
	return stdin, once, tty
}

// stdin is the FIFO that a container reads, and attached the note that somebody is
// attached to one whose input closes when he leaves.
func (p podDir) stdin(id string) string    { return p.path("containers", id+".in") }
func (p podDir) attached(id string) string { return p.path("containers", id+".attached") }

// makeInput makes the FIFO of a container's input and returns its path; "": it has none.
// The shim holds it open for writing, so it does not end when whoever writes it leaves.
func makeInput(dir podDir, id string, c *corev1.Container) (string, error) {
	if !c.Stdin {
		return "", nil
	}
	if err := syscall.Mkfifo(dir.stdin(id), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make input of container: %w", err)
	}
	return dir.stdin(id), nil
}

// Attach is agent.Runtime's. The keeper hands on what is printed, so the log is written
// as ever.
func (r *Runtime) Attach(ctx context.Context, req agent.AttachRequest) error {
	r.mu.Lock()
	uid, c := r.find(req.ID)
	runs := c != nil && r.connected && c.state.Phase == agent.Running
	r.mu.Unlock()
	if !runs {
		return fmt.Errorf("attach: container %s does not run", req.ID)
	}
	stored, err := r.client.ContainerService().Get(ctx, req.ID)
	if err != nil {
		return fmt.Errorf("attach to container %s: %w", c.state.Name, err)
	}
	stdin, once, tty := inputOf(stored.Labels[labelInput])
	if req.Stdin != nil && !stdin {
		return fmt.Errorf("attach to container %s: it has no input: set stdin: true in its manifest", c.state.Name)
	}
	ctx, cancel := context.WithCancel(ctx)
	heard := make(chan struct{}) // closed when nothing that it prints is missed
	attached := func() {
		close(heard)
		if req.Attached != nil {
			req.Attached()
		}
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	if req.Stdin != nil {
		in, err := os.OpenFile(r.pod(uid).stdin(req.ID), os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, syscall.ENXIO) {
			return fmt.Errorf("attach to container %s: its input is closed: stdinOnce is set, and somebody was attached before", c.state.Name)
		}
		if err != nil {
			return fmt.Errorf("attach to container %s: %w", c.state.Name, err)
		}
		if once {
			if err := os.WriteFile(r.pod(uid).attached(req.ID), nil, 0o600); err != nil {
				return errors.Join(fmt.Errorf("attach to container %s: %w", c.state.Name, err), in.Close())
			}
			defer func() {
				if err := r.endInput(context.WithoutCancel(ctx), r.pod(uid), req.ID); err != nil {
					r.cfg.Log.Warn("a container's input stays open", "container", c.state.Name, "error", err)
				}
			}()
		}
		go func() { // not waited for: what it reads from ends later
			select {
			case <-heard: // else the answer to what is said first would be missed
			case <-ctx.Done():
				return
			}
			if _, err := io.Copy(in, req.Stdin); err != nil || !once || ctx.Err() != nil {
				return
			}
			_ = in.Close() // what the container reads ends with the last who could write
			if err := r.endInput(ctx, r.pod(uid), req.ID); err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn("a container's input stays open", "container", c.state.Name, "error", err)
			}
		}()
		defer func() { _ = in.Close() }() // ends a write that waits; there is nothing to lose
	}
	if tty && req.Sizes != nil {
		group.Go(func() { r.resize(ctx, req.ID, req.Sizes) })
	}
	err = r.cfg.Keeper.Attach(ctx, req.ID, attached, req.Stdout, req.Stderr)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("attach to container %s: %w", c.state.Name, err)
	}
	return ctx.Err()
}

// resize hands on the sizes of the terminal of a container's own process.
func (r *Runtime) resize(ctx context.Context, id string, sizes <-chan agent.TerminalSize) {
	for {
		select {
		case size, more := <-sizes:
			if !more {
				return
			}
			_, err := r.client.TaskService().ResizePty(ctx, &tasks.ResizePtyRequest{ContainerID: id, Width: uint32(size.Width), Height: uint32(size.Height)})
			if err = native(err); err != nil && !errdefs.IsNotFound(err) && ctx.Err() == nil {
				r.cfg.Log.Debug("a terminal keeps its size", "container", id, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// endInput closes the input of a container for good. One that has ended has none.
func (r *Runtime) endInput(ctx context.Context, dir podDir, id string) error {
	ctx, cancel := undo(ctx)
	defer cancel()
	_, err := r.client.TaskService().CloseIO(ctx, &tasks.CloseIORequest{ContainerID: id, Stdin: true})
	if err = native(err); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("close the input of container %s: %w", id, err)
	}
	if err := os.Remove(dir.attached(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("close the input of container %s: %w", id, err)
	}
	return nil
}

// endInputs closes the inputs of those to which somebody was attached through an agent
// that was killed: he has left.
func (r *Runtime) endInputs(ctx context.Context) error {
	left, err := filepath.Glob(filepath.Join(r.cfg.Dir, "pods", "*", "containers", "*.attached"))
	if err != nil {
		return fmt.Errorf("find inputs that were left open: %w", err)
	}
	var errs []error
	for _, path := range left {
		id := strings.TrimSuffix(filepath.Base(path), ".attached")
		errs = append(errs, r.endInput(ctx, podDir(filepath.Dir(filepath.Dir(path))), id))
	}
	return errors.Join(errs...)
}
