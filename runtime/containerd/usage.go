package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/volume"
)

// Usage is agent.Runtime's: it reads the cgroups of the containers, and asks containerd
// for nothing.
func (r *Runtime) Usage(ctx context.Context, uids ...types.UID) ([]agent.Usage, error) {
	var out []agent.Usage
	r.mu.Lock()
	for _, uid := range uids {
		sb := r.sandboxes[uid]
		if sb == nil {
			continue
		}
		for _, c := range sb.containers {
			if c.state.Phase == agent.Running {
				out = append(out, agent.Usage{Pod: uid, Container: c.state.Name, ID: c.state.ID})
			}
		}
	}
	r.mu.Unlock()
	kept := out[:0]
	for _, u := range out {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var err error
		u.Time = r.cfg.Now()
		u.CPU, u.Memory, err = r.cgroups.usage(r.cgroup(u.Pod, u.ID))
		switch {
		case gone(err):
			continue // it has ended meanwhile
		case err != nil:
			return nil, fmt.Errorf("container %s of pod %s: %w", u.Container, u.Pod, err)
		}
		if u.Processes, err = r.cgroups.processes(r.cgroup(u.Pod, u.ID)); err != nil && !gone(err) {
			return nil, fmt.Errorf("container %s of pod %s: %w", u.Container, u.Pod, err)
		}
		kept = append(kept, u)
	}
	return kept, nil
}

// usage reads the CPU time that the processes of a cgroup have used, and its working
// set as Kubernetes counts it: all of its memory but for the pages of files that were
// not used lately. It is negative where no controller counts memory.
func (c cgroups) usage(path string) (cpu time.Duration, memory int64, err error) {
	counted, used, inactive := "cpuacct.usage", "memory.usage_in_bytes", "total_inactive_file"
	if c.unified {
		counted, used, inactive = "cpu.stat", "memory.current", "inactive_file"
	}
	data, err := os.ReadFile(filepath.Join(c.cpuacct, path, counted))
	if err != nil {
		return 0, 0, fmt.Errorf("read CPU time: %w", err)
	}
	text, unit := strings.TrimSpace(string(data)), time.Nanosecond
	if c.unified {
		text, unit = field(string(data), "usage_usec"), time.Microsecond
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("read CPU time: %w", err)
	}
	cpu = time.Duration(n) * unit
	data, err = os.ReadFile(filepath.Join(c.memory, path, used))
	if c.unified && gone(err) {
		if _, there := os.Stat(filepath.Join(c.memory, path)); there == nil {
			return cpu, -1, nil
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read memory: %w", err)
	}
	if memory, err = strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err != nil {
		return 0, 0, fmt.Errorf("read memory: %w", err)
	}
	if data, err = os.ReadFile(filepath.Join(c.memory, path, "memory.stat")); err != nil {
		return 0, 0, fmt.Errorf("read memory: %w", err)
	}
	cached, err := strconv.ParseInt(field(string(data), inactive), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("read memory: %s: %w", inactive, err)
	}
	return cpu, max(memory-cached, 0), nil
}

// processes counts those, and threads, in a cgroup and those under it; 0 where no
// controller counts them.
func (c cgroups) processes(path string) (int64, error) {
	if c.pids == "" {
		return 0, nil
	}
	data, err := os.ReadFile(filepath.Join(c.pids, path, "pids.current"))
	if err != nil {
		return 0, fmt.Errorf("count processes: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count processes: %w", err)
	}
	return n, nil
}

// Written is agent.Runtime's: containerd measures the layers, and the logs' files are
// added up, and the others of ours that containers can write.
func (r *Runtime) Written(ctx context.Context, uids ...types.UID) ([]agent.Written, error) {
	type attempt struct{ id, log string }
	attempts := map[types.UID]map[string][]attempt{}
	r.mu.Lock()
	for _, uid := range uids {
		if sb := r.sandboxes[uid]; sb != nil {
			attempts[uid] = map[string][]attempt{}
			for _, c := range sb.containers {
				attempts[uid][c.state.Name] = append(attempts[uid][c.state.Name], attempt{c.state.ID, c.state.LogPath})
			}
		}
	}
	r.mu.Unlock()
	snapshots := r.client.SnapshotService(snapshotter)
	var out []agent.Written
	for _, uid := range uids {
		for _, name := range slices.Sorted(maps.Keys(attempts[uid])) {
			w := agent.Written{Pod: uid, Container: name}
			for _, a := range attempts[uid][name] {
				used, err := snapshots.Usage(ctx, a.id)
				if err != nil && !errdefs.IsNotFound(err) {
					return nil, fmt.Errorf("measure the layer of container %s of pod %s: %w", name, uid, err)
				}
				w.Add(volume.Room{Bytes: used.Size, Inodes: used.Inodes})
				logs, err := logFiles(a.log)
				if err != nil {
					return nil, fmt.Errorf("measure the log of container %s of pod %s: %w", name, uid, err)
				}
				w.Add(logs)
				said, err := plainRoom(r.pod(uid).path("containers", a.id+".message"))
				if err != nil {
					return nil, fmt.Errorf("measure the termination message of container %s of pod %s: %w", name, uid, err)
				}
				w.Add(said)
			}
			out = append(out, w)
		}
		if attempts[uid] != nil {
			shared, err := sharedFiles(r.pod(uid))
			if err != nil {
				return nil, fmt.Errorf("measure the files of pod %s: %w", uid, err)
			}
			if shared.Bytes > 0 {
				out = append(out, agent.Written{Pod: uid, Room: shared})
			}
		}
		delete(attempts, uid) // one that is named twice is told of once
	}
	return out, nil
}

// smallFiles is up to what size, in bytes, the files that all containers of a pod have
// are as we wrote them: they count for nobody then.
const smallFiles = 64 << 10

// sharedFiles adds up the files that all containers of a pod have, if one of them has
// written to them.
func sharedFiles(dir podDir) (out volume.Room, err error) {
	for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
		one, err := plainRoom(dir.path(name))
		if err != nil {
			return volume.Room{}, err
		}
		if one.Bytes > smallFiles {
			out.Add(one)
		}
	}
	return out, nil
}

// plainRoom is what one file takes of the disk.
func plainRoom(path string) (volume.Room, error) {
	var s unix.Stat_t
	err := unix.Lstat(path, &s)
	if errors.Is(err, fs.ErrNotExist) {
		return volume.Room{}, nil
	}
	if err != nil {
		return volume.Room{}, err
	}
	return volume.Room{Bytes: s.Blocks * 512, Inodes: 1}, nil
}

// logFiles adds up a log and what was rotated out of it.
func logFiles(path string) (out volume.Room, err error) {
	if path == "" {
		return out, nil
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), filepath.Base(path)) {
			continue
		}
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // rotated away meanwhile
		}
		if err != nil {
			return out, err
		}
		out.Add(volume.Room{Bytes: info.Size(), Inodes: 1})
	}
	return out, nil
}

// field is the value after a name, in a file of one name and value per line.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// gone says whether a file could not be read because its cgroup is not there any more.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
