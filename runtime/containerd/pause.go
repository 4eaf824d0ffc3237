package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The containers of a pod with shareProcessNamespace see one another's processes. Such a
// namespace lives as long as its first process, and no container's may be that, since
// each may end while the others run on: it is one of ours, as the pause container of
// Kubernetes' engines. Pods without that field have none.

const (
	// labelPause is on the container of a pod's first process.
	labelPause = "headway.dev/pause"
	pauseUser  = 65535 // nobody's else: whoever may look into it finds nothing
)

// pauseID is the id of a pod's first process. No container has the empty name.
func pauseID(uid types.UID) string { return idOf(uid, "", 0) }

// shares says whether the containers of a pod share a PID namespace of their own.
func shares(pod *corev1.Pod) bool { return isTrue(pod.Spec.ShareProcessNamespace) }

// makePause makes the first process of a pod, and pins its PID namespace. One that an
// interrupted call made, or an earlier sandbox had, goes before.
func (r *Runtime) makePause(ctx context.Context, pod *corev1.Pod, dir podDir) error {
	if err := r.removePause(ctx, pod.UID, dir); err != nil {
		return err
	}
	id := pauseID(pod.UID)
	r.noteOwner(id, pod.UID) // before there is an event of it
	root, err := r.pauseRoot()
	if err != nil {
		return err
	}
	packed, err := typeurl.MarshalAny(r.pauseSpec(pod, dir, root))
	if err != nil {
		return fmt.Errorf("encode specification: %w", err)
	}
	_, err = r.record(ctx, containers.Container{
		ID: id, Spec: packed, Runtime: containers.RuntimeInfo{Name: runcRuntime, Options: r.runc},
		Labels: map[string]string{labelUID: string(pod.UID), labelNamespace: pod.Namespace, labelPod: pod.Name, labelPause: "true"},
	})
	if err != nil {
		return err
	}
	pid, err := r.task(ctx, &tasks.CreateTaskRequest{ContainerID: id}, nil)
	if err != nil {
		return err
	}
	if err := pinPIDs(int(pid), id, dir.ns("pid")); err != nil {
		return err
	}
	if _, err := r.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: id}); err != nil {
		return fmt.Errorf("start: %w", native(err))
	}
	return nil
}

// noteOwner notes whose a container is.
func (r *Runtime) noteOwner(id string, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners[id] = uid
}

// pauseRoot is the empty folder that such processes have for a root.
func (r *Runtime) pauseRoot() (string, error) {
	root, err := filepath.Abs(filepath.Join(r.cfg.Dir, "pause"))
	if err != nil {
		return "", err
	}
	for _, name := range []string{"proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return "", fmt.Errorf("make root of first processes: %w", err)
		}
	}
	f, err := os.OpenFile(filepath.Join(root, "pause"), os.O_RDONLY|os.O_CREATE, 0o755)
	if err != nil {
		return "", fmt.Errorf("make root of first processes: %w", err)
	}
	return root, f.Close()
}

// pauseSpec gives the process nothing that a container of the pod which may trace it
// could gain: no capability, no file but its own program.
func (r *Runtime) pauseSpec(pod *corev1.Pod, dir podDir, root string) *specs.Spec {
	b := blueprint{dir: dir, cgroups: r.cgroups}
	b.spec.Pod = pod
	s := &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: root, Readonly: true},
		Process: &specs.Process{
			Args: []string{"/pause", "pause"}, Cwd: "/", User: specs.User{UID: pauseUser, GID: pauseUser},
			Capabilities: &specs.LinuxCapabilities{}, NoNewPrivileges: true, OOMScoreAdj: new(int(max(-998, r.lowest))),
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k"}},
			{Destination: "/pause", Type: "bind", Source: r.cfg.Pause, Options: []string{"bind", "rprivate", "ro", "nosuid", "nodev"}},
		},
		Linux: &specs.Linux{
			Namespaces:  b.namespaces(),
			CgroupsPath: r.cgroup(pod.UID, pauseID(pod.UID)),
			Resources:   &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
		},
	}
	s.Linux.Seccomp = seccomp.DefaultProfile(s)
	return s
}

// pinPIDs keeps the PID namespace of a container's process by a bind mount on path. The
// descriptor is opened before the process is checked and asked for after the mount, so
// its number cannot have become another's.
func pinPIDs(pid int, id, path string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	in, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return fmt.Errorf("read cgroup of process %d: %w", pid, err)
	}
	if !strings.Contains(string(in), "/"+id+"\n") {
		return fmt.Errorf("process %d is not of container %s", pid, id)
	}
	if err := unmount(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o400)
	if err != nil {
		return fmt.Errorf("keep namespace: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("keep namespace: %w", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/pid", pid), path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("keep namespace %s: %w", path, err)
	}
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
		return errors.Join(fmt.Errorf("first process of pod: %w", err), unmount(path))
	}
	return nil
}

// removePause takes a pod's first process away, and with it whatever runs in its
// namespace.
func (r *Runtime) removePause(ctx context.Context, uid types.UID, dir podDir) error {
	id := pauseID(uid)
	r.mu.Lock()
	_, made := r.owners[id]
	r.mu.Unlock()
	if !made {
		return nil
	}
	if err := r.killTask(ctx, id); err != nil {
		return err
	}
	if err := r.deleteTask(ctx, id); err != nil {
		return err
	}
	if err := r.client.ContainerService().Delete(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove first process of pod: %w", err)
	}
	if err := unmount(dir.ns("pid")); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owners, id)
	return nil
}

// pauseEnded notes that a pod's first process may have ended: its sandbox is as good as
// gone then, since the kernel ends all of the namespace and begins nothing new there.
// What the event was of may have been replaced since.
func (r *Runtime) pauseEnded(ctx context.Context, uid types.UID) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	runs, err := r.pauseRuns(ctx, uid)
	if err != nil {
		// The next start, or the next load, finds out.
		r.cfg.Log.Warn("first process of a pod not looked at", "uid", uid, "err", err)
		return
	}
	if runs {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb := r.sandboxes[uid]; sb != nil && sb.ready {
		sb.ready = false
		r.notify(uid)
	}
}

// pauseRuns asks containerd whether a pod's first process runs.
func (r *Runtime) pauseRuns(ctx context.Context, uid types.UID) (bool, error) {
	got, err := r.client.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: pauseID(uid)})
	if err = native(err); errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at first process of pod: %w", err)
	}
	return got.Process.GetStatus() == task.Status_RUNNING, nil
}

// loadPauses brings the first processes into the mirror: a sandbox whose own is gone is
// not ready. It returns their ids; one of a pod that nobody knows is not among them.
func (r *Runtime) loadPauses(found []containers.Container, processes map[string]*task.Process, records map[types.UID]found) map[string]bool {
	known := map[string]bool{}
	for _, c := range found {
		uid := types.UID(c.Labels[labelUID])
		if _, ok := records[uid]; ok && c.Labels[labelPause] != "" && c.ID == pauseID(uid) {
			known[c.ID] = true
			r.noteOwner(c.ID, uid)
		}
	}
	for uid, f := range records {
		if !f.record.Pause {
			continue
		}
		id := pauseID(uid)
		f.ready = f.ready && known[id] && processes[id].GetStatus() == task.Status_RUNNING
		records[uid] = f
	}
	return known
}

// processNamespace is the path of the PID namespace that a container joins; "": it has
// its own, or the node's.
func (r *Runtime) processNamespace(ctx context.Context, pod *corev1.Pod, target string) (string, error) {
	if !shares(pod) {
		return r.target(target)
	}
	runs, err := r.pauseRuns(ctx, pod.UID)
	if err != nil {
		return "", err
	}
	if !runs {
		r.pauseEnded(ctx, pod.UID)
		return "", fmt.Errorf("the first process of the pod has ended: %w", errdefs.ErrUnavailable)
	}
	return r.pod(pod.UID).ns("pid"), nil
}
