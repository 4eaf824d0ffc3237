package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

// StopContainer is agent.Runtime's.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	r.mu.Lock()
	uid, c := r.find(id)
	r.mu.Unlock()
	if c == nil || isClosed(c.dead) {
		return nil
	}
	if !c.started { // made, never started
		return nil
	}
	if grace > 0 {
		if err := r.terminate(ctx, uid, id, c); err != nil {
			return fmt.Errorf("stop container %s: %w", c.state.Name, err)
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.dead:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	if err := r.signal(ctx, id, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill container %s: %w", c.state.Name, err)
	}
	select {
	case <-c.dead:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("container %s does not die: %w", c.state.Name, ctx.Err())
	}
}

// terminate sends the stop signal, once: a second one makes some programs give up
// finishing what they are at. It is on record, so a restart of ours sends no other.
func (r *Runtime) terminate(ctx context.Context, uid types.UID, id string, c *container) error {
	r.mu.Lock()
	sent := c.record.Signalled
	c.record.Signalled = true
	record := c.record
	r.mu.Unlock()
	if sent {
		return nil
	}
	sig := signalOf(c.stopSignal)
	r.awaitHandler(ctx, c, sig)
	if err := r.signal(ctx, id, sig); err != nil {
		r.mu.Lock()
		c.record.Signalled = false
		r.mu.Unlock()
		return err
	}
	if isClosed(c.dead) {
		return nil
	}
	if err := r.noteSignal(uid, id, c, record); err != nil { // a full disk: what is stopped may be what fills it
		r.cfg.Log.Warn("stop signal not recorded: after a restart of the agent it is sent again", "container", id, "err", err)
	}
	return nil
}

// youth is how long a program may need to begin to handle signals.
const youth = 2 * time.Second

// awaitHandler waits, for a program that has just begun, until it handles the
// signal: to the first process of a container the kernel does not deliver one that
// it has no handler for, and then all of the grace would pass for nothing.
func (r *Runtime) awaitHandler(ctx context.Context, c *container, sig unix.Signal) {
	r.mu.Lock()
	pid, started := c.state.PID, c.state.StartedAt
	r.mu.Unlock()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	// Twice in a row: between its name and its handlers, an exec shows those of the
	// program before.
	for seen := 0; r.cfg.Now().Sub(started) < youth; {
		if seen++; !handles(int(pid), sig) {
			seen = 0
		}
		if seen == 2 {
			return
		}
		select {
		case <-tick.C:
		case <-c.dead:
			return
		case <-ctx.Done():
			return
		}
	}
}

// handles reports whether a container's program has a handler for a signal, ignores
// it by will, or is gone. Until its exec the process is runc's (or crun's), with handlers of its own.
func handles(pid int, sig unix.Signal) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "Name:\trunc:[") || line == "Name:\tcrun\n" {
			return false
		}
		name, mask, _ := strings.Cut(line, ":")
		if name != "SigCgt" && name != "SigIgn" {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		if err != nil || bits&(1<<(sig-1)) != 0 {
			return true
		}
	}
	return false
}

// noteSignal records that the stop signal was sent, unless the exit is on record
// by now.
func (r *Runtime) noteSignal(uid types.UID, id string, c *container, record containerRecord) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.state.Phase == agent.Exited {
		return nil
	}
	return writeRecord(r.pod(uid).containerRecord(id), record)
}

// signal sends a signal, directly: by way of containerd it would cost the start
// of another program. If the process has ended and its event got lost, that is
// noticed here.
func (r *Runtime) signal(ctx context.Context, id string, sig unix.Signal) error {
	r.mu.Lock()
	_, c := r.find(id)
	if c == nil || c.state.Phase == agent.Exited {
		r.mu.Unlock()
		return nil
	}
	pid := c.state.PID
	r.mu.Unlock()
	if pid != 0 {
		err := signalProcess(int(pid), id, sig)
		if err == nil || errors.Is(err, unix.ESRCH) && r.isOver(ctx, id) {
			return nil
		}
	}
	_, err := r.client.TaskService().Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(sig)})
	if err = native(err); errdefs.IsNotFound(err) && r.isOver(ctx, id) {
		return nil
	}
	return err
}

// isOver asks containerd whether a process that is not there has ended, and notes
// how, in case the event got lost. An answer that does not come means yes: the
// event, or the next load, will tell.
func (r *Runtime) isOver(ctx context.Context, id string) bool {
	got, err := r.client.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: id})
	switch err = native(err); {
	case errdefs.IsNotFound(err):
		r.exited(context.WithoutCancel(ctx), id, lostStatus, r.cfg.Now())
	case err != nil:
		r.cfg.Log.Debug("end of container not known yet", "container", id, "err", err)
	case isStopped(got.Process):
		r.exited(context.WithoutCancel(ctx), id, got.Process.ExitStatus, got.Process.ExitedAt.AsTime())
	default:
		return false
	}
	return true
}

// signalProcess sends a signal to a container's first process; ESRCH: it is over.
// The descriptor is opened before it is checked that the process is in the
// container's cgroup, so a number that was given to another process meanwhile is
// no danger. One that is just ending is in no cgroup any more.
func signalProcess(pid int, id string, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	in, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(in), "/"+id+"\n") {
		return fmt.Errorf("process %d is not of container %s: %w", pid, id, unix.ESRCH)
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// signalOf reads a stop signal as images give it: SIGTERM, TERM or 15.
func signalOf(name string) unix.Signal {
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n < 65 {
		return unix.Signal(n)
	}
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if s := unix.SignalNum(name); s != 0 {
		return s
	}
	return unix.SIGTERM
}

// signalName is a stop signal as a pod's status has it.
func signalName(text string) corev1.Signal {
	if name := unix.SignalName(signalOf(text)); name != "" {
		return corev1.Signal(name)
	}
	return corev1.Signal(text)
}
