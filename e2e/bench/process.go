package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is one process of a cluster.
type process struct {
	pid  int
	part string // headway, keeper, containerd or shims
}

// memory is what processes hold, in bytes: the pages that are theirs alone and
// have no file, and their share of all pages.
type memory struct {
	Anonymous int64 `json:"anonymous"`
	Pss       int64 `json:"pss"`
}

func (m *memory) add(other memory) {
	m.Anonymous += other.Anonymous
	m.Pss += other.Pss
}

// processes are those of the cluster, found by its data dir in their command
// lines. The containers' own are not among them.
func (c *cluster) processes() ([]process, error) {
	found := []process{{c.cmd.Process.Pid, "headway"}}
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range entries {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		line, err := os.ReadFile(path)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		name, _, _ := bytes.Cut(line, []byte{0})
		if pid == c.cmd.Process.Pid || !bytes.Contains(line, []byte(c.dir+"/")) {
			continue
		}
		for prefix, part := range map[string]string{"headway-keeper": "keeper", "containerd-shim": "shims", "containerd": "containerd"} {
			base := filepath.Base(string(name))
			if base == prefix || strings.HasPrefix(base, prefix+"-") && part != "containerd" {
				found = append(found, process{pid, part})
			}
		}
	}
	return found, nil
}

// gone says that a process has ended while it was looked at.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || err != nil && strings.Contains(err.Error(), "no such process")
}

// memory of one process, from the kernel's own sum over its mappings.
func (p process) memory() (memory, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid))
	if err != nil {
		return memory{}, err
	}
	var m memory
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		var target *int64
		switch fields[0] {
		case "Anonymous:":
			target = &m.Anonymous
		case "Pss:":
			target = &m.Pss
		default:
			continue
		}
		kb, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return memory{}, err
		}
		*target = kb << 10
	}
	return m, nil
}

// ticks per second of /proc/PID/stat; Linux shows 100 on every architecture.
const ticks = 100

// cpu is the processor time that the process has used.
func (p process) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold spaces; utime and stime are the 12th and
	// 13th field after it.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", p.pid, len(fields))
	}
	var sum int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// containerPid finds a process of a container by its control group.
func containerPid(id string) (int, error) {
	_, id, _ = strings.Cut(id, "://")
	entries, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, path := range entries {
		data, err := os.ReadFile(path)
		if gone(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if strings.Contains(string(data), id) {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, fmt.Errorf("no process of container %s", id)
}
