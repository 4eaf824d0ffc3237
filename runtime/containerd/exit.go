package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

// lostStatus stands for an exit status that nobody knows any more, as in the CRI
// plugin of containerd. No process ends with it: runc reports at most 255.
const lostStatus = 1 << 10

// exited notes the end of a container's process: on disk, then in the mirror,
// then to whoever listens. What is left of it is cleaned up afterwards, because a
// restart need not wait for that.
func (r *Runtime) exited(ctx context.Context, id string, code uint32, at time.Time) {
	r.mu.Lock()
	uid, c := r.find(id)
	if c == nil || !c.started || c.state.Phase == agent.Exited {
		r.mu.Unlock()
		if uid != "" && id == pauseID(uid) {
			r.pauseEnded(ctx, uid)
		}
		return
	}
	record, oom := c.record, c.oom
	r.mu.Unlock()

	record.FinishedAt, record.ExitCode = at, int32(code)
	switch {
	case code == lostStatus:
		record.ExitCode, record.Reason = 255, "Unknown"
	case oom || r.cgroups.oomKills(r.cgroup(uid, id)) > 0:
		record.Reason = "OOMKilled"
	case code == 0:
		record.Reason = "Completed"
	default:
		record.Reason = "Error"
	}
	var err error
	if record.Message, err = r.message(uid, id, c.message.limit); err != nil {
		r.cfg.Log.Warn("termination message not read", "container", id, "err", err)
	}
	record.FromLog = c.message.fromLog && record.Message == "" && code != 0
	err = writeRecord(r.pod(uid).containerRecord(id), record)
	if record.FromLog {
		r.group.Go(func() { r.conclude(ctx, uid, id, c, record) })
		return
	}
	r.ended(ctx, uid, id, c, record, err)
}

// ended tells of an exit; unwritten is why it is not on record, if it is not. That is
// made up for when there is room on the disk: who waits for the end, perhaps to make
// that room, does not wait for it.
func (r *Runtime) ended(ctx context.Context, uid types.UID, id string, c *container, record containerRecord, unwritten error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, now := r.find(id); now != c || c.state.Phase == agent.Exited {
		return
	}
	r.finish(c, record)
	r.notify(uid)
	if unwritten == nil {
		r.cleanLater(ctx, id)
		return
	}
	r.cfg.Log.Error("exit not recorded yet", "container", id, "err", unwritten)
	r.group.Go(func() { r.recordLater(ctx, uid, id, c) })
}

// How soon, and how rarely at last, it is tried again to write an exit down.
const recordSoon, recordRarely = 100 * time.Millisecond, 10 * time.Second

// recordLater writes down how a container ended, as soon as that succeeds, and cleans up
// after it then: until it is on record only containerd knows of it, by what is left of
// its process.
func (r *Runtime) recordLater(ctx context.Context, uid types.UID, id string, c *container) {
	for wait := recordSoon; ; wait = min(2*wait, recordRarely) {
		select {
		case <-r.over:
			return // the next process asks containerd
		case <-time.After(wait):
		}
		r.mu.Lock()
		_, now := r.find(id)
		record := c.record
		r.mu.Unlock()
		if now != c {
			return // it was removed meanwhile
		}
		if err := writeRecord(r.pod(uid).containerRecord(id), record); err == nil {
			r.cleanLater(ctx, id)
			return
		}
	}
}

// cleanLater cleans up beside whatever comes next. If it fails, the next start,
// a look at the log or the container's removal does it.
func (r *Runtime) cleanLater(ctx context.Context, id string) {
	r.group.Go(func() {
		ctx, cancel := undo(ctx)
		defer cancel()
		if err := r.clean(ctx, id); err != nil {
			r.cfg.Log.Warn("dead container not cleaned up yet", "container", id, "err", err)
		}
	})
}

// finish puts an exit into the mirror. The caller holds mu.
func (r *Runtime) finish(c *container, record containerRecord) {
	c.record = record
	s := &c.state
	s.Phase, s.PID = agent.Exited, 0
	s.StartedAt, s.FinishedAt = record.StartedAt, record.FinishedAt
	s.ExitCode, s.Reason, s.Message = record.ExitCode, record.Reason, record.Message
	if !isClosed(c.dead) {
		close(c.dead)
	}
}

// clean deletes a dead container's task and completes its log. Several callers
// may want it; it is done once.
func (r *Runtime) clean(ctx context.Context, id string) error {
	unlock, err := r.locks.lock(ctx, "clean/"+id)
	if err != nil {
		return err
	}
	defer unlock()
	r.mu.Lock()
	_, c := r.find(id)
	r.mu.Unlock()
	if c == nil || isClosed(c.over) {
		return nil
	}
	if err := r.deleteTask(ctx, id); err != nil {
		return err
	}
	if err := r.cfg.Keeper.Close(ctx, id); err != nil {
		return err
	}
	close(c.over)
	return nil
}

// deleteTask takes away what is left of a process, killing it first where it was
// made and never started.
func (r *Runtime) deleteTask(ctx context.Context, id string) error {
	ts := r.client.TaskService()
	_, err := ts.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	if err = native(err); err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	if !errdefs.IsFailedPrecondition(err) {
		return fmt.Errorf("delete task of %s: %w", id, err)
	}
	if err := r.killTask(ctx, id); err != nil {
		return err
	}
	if _, err := ts.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id}); err != nil && !errdefs.IsNotFound(native(err)) {
		return fmt.Errorf("delete task of %s: %w", id, native(err))
	}
	return nil
}

// killTask kills all of a task's processes and returns when they have ended; at once if
// there is no such task.
func (r *Runtime) killTask(ctx context.Context, id string) error {
	ts := r.client.TaskService()
	_, err := ts.Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL), All: true})
	if err = native(err); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("kill task of %s: %w", id, err)
	}
	if _, err := ts.Wait(ctx, &tasks.WaitRequest{ContainerID: id}); err != nil && !errdefs.IsNotFound(native(err)) {
		return fmt.Errorf("wait for task of %s: %w", id, native(err))
	}
	return nil
}

// deleteOrphan takes away a task whose container is gone. containerd finds a task
// only through its container, so it gets one for the moment.
func (r *Runtime) deleteOrphan(ctx context.Context, id string) error {
	store := r.client.ContainerService()
	empty, err := typeurl.MarshalAny(&specs.Spec{})
	if err != nil {
		return fmt.Errorf("encode specification: %w", err)
	}
	_, err = store.Create(ctx, containers.Container{
		ID: id, Runtime: containers.RuntimeInfo{Name: runcRuntime, Options: r.runc}, Spec: empty, Labels: map[string]string{labelOrphan: "true"},
	})
	if errdefs.IsAlreadyExists(err) {
		var there containers.Container
		there, err = store.Get(ctx, id)
		if errdefs.IsNotFound(err) || err == nil && there.Labels[labelOrphan] == "" {
			return nil // it is no orphan
		}
	}
	if err != nil {
		return fmt.Errorf("delete task without container %s: %w", id, err)
	}
	err = r.deleteTask(ctx, id)
	if gone := store.Delete(ctx, id); gone != nil && !errdefs.IsNotFound(gone) {
		err = errors.Join(err, fmt.Errorf("delete task without container %s: %w", id, gone))
	}
	return err
}
