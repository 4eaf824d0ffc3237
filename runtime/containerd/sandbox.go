package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/network"
)

// EnsureSandbox is agent.Runtime's.
func (r *Runtime) EnsureSandbox(ctx context.Context, spec agent.SandboxSpec) (agent.SandboxState, error) {
	pod := spec.Pod
	if err := validUID(pod.UID); err != nil {
		return agent.SandboxState{}, err
	}
	unlock, err := r.locks.lock(ctx, string(pod.UID))
	if err != nil {
		return agent.SandboxState{}, err
	}
	defer unlock()

	record, ready, known := r.recorded(pod.UID)
	if !ready {
		if err := r.makeSandbox(ctx, pod, record, known); err != nil {
			return agent.SandboxState{}, fmt.Errorf("make sandbox of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stateOf(r.sandboxes[pod.UID]), nil
}

// recorded returns what is known of a sandbox.
func (r *Runtime) recorded(uid types.UID) (record sandboxRecord, ready, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sandboxes[uid]
	if sb == nil {
		return sandboxRecord{}, false, false
	}
	return sb.record, sb.ready, true
}

// makeSandbox makes what is missing of a sandbox. known: there was one, perhaps
// half made, perhaps before a reboot.
func (r *Runtime) makeSandbox(ctx context.Context, pod *corev1.Pod, record sandboxRecord, known bool) error {
	dir := r.pod(pod.UID)
	if known {
		record.Made++
	} else {
		record = sandboxRecord{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, CreatedAt: r.cfg.Now()}
	}
	ports, err := hostPorts(pod)
	if err != nil {
		return err
	}
	name, err := r.nodename(pod)
	if err != nil {
		return err
	}
	previous := network.Pod{ID: string(pod.UID), Ports: record.Ports}
	record.Ports, record.IPs, record.Whole, record.Shared, record.Pause, record.Stopped = ports, nil, false, notOwn(pod), shares(pod), false
	for _, d := range []string{"containers", "logs"} {
		if err := os.MkdirAll(dir.path(d), 0o700); err != nil {
			return fmt.Errorf("make directory of pod: %w", err)
		}
	}
	if err := writeRecord(dir.record(), record); err != nil {
		return err
	}
	r.setSandbox(record, false)
	if known {
		if err := r.cfg.Network.Remove(ctx, previous); err != nil {
			return err
		}
	}
	if r.cfg.PIDs > 0 {
		if err := r.cgroups.boundPIDs(r.cgroup(pod.UID, ""), r.cfg.PIDs); err != nil {
			return err
		}
	}
	if err := pin(dir.path("ns"), own(pod), name, sysctls(pod)); err != nil {
		return err
	}
	if record.Pause {
		if err := r.makePause(ctx, pod, dir); err != nil {
			return err
		}
	}
	if !pod.Spec.HostIPC {
		if err := mountShm(dir.path("shm")); err != nil {
			return err
		}
	}
	if !pod.Spec.HostNetwork {
		ips, err := r.cfg.Network.Add(ctx, network.Pod{ID: string(pod.UID), NetNS: dir.ns("net"), Ports: ports})
		if err != nil {
			return err
		}
		for _, ip := range ips {
			record.IPs = append(record.IPs, ip.String())
		}
	}
	if err := r.writeFiles(dir, pod, record.IPs); err != nil {
		return err
	}
	record.Whole = true
	if err := writeRecord(dir.record(), record); err != nil {
		return err
	}
	r.setSandbox(record, true)
	return nil
}

func (r *Runtime) setSandbox(record sandboxRecord, ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sandboxes[record.UID]
	if sb == nil {
		sb = &sandbox{containers: map[string]*container{}}
		r.sandboxes[record.UID] = sb
	}
	sb.record, sb.ready = record, ready
}

// hostPorts are the ports of the node that are led to a pod. One that has the node's
// network listens on them itself.
func hostPorts(pod *corev1.Pod) ([]network.Port, error) {
	if pod.Spec.HostNetwork {
		return nil, nil
	}
	var out []network.Port
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			port := network.Port{
				HostPort: uint16(p.HostPort), ContainerPort: uint16(p.ContainerPort), Protocol: strings.ToLower(string(p.Protocol)),
			}
			if port.Protocol == "" {
				port.Protocol = "tcp"
			}
			if p.HostIP != "" {
				ip, err := netip.ParseAddr(p.HostIP)
				if err != nil {
					return nil, fmt.Errorf("host ip of port %d: %w", p.ContainerPort, err)
				}
				port.HostIP = ip
			}
			out = append(out, port)
		}
	}
	return out, nil
}

// StopSandbox is agent.Runtime's.
func (r *Runtime) StopSandbox(ctx context.Context, uid types.UID) error {
	unlock, err := r.locks.lock(ctx, string(uid))
	if err != nil {
		return err
	}
	defer unlock()
	record, _, known := r.recorded(uid)
	if !known || record.Stopped {
		return nil
	}
	if err := r.stopSandbox(ctx, record); err != nil {
		return fmt.Errorf("stop sandbox of pod %s/%s: %w", record.Namespace, record.Name, err)
	}
	return nil
}

func (r *Runtime) stopSandbox(ctx context.Context, record sandboxRecord) error {
	for _, c := range r.containersOf(record.UID) {
		if !isClosed(c.dead) && c.started {
			return fmt.Errorf("container %s still runs", c.state.Name)
		}
	}
	dir := r.pod(record.UID)
	if err := r.dismantle(ctx, record, dir); err != nil {
		return err
	}
	record.Stopped, record.Whole, record.Ports, record.IPs = true, false, nil, nil
	// On a full disk the volumes of this very pod may be what fills it, and they go only
	// when it has stopped. Its namespaces are gone, by which a restart finds it not ready.
	if err := writeRecord(dir.record(), record); err != nil {
		r.cfg.Log.Warn("stop of a pod not recorded", "namespace", record.Namespace, "pod", record.Name, "err", err)
	}
	r.setSandbox(record, false)
	return nil
}

// dismantle gives back network, namespaces and cgroup.
func (r *Runtime) dismantle(ctx context.Context, record sandboxRecord, dir podDir) error {
	for _, c := range r.containersOf(record.UID) {
		if err := r.clean(ctx, c.state.ID); err != nil { // its task holds the cgroup
			return err
		}
	}
	if err := r.removePause(ctx, record.UID, dir); err != nil {
		return err
	}
	err := r.cfg.Network.Remove(ctx, network.Pod{ID: string(record.UID), NetNS: dir.ns("net"), Ports: record.Ports})
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range pinned() {
		errs = append(errs, unmount(dir.ns(n.kind)))
	}
	errs = append(errs, unmount(dir.path("shm")), r.removeCgroup(ctx, record.UID))
	return errors.Join(errs...)
}

// removeCgroup deletes a pod's cgroup. Its containers are gone; a process in it is
// what containerd was making when the process that asked for it was killed.
func (r *Runtime) removeCgroup(ctx context.Context, uid types.UID) error {
	path := r.cgroup(uid, "")
	deadline := time.Now().Add(settleTime)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		err := r.cgroups.remove(path)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		if err := r.cgroups.kill(path); err != nil {
			return err
		}
		for _, id := range r.cgroups.children(path) {
			if err := r.deleteOrphan(ctx, id); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// RemoveSandbox is agent.Runtime's.
func (r *Runtime) RemoveSandbox(ctx context.Context, uid types.UID) error {
	if err := validUID(uid); err != nil {
		return err
	}
	unlock, err := r.locks.lock(ctx, string(uid))
	if err != nil {
		return err
	}
	defer unlock()
	return r.removeSandbox(ctx, uid)
}

func (r *Runtime) removeSandbox(ctx context.Context, uid types.UID) error {
	dir := r.pod(uid)
	record, _, known := r.recorded(uid)
	if !known {
		if _, err := os.Lstat(string(dir)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		record = sandboxRecord{UID: uid}
	}
	for _, c := range r.containersOf(uid) {
		if err := r.StopContainer(ctx, c.state.ID, 0); err != nil {
			return err
		}
		if err := r.removeContainer(ctx, c.state.ID); err != nil {
			return err
		}
	}
	if err := r.dismantle(ctx, record, dir); err != nil {
		return fmt.Errorf("remove sandbox of pod %s: %w", uid, err)
	}
	if err := removeDir(dir); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, uid)
	return nil
}

// removeDir deletes a pod's files, its record last: until then it is known.
func removeDir(dir podDir) error {
	entries, err := os.ReadDir(string(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove files of pod: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(string(dir), e.Name())
		if path == dir.record() {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove files of pod: %w", err)
		}
	}
	if err := os.RemoveAll(string(dir)); err != nil {
		return fmt.Errorf("remove files of pod: %w", err)
	}
	return nil
}

// containersOf returns a pod's containers.
func (r *Runtime) containersOf(uid types.UID) []*container {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sandboxes[uid]
	if sb == nil {
		return nil
	}
	out := make([]*container, 0, len(sb.containers))
	for _, c := range sb.containers {
		out = append(out, c)
	}
	return out
}

// cgroup of a pod, or of a container in it.
func (r *Runtime) cgroup(uid types.UID, id string) string {
	return filepath.Join(r.cfg.CgroupParent, "pod"+string(uid), id)
}
