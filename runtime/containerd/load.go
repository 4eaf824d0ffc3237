package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

func isStopped(p *task.Process) bool { return p.GetStatus() == task.Status_STOPPED }

// load reads everything: one list of containers, one of tasks, our records. It
// makes the mirror what they say, keeping those who wait for a container's end.
func (r *Runtime) load(ctx context.Context) error {
	before := r.ids() // one that is made meanwhile is not in the lists and not gone either
	found, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	list, err := r.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return fmt.Errorf("list tasks: %w", native(err))
	}
	processes := make(map[string]*task.Process, len(list.Tasks))
	for _, p := range list.Tasks {
		processes[p.ID] = p
	}
	records, err := r.readSandboxes()
	if err != nil {
		return err
	}
	pauses := r.loadPauses(found, processes, records)
	ids, orphans := map[string]bool{}, map[string]bool{}
	strangers := map[string]agent.ForeignContainer{}
	for id := range processes {
		orphans[id] = true
	}
	for _, c := range found {
		switch {
		case c.Labels[labelOrphan] != "": // left by a kill
			orphans[c.ID] = true
			continue
		case pauses[c.ID]:
		case foreign(c): // left alone, and told
			strangers[c.ID] = r.foreignOf(c)
		default:
			ids[c.ID] = true
			if err := r.loadContainer(ctx, c, processes[c.ID], records); err != nil {
				// Not as we made it: left alone, and no reason to know nothing of the rest.
				r.cfg.Log.Error("container not understood", "container", c.ID, "err", err)
			}
		}
		delete(orphans, c.ID)
	}
	for id := range orphans {
		if err := r.deleteOrphan(ctx, id); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.strangers = strangers
	for _, rec := range records {
		if sb := r.sandboxes[rec.record.UID]; sb != nil {
			sb.record, sb.ready = rec.record, rec.ready
		} else {
			r.sandboxes[rec.record.UID] = &sandbox{record: rec.record, ready: rec.ready, containers: map[string]*container{}}
		}
	}
	for uid, sb := range r.sandboxes {
		for id, c := range sb.containers {
			if !ids[id] && before[id] {
				if !isClosed(c.dead) {
					close(c.dead)
				}
				delete(sb.containers, id)
				delete(r.owners, id)
			}
		}
		if _, known := records[uid]; !known && len(sb.containers) == 0 {
			delete(r.sandboxes, uid)
		}
	}
	return nil
}

// ids of the containers in the mirror.
func (r *Runtime) ids() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make(map[string]bool, len(r.owners))
	for id := range r.owners {
		ids[id] = true
	}
	return ids
}

// found is a sandbox as our files have it.
type found struct {
	record sandboxRecord
	ready  bool
}

// readSandboxes reads the records of all sandboxes and looks whether their
// namespaces live.
func (r *Runtime) readSandboxes() (map[types.UID]found, error) {
	entries, err := os.ReadDir(filepath.Join(r.cfg.Dir, "pods"))
	if err != nil {
		return nil, fmt.Errorf("read pods: %w", err)
	}
	out := map[types.UID]found{}
	for _, e := range entries {
		uid := types.UID(e.Name())
		if validUID(uid) != nil {
			continue
		}
		var f found
		ok, err := readRecord(r.pod(uid).record(), &f.record)
		if err != nil {
			return nil, err
		}
		if !ok || f.record.UID != uid {
			// Torn by a power loss: nothing of it runs, but files and addresses may
			// be there until the pod is removed.
			f.record = sandboxRecord{UID: uid}
		}
		f.ready = (f.record.Whole || len(f.record.IPs) > 0) && !f.record.Stopped
		for _, n := range pinned() {
			if slices.Contains(f.record.Shared, n.kind) {
				continue
			}
			live, err := isPinned(r.pod(uid).ns(n.kind))
			if err != nil {
				return nil, err
			}
			f.ready = f.ready && live
		}
		out[uid] = f
	}
	return out, nil
}

// loadContainer brings one container of containerd into the mirror.
func (r *Runtime) loadContainer(ctx context.Context, c containers.Container, p *task.Process, records map[types.UID]found) error {
	uid := types.UID(c.Labels[labelUID])
	if err := validUID(uid); err != nil {
		return fmt.Errorf("container %s: %w", c.ID, err)
	}
	attempt, err := strconv.Atoi(c.Labels[labelAttempt])
	if err != nil {
		return fmt.Errorf("container %s: attempt: %w", c.ID, err)
	}
	dir := r.pod(uid)
	var record containerRecord
	if _, err := readRecord(dir.containerRecord(c.ID), &record); err != nil {
		return err
	}
	made := 0
	if text := c.Labels[labelMade]; text != "" { // else made before sandboxes were counted
		if made, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("container %s: sandbox: %w", c.ID, err)
		}
	}
	state := agent.ContainerState{
		ID: c.ID, Name: c.Labels[labelName], Attempt: attempt, Made: made, SpecHash: c.Labels[labelHash], Phase: agent.Created,
		Image: c.Labels[labelImage], ImageID: c.Labels[labelImageID], CreatedAt: c.CreatedAt,
		StartedAt: record.StartedAt, LogPath: dir.log(c.Labels[labelName], attempt), StopSignal: signalName(c.Labels[labelStopSignal]),
	}
	r.mu.Lock()
	sb := r.sandboxes[uid]
	if sb == nil {
		f, ok := records[uid]
		if !ok {
			f.record = sandboxRecord{UID: uid, Namespace: c.Labels[labelNamespace], Name: c.Labels[labelPod], CreatedAt: c.CreatedAt}
		}
		sb = &sandbox{record: f.record, ready: f.ready, containers: map[string]*container{}}
		r.sandboxes[uid] = sb
	}
	known := sb.containers[c.ID]
	if known == nil {
		known = newContainer(state)
		known.record, known.stopSignal = record, c.Labels[labelStopSignal]
		known.message = readMessage(c.Labels[labelMessage])
		sb.containers[c.ID] = known
		r.owners[c.ID] = uid
	}
	alreadyDead := known.state.Phase == agent.Exited
	switch {
	case alreadyDead:
	case !record.FinishedAt.IsZero() && record.FromLog:
		known.started = true
		r.mu.Unlock()
		r.conclude(ctx, uid, c.ID, known, record)
		return nil
	case !record.FinishedAt.IsZero():
		r.finish(known, record)
	case p != nil && (p.Status == task.Status_RUNNING || p.Status == task.Status_PAUSED || p.Status == task.Status_PAUSING):
		known.started = true
		known.state.Phase, known.state.PID = agent.Running, p.Pid
		if known.state.StartedAt.IsZero() { // its record was lost; it cannot have started before it was made
			known.state.StartedAt = c.CreatedAt
			known.record.StartedAt = c.CreatedAt
		}
	case p != nil && p.Status == task.Status_STOPPED, p == nil && !record.StartedAt.IsZero():
		known.started = true
	}
	phase, over := known.state.Phase, isClosed(known.over)
	r.mu.Unlock()

	switch {
	case phase == agent.Exited && !over:
		r.cleanLater(ctx, c.ID)
	case phase == agent.Exited:
	case p != nil && p.Status == task.Status_STOPPED:
		r.exited(ctx, c.ID, p.ExitStatus, p.ExitedAt.AsTime())
	case p == nil && !record.StartedAt.IsZero():
		// Its process ended with its shim, in a reboot most likely; or while containerd
		// was away, which from 1.7 on forgets such a task and how it ended.
		r.isOver(ctx, c.ID)
	}
	return nil
}

// tidy frees, at start, what belongs to nothing: snapshots of containers that
// were never made, output that nobody writes, addresses of pods that are gone.
func (r *Runtime) tidy(ctx context.Context) error {
	r.mu.Lock()
	live := map[string]bool{}
	for uid := range r.sandboxes {
		live[string(uid)] = true
	}
	r.mu.Unlock()
	containers := r.ids()

	var stale []string
	err := r.client.SnapshotService(snapshotter).Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind == snapshots.KindActive && !containers[info.Name] {
			stale = append(stale, info.Name)
		}
		return nil
	}, `labels."`+labelRoot+`"`)
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	errs := []error{r.endCommands(ctx), r.endInputs(ctx)}
	for _, key := range stale {
		if err := r.client.SnapshotService(snapshotter).Remove(ctx, key); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove leftover snapshot: %w", err))
		}
	}
	open, err := r.cfg.Keeper.List(ctx)
	if err != nil {
		return err
	}
	for _, id := range open {
		if !containers[id] {
			errs = append(errs, r.cfg.Keeper.Close(ctx, id))
		}
	}
	slices.Sort(stale)
	return errors.Join(append(errs, r.cfg.Network.Reconcile(ctx, live))...)
}
