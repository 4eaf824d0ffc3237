package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Level is how much of something there is and how much of it is free.
type Level struct{ Free, All int64 }

// Host is how full the machine is. A signal that the machine has not is missing.
type Host map[Signal]Level

// ReadHost asks the machine. The folders are those that pods write to and that images
// are in; "" leaves the signals of one out.
func ReadHost(disk, images string) (Host, error) {
	h := Host{}
	memory, err := meminfo()
	if err != nil {
		return nil, err
	}
	// As Kubernetes counts it: pages of files that were not used lately are free.
	h[MemoryAvailable] = Level{Free: memory["MemFree"] + memory["Inactive(file)"], All: memory["MemTotal"]}
	for _, f := range []struct {
		path          string
		bytes, inodes Signal
	}{{disk, DiskAvailable, DiskInodes}, {images, ImageAvailable, ImageInodes}} {
		if f.path == "" {
			continue
		}
		var s unix.Statfs_t
		if err := unix.Statfs(f.path, &s); err != nil {
			return nil, fmt.Errorf("ask for the room in %s: %w", f.path, err)
		}
		h[f.bytes] = Level{Free: int64(s.Bavail) * s.Bsize, All: int64(s.Blocks) * s.Bsize}
		if s.Files > 0 { // btrfs has no bound of its own
			h[f.inodes] = Level{Free: int64(s.Ffree), All: int64(s.Files)}
		}
	}
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	h[PIDAvailable] = pids
	return h, nil
}

// meminfo are the lines of /proc/meminfo, in bytes.
func meminfo() (map[string]int64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, fmt.Errorf("read the machine's memory: %w", err)
	}
	out := map[string]int64{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 3 && f[2] == "kB" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read the machine's memory: %q: %w", lines.Text(), err)
			}
			out[strings.TrimSuffix(f[0], ":")] = kib << 10
		}
	}
	if out["MemTotal"] == 0 {
		return nil, fmt.Errorf("read the machine's memory: /proc/meminfo has no MemTotal")
	}
	return out, lines.Err()
}

// processes says how many more processes and threads the machine bears.
func processes() (Level, error) {
	number := func(path string) (int64, error) {
		raw, err := os.ReadFile(path)
		if err != nil {
			return 0, fmt.Errorf("read how many processes there may be: %w", err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read how many processes there may be: %s: %w", path, err)
		}
		return n, nil
	}
	most, err := number("/proc/sys/kernel/pid_max")
	if err != nil {
		return Level{}, err
	}
	threads, err := number("/proc/sys/kernel/threads-max")
	if err != nil {
		return Level{}, err
	}
	most = min(most, threads)
	raw, err := os.ReadFile("/proc/loadavg") // 0.20 0.18 0.12 1/80 11206
	if err != nil {
		return Level{}, fmt.Errorf("read how many processes there are: %w", err)
	}
	f := strings.Fields(string(raw))
	if len(f) < 4 {
		return Level{}, fmt.Errorf("read how many processes there are: /proc/loadavg is %q", raw)
	}
	_, text, _ := strings.Cut(f[3], "/")
	there, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Level{}, fmt.Errorf("read how many processes there are: /proc/loadavg is %q", raw)
	}
	return Level{Free: most - there, All: most}, nil
}

// Busy is the time that the machine's processors have worked, all added up, since it was
// started.
func Busy() (time.Duration, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read the machine's CPU time: %w", err)
	}
	head, _, _ := strings.Cut(string(raw), "\n")
	f := strings.Fields(head) // cpu user nice system idle iowait irq softirq steal …
	if len(f) < 9 || f[0] != "cpu" {
		return 0, fmt.Errorf("read the machine's CPU time: /proc/stat begins with %q", head)
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the machine's CPU time: /proc/stat begins with %q", head)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100), nil // the kernel shows hundredths on every machine
}

// hugePages are the pages of each size that the machine has set apart, in bytes, by
// the name of their resource. dir is /sys/kernel/mm/hugepages.
func hugePages(dir string) (corev1.ResourceList, error) {
	sizes, err := filepath.Glob(filepath.Join(dir, "hugepages-*kB"))
	if err != nil {
		return nil, err
	}
	out := corev1.ResourceList{}
	for _, at := range sizes {
		text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(at), "hugepages-"), "kB")
		kib, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the machine's huge pages: %s: %w", at, err)
		}
		count, err := strconv.ParseInt(line(filepath.Join(at, "nr_hugepages")), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the machine's huge pages: %s: %w", at, err)
		}
		size := resource.NewQuantity(kib<<10, resource.BinarySI)
		out[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(count*kib<<10, resource.BinarySI)
	}
	return out, nil
}
