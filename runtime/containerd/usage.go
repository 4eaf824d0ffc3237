package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
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
