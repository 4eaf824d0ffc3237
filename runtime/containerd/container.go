package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	apitypes "github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/keeper"
)

// Labels by which a container is known again.
const (
	labelUID        = "headway.dev/pod-uid"
	labelNamespace  = "headway.dev/pod-namespace"
	labelPod        = "headway.dev/pod-name"
	labelName       = "headway.dev/container"
	labelAttempt    = "headway.dev/attempt"
	labelHash       = "headway.dev/hash"
	labelImage      = "headway.dev/image"
	labelImageID    = "headway.dev/image-id"
	labelStopSignal = "headway.dev/stop-signal"
	labelMessage    = "headway.dev/message" // how long its message can be, and whether the log can give it
	labelInput      = "headway.dev/input"   // what it has of an input and a terminal
	labelMade       = "headway.dev/sandbox" // which making of the sandbox it is of
	// labelRoot keeps containerd's garbage collector off a snapshot whose
	// container is not there yet.
	labelRoot = "containerd.io/gc.root"
)

const runcRuntime = "io.containerd.runc.v2"

// idOf derives the id of an attempt.
func idOf(uid types.UID, name string, attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", uid, name, attempt))
	return hex.EncodeToString(sum[:])
}

// StartContainer is agent.Runtime's.
func (r *Runtime) StartContainer(ctx context.Context, spec agent.ContainerSpec) (agent.ContainerState, error) {
	pod := spec.Pod
	if err := validUID(pod.UID); err != nil {
		return agent.ContainerState{}, err
	}
	unlock, err := r.locks.lock(ctx, string(pod.UID))
	if err != nil {
		return agent.ContainerState{}, err
	}
	defer unlock()
	id := idOf(pod.UID, spec.Container.Name, spec.Attempt)

	r.mu.Lock()
	sb := r.sandboxes[pod.UID]
	_, c := r.find(id)
	switch {
	case c != nil && c.state.Phase != agent.Created:
		state := c.state
		r.mu.Unlock()
		return state, nil
	case sb == nil || !sb.ready:
		r.mu.Unlock()
		return agent.ContainerState{}, fmt.Errorf("start container %s: pod %s/%s has no sandbox", spec.Container.Name, pod.Namespace, pod.Name)
	case !r.connected:
		r.mu.Unlock()
		return agent.ContainerState{}, fmt.Errorf("start container %s: containerd does not answer", spec.Container.Name)
	}
	r.mu.Unlock()

	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return agent.ContainerState{}, ctx.Err()
	}
	err = r.start(ctx, id, spec)
	r.mu.Lock()
	_, c = r.find(id)
	// A process can end, and its task be deleted, while containerd still looks for what
	// to answer: its "not found" then comes from a container that ran.
	if err != nil && (c == nil || c.state.Phase != agent.Exited) {
		r.mu.Unlock()
		return r.startFailed(ctx, id, spec, err)
	}
	defer r.mu.Unlock()
	if c == nil {
		return agent.ContainerState{}, fmt.Errorf("container %s was removed while it started", spec.Container.Name)
	}
	if c.state.Phase == agent.Created { // it may have ended already
		c.state.Phase = agent.Running
		r.notify(pod.UID)
	}
	return c.state, nil
}

// start performs an attempt, continuing where an interrupted call left it.
func (r *Runtime) start(ctx context.Context, id string, spec agent.ContainerSpec) error {
	if err := r.create(ctx, id, spec); err != nil {
		return err
	}
	if _, err := r.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: id}); err != nil {
		return fmt.Errorf("start: %w", native(err))
	}
	return nil
}

// create makes everything of an attempt, its process included, which waits to be
// started.
func (r *Runtime) create(ctx context.Context, id string, spec agent.ContainerSpec) error {
	uid, dir := spec.Pod.UID, r.pod(spec.Pod.UID)
	img, err := r.engine.known(ctx, spec.Image.Reference)
	if err != nil {
		return err
	}
	log := dir.log(spec.Container.Name, spec.Attempt)
	message := dir.path("containers", id+".message")
	if err := os.WriteFile(message, nil, 0o666); err != nil {
		return fmt.Errorf("make termination message: %w", err)
	}
	if err := os.Chmod(message, 0o666); err != nil { // whoever the container runs as
		return fmt.Errorf("make termination message: %w", err)
	}
	in, err := makeInput(dir, id, spec.Container)
	if err != nil {
		return err
	}
	errs := dir.stderr(id)
	if spec.Container.TTY {
		errs = "" // a terminal has none
	}
	err = r.cfg.Keeper.Open(ctx, keeper.Container{ID: id, Stdout: dir.stdout(id), Stderr: errs, Log: log})
	if err != nil {
		return err
	}
	rootfs, err := r.snapshot(ctx, id, img.ChainID)
	if err != nil {
		return err
	}
	user, err := r.engine.user(ctx, img, id, userName(spec))
	if err != nil {
		return err
	}
	user = withGroups(user, spec.Pod.Spec.SecurityContext)
	host, err := r.nodename(spec.Pod)
	if err != nil {
		return err
	}
	profile, err := r.seccomp(spec)
	if err != nil {
		return err
	}
	confined, err := r.confine(spec)
	if err != nil {
		return err
	}
	processes, err := r.processNamespace(ctx, spec.Pod, spec.Target)
	if err != nil {
		return err
	}
	oci, err := blueprint{
		spec: spec, host: host, image: img.Config, user: user, dir: dir, message: message, cgroup: r.cgroup(uid, id),
		oomScore: oomScore(spec.Pod, spec.Container, r.memory, r.lowest), cgroups: r.cgroups, pages: r.pages, caps: r.caps, seccomp: profile, confined: confined, processes: processes,
	}.build()
	if err != nil {
		return err
	}
	packed, err := typeurl.MarshalAny(oci)
	if err != nil {
		return fmt.Errorf("encode specification: %w", err)
	}
	record, _, _ := r.recorded(uid)
	stopSignal := stopSignalOf(spec, img.Config.StopSignal)
	created, err := r.record(ctx, containers.Container{
		ID: id, Image: img.Reference, Snapshotter: snapshotter, SnapshotKey: id, Spec: packed,
		Runtime: containers.RuntimeInfo{Name: runcRuntime, Options: r.runc},
		Labels: map[string]string{
			labelUID: string(uid), labelNamespace: spec.Pod.Namespace, labelPod: spec.Pod.Name,
			labelName: spec.Container.Name, labelAttempt: strconv.Itoa(spec.Attempt), labelHash: spec.Hash,
			labelImage: spec.Container.Image, labelImageID: spec.Image.Digest, labelStopSignal: stopSignal,
			labelMade: strconv.Itoa(record.Made), labelMessage: messageOf(spec).String(), labelInput: inputLabel(spec.Container),
		},
	})
	if err != nil {
		return err
	}
	pid, err := r.task(ctx, &tasks.CreateTaskRequest{
		ContainerID: id, Stdin: in, Stdout: dir.stdout(id), Stderr: errs, Terminal: spec.Container.TTY,
	}, rootfs)
	if err != nil {
		return err
	}
	now := r.cfg.Now()
	c := newContainer(agent.ContainerState{
		ID: id, Name: spec.Container.Name, Attempt: spec.Attempt, Made: record.Made, SpecHash: spec.Hash, Phase: agent.Created,
		Image: spec.Container.Image, ImageID: spec.Image.Digest, PID: pid, CreatedAt: created, StartedAt: now, LogPath: log,
		StopSignal: signalName(stopSignal),
	})
	c.record, c.stopSignal, c.started = containerRecord{StartedAt: now}, stopSignal, true
	c.message = messageOf(spec)
	if err := writeRecord(dir.containerRecord(id), c.record); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sandboxes[uid]
	if sb == nil {
		return errors.New("its sandbox is gone")
	}
	sb.containers[id] = c
	r.owners[id] = uid
	return nil
}

// target is the PID namespace of a running container; "": none is named.
func (r *Runtime) target(id string) (string, error) {
	if id == "" {
		return "", nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, c := r.find(id)
	if c == nil || c.state.Phase != agent.Running || c.state.PID == 0 {
		return "", fmt.Errorf("the container whose processes it is to see does not run: %w", errdefs.ErrUnavailable)
	}
	return fmt.Sprintf("/proc/%d/ns/pid", c.state.PID), nil
}

// stopSignalOf is the signal that a container is stopped with: the pod's, or the
// image's.
func stopSignalOf(spec agent.ContainerSpec, image string) string {
	if l := spec.Container.Lifecycle; l != nil && l.StopSignal != nil {
		return string(*l.StopSignal)
	}
	return image
}

// snapshot makes the container's writable layer, or finds it made.
func (r *Runtime) snapshot(ctx context.Context, id, chain string) ([]mount.Mount, error) {
	s := r.client.SnapshotService(snapshotter)
	labels := map[string]string{labelRoot: r.cfg.Now().UTC().Format(time.RFC3339)}
	mounts, err := s.Prepare(ctx, id, chain, snapshots.WithLabels(labels))
	if errdefs.IsAlreadyExists(err) {
		mounts, err = s.Mounts(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("make writable layer: %w", err)
	}
	return mounts, nil
}

// record makes the container known to containerd. One that an interrupted call
// made is made anew, since what it was made from may have changed.
func (r *Runtime) record(ctx context.Context, c containers.Container) (time.Time, error) {
	store := r.client.ContainerService()
	made, err := store.Create(ctx, c)
	if errdefs.IsAlreadyExists(err) {
		if err := r.deleteTask(ctx, c.ID); err != nil {
			return time.Time{}, err
		}
		if err := store.Delete(ctx, c.ID); err != nil && !errdefs.IsNotFound(err) {
			return time.Time{}, fmt.Errorf("remove half-made container: %w", err)
		}
		made, err = store.Create(ctx, c)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("create container: %w", err)
	}
	return made.CreatedAt, nil
}

// task makes the container's process, stopped before its first instruction.
func (r *Runtime) task(ctx context.Context, req *tasks.CreateTaskRequest, rootfs []mount.Mount) (uint32, error) {
	for _, m := range rootfs {
		req.Rootfs = append(req.Rootfs, &apitypes.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	deadline := time.Now().Add(settleTime)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		resp, err := r.client.TaskService().Create(ctx, req)
		switch err = native(err); {
		case err == nil:
			return resp.Pid, nil
		case errdefs.IsAlreadyExists(err): // an interrupted call made it
			if err := r.deleteTask(ctx, req.ContainerID); err != nil {
				return 0, err
			}
		case !inTheMaking(err):
			return 0, fmt.Errorf("create: %w", err)
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("create: another create of it does not end: %w", errdefs.ErrUnavailable)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// settleTime is how long containerd may need to finish or undo the create that
// it was at when the process that asked for it was killed.
const settleTime = 10 * time.Second

// inTheMaking reports whether containerd refuses a create because it is at one of
// the same id. There is no code for that, only the text of a failed mkdir.
func inTheMaking(err error) bool {
	return strings.Contains(err.Error(), "mkdir ") && strings.Contains(err.Error(), "file exists")
}

// startFailed ends an attempt that could not be started. Where the engine itself
// failed nothing is decided: the same attempt may be asked for again. Otherwise
// the attempt is over, as Kubernetes shows it: StartError, exit code 128.
func (r *Runtime) startFailed(ctx context.Context, id string, spec agent.ContainerSpec, cause error) (agent.ContainerState, error) {
	cause = scrubbed(fmt.Errorf("start container %s: %w", spec.Container.Name, cause), spec)
	ctx, cancel := undo(ctx)
	defer cancel()
	if errdefs.IsNotFound(cause) {
		r.engine.forget(spec.Image.Reference) // its layers may be what is gone
	}
	if ours(ctx, cause) || errdefs.IsNotFound(cause) {
		r.mu.Lock()
		if _, c := r.find(id); c != nil && c.state.Phase == agent.Created {
			c.started = false
		}
		r.mu.Unlock()
		return agent.ContainerState{}, cause
	}
	_, err := r.client.ContainerService().Get(ctx, id)
	if errdefs.IsNotFound(err) {
		// Nothing that List could show was made: give back what was.
		return agent.ContainerState{}, &agent.CreateError{Err: errors.Join(cause, r.discard(ctx, id))}
	}
	if err != nil {
		return agent.ContainerState{}, errors.Join(cause, err)
	}
	now := r.cfg.Now()
	record := containerRecord{StartedAt: now, FinishedAt: now, ExitCode: 128, Reason: "StartError", Message: cause.Error()}
	around, _, _ := r.recorded(spec.Pod.UID)
	if err := writeRecord(r.pod(spec.Pod.UID).containerRecord(id), record); err != nil {
		return agent.ContainerState{}, errors.Join(cause, err)
	}
	r.mu.Lock()
	_, c := r.find(id)
	if c == nil {
		c = newContainer(agent.ContainerState{
			ID: id, Name: spec.Container.Name, Attempt: spec.Attempt, Made: around.Made, SpecHash: spec.Hash, Image: spec.Container.Image,
			ImageID: spec.Image.Digest, CreatedAt: now, LogPath: r.pod(spec.Pod.UID).log(spec.Container.Name, spec.Attempt),
		})
		if sb := r.sandboxes[spec.Pod.UID]; sb != nil {
			sb.containers[id] = c
			r.owners[id] = spec.Pod.UID
		}
	}
	r.finish(c, record)
	state := c.state
	r.notify(spec.Pod.UID)
	r.mu.Unlock()
	return state, errors.Join(cause, r.clean(ctx, id))
}

// discard gives back what start made before the container was known.
func (r *Runtime) discard(ctx context.Context, id string) error {
	var errs []error
	if err := r.client.SnapshotService(snapshotter).Remove(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		errs = append(errs, fmt.Errorf("remove writable layer: %w", err))
	}
	return errors.Join(append(errs, r.cfg.Keeper.Close(ctx, id))...)
}

// RemoveContainer is agent.Runtime's.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	r.mu.Lock()
	uid, c := r.find(id)
	running := c != nil && c.started && c.state.Phase != agent.Exited
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	if running {
		return fmt.Errorf("remove container %s: it still runs", c.state.Name)
	}
	unlock, err := r.locks.lock(ctx, string(uid))
	if err != nil {
		return err
	}
	defer unlock()
	return r.removeContainer(ctx, id)
}

// removeContainer deletes a dead container: task, metadata, snapshot, record.
func (r *Runtime) removeContainer(ctx context.Context, id string) error {
	r.mu.Lock()
	uid, c := r.find(id)
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	if err := r.clean(ctx, id); err != nil {
		return err
	}
	if err := r.client.ContainerService().Delete(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove container %s: %w", c.state.Name, err)
	}
	if err := r.client.SnapshotService(snapshotter).Remove(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove writable layer of container %s: %w", c.state.Name, err)
	}
	dir := r.pod(uid)
	for _, path := range []string{dir.containerRecord(id), dir.path("containers", id+".message"), dir.stdin(id), dir.attached(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("remove record of container %s: %w", c.state.Name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb := r.sandboxes[uid]; sb != nil {
		delete(sb.containers, id)
	}
	delete(r.owners, id)
	return nil
}
