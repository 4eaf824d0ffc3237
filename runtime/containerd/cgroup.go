package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// cgroups knows where the machine's cgroup trees are: one on version 2, one per
// controller on version 1.
type cgroups struct {
	roots   []string
	memory  string // the tree with the memory controller
	cpuacct string // the tree that counts CPU time
	pids    string // the tree with the pids controller; "": there is none
	hugetlb string // the tree with the hugetlb controller; "": there is none
	unified bool
	groups  bool // version 2 counts memory, and can kill all of a container when it has none left
	weighs  bool // a controller divides the processors among pods; version 2 may lack it, or not let us turn it on
}

// findCgroups looks where they are, and turns on what pods need of them.
func findCgroups(log *slog.Logger) (cgroups, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return cgroups{}, fmt.Errorf("find cgroups: %w", err)
	}
	var c cgroups
	for _, m := range mounts {
		c.roots = append(c.roots, m.Mountpoint)
		controllers := strings.Split(m.VFSOptions, ",")
		switch {
		case m.FSType == "cgroup2" && m.Mountpoint == "/sys/fs/cgroup":
			c.unified, c.memory, c.cpuacct = true, m.Mountpoint, m.Mountpoint
			if c.groups = offers(m.Mountpoint, "memory"); offers(m.Mountpoint, "pids") {
				c.pids = m.Mountpoint
			}
			if offers(m.Mountpoint, "hugetlb") {
				c.hugetlb = m.Mountpoint
			}
		case m.FSType == "cgroup2":
		default:
			if slices.Contains(controllers, "memory") {
				c.memory = m.Mountpoint
			}
			if slices.Contains(controllers, "cpuacct") {
				c.cpuacct = m.Mountpoint
			}
			if slices.Contains(controllers, "pids") {
				c.pids = m.Mountpoint
			}
			if slices.Contains(controllers, "hugetlb") {
				c.hugetlb = m.Mountpoint
			}
		}
	}
	slices.Sort(c.roots)
	c.roots = slices.Compact(c.roots)
	c.weighs = true
	if c.unified {
		if c.weighs, err = turnOnCPU(c.memory, log); err != nil {
			return cgroups{}, fmt.Errorf("find cgroup controllers: %w", err)
		}
		for controller, there := range map[string]bool{"memory": c.groups, "pids": c.pids != ""} {
			if !there {
				continue
			}
			if err := turnOn(c.memory, controller); err != nil {
				log.Warn("a controller cannot be turned on: what pods are limited to together is not held", "controller", controller, "cgroup", c.memory, "error", err)
			}
		}
	}
	return c, nil
}

// turnOnCPU makes the cpu controller work in the cgroups below root, and says whether
// it does. systemd has turned it on, other inits have not; a machine that refuses it
// (for a real-time process, or a tree that is read-only) runs pods without it.
func turnOnCPU(root string, log *slog.Logger) (bool, error) {
	has := func(file string) (bool, error) {
		words, err := os.ReadFile(filepath.Join(root, file))
		return slices.Contains(strings.Fields(string(words)), "cpu"), err
	}
	there, err := has("cgroup.controllers")
	if err != nil || !there {
		return false, err
	}
	on, err := has("cgroup.subtree_control")
	if err != nil || on {
		return on, err
	}
	refused := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0)
	on, err = has("cgroup.subtree_control")
	if err == nil && !on {
		log.Warn("the cpu controller cannot be turned on: CPU requests have no effect on this node, and containers with a CPU limit may not start", "cgroup", root, "error", refused)
	}
	return on, err
}

// weigh makes the pods together weigh as much as all of the machine's CPUs, as
// Kubernetes does: what they have among themselves is set on each container. With
// the kernel's default they would all together get what one busy process gets.
func (c cgroups) weigh(path string, cpus int) error {
	shares := uint64(1024 * cpus)
	file, value := "cpu.shares", shares
	if c.unified {
		file, value = "cpu.weight", 1+(shares-2)*9999/262142
	}
	for _, root := range c.roots {
		_, err := os.Stat(filepath.Join(root, file))
		if c.unified && root != c.memory || !c.unified && err != nil {
			continue // not the tree of this controller
		}
		dir := filepath.Join(root, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup of pods: %w", err)
		}
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			continue // the controller is not on there
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatUint(value, 10)), 0); err != nil {
			return fmt.Errorf("weigh cgroup of pods: %w", err)
		}
	}
	return nil
}

// oomKills counts how often the kernel killed for memory in a cgroup.
func (c cgroups) oomKills(path string) int {
	file := "memory.oom_control"
	if c.unified {
		file = "memory.events"
	}
	data, err := os.ReadFile(filepath.Join(c.memory, path, file))
	if err != nil {
		return 0 // gone with its task; the event of containerd is the other witness
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
			if n, err := strconv.Atoi(f[1]); err == nil {
				return n
			}
		}
	}
	return 0
}

// remove deletes a cgroup with those under it in every tree. No process may be
// in it any more.
func (c cgroups) remove(path string) error {
	var errs []error
	for _, root := range c.roots {
		errs = append(errs, removeCgroup(filepath.Join(root, path)))
	}
	return errors.Join(errs...)
}

// kill kills every process in a cgroup and those under it.
func (c cgroups) kill(path string) error {
	top := filepath.Join(c.memory, path)
	return filepath.WalkDir(top, func(dir string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("find processes of pod: %w", err)
		case !e.IsDir():
			return nil
		}
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("find processes of pod: %w", err)
		}
		for _, word := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(word)
			if err != nil || pid <= 0 {
				continue
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d of pod: %w", pid, err)
			}
		}
		return nil
	})
}

// children names the cgroups in a cgroup: of a pod, its containers' ids.
func (c cgroups) children(path string) []string {
	var names []string
	for _, root := range c.roots {
		entries, err := os.ReadDir(filepath.Join(root, path))
		if err != nil {
			continue // not in this tree
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func removeCgroup(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	entries, readErr := os.ReadDir(dir)
	if readErr != nil {
		if errors.Is(readErr, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("remove cgroup: %w", readErr)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}
