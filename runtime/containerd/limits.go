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

	"github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// bound keeps all pods together from taking the memory that is reserved for the
// machine itself. A machine that cannot do so runs pods all the same, and says so.
func (c cgroups) bound(path string, memory int64, log *slog.Logger) {
	if memory <= 0 {
		return
	}
	if err := c.boundMemory(path, memory); err != nil {
		log.Warn("all pods together are not kept from the machine's reserved memory", "cgroup", path, "limit", memory, "error", err)
	}
}

func (c cgroups) boundMemory(path string, memory int64) error {
	dir, file := filepath.Join(c.memory, path), "memory.limit_in_bytes"
	if c.unified {
		file = "memory.max"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup of pods: %w", err)
	}
	if !c.unified { // before Linux 5.11 a limit holds for those below only where this says so
		at := filepath.Join(dir, "memory.use_hierarchy")
		if data, err := os.ReadFile(at); err == nil && strings.TrimSpace(string(data)) == "0" {
			if err := os.WriteFile(at, []byte("1"), 0); err != nil {
				return fmt.Errorf("limit the memory of pods: %w", err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(memory, 10)), 0); err != nil {
		return fmt.Errorf("limit the memory of pods: %w", err)
	}
	return nil
}

// boundPIDs limits how many processes and threads a pod may have.
func (c cgroups) boundPIDs(path string, most int64) error {
	if c.pids == "" {
		return errors.New("limit the processes of a pod: this machine has no pids controller: leave --pod-max-pids out")
	}
	dir := filepath.Join(c.pids, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup of pod: %w", err)
	}
	if c.unified { // of the pod's parents: the controllers work below those that have them on
		if err := turnOn(filepath.Dir(dir), "pids"); err != nil {
			return fmt.Errorf("limit the processes of a pod: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.FormatInt(most, 10)), 0); err != nil {
		return fmt.Errorf("limit the processes of a pod: %w", err)
	}
	return nil
}

// turnOn makes a controller of version 2 work in the cgroups below dir.
func turnOn(dir, controller string) error {
	at := filepath.Join(dir, "cgroup.subtree_control")
	words, err := os.ReadFile(at)
	if err != nil || slices.Contains(strings.Fields(string(words)), controller) {
		return err
	}
	return os.WriteFile(at, []byte("+"+controller), 0)
}

// offers says whether a controller of version 2 is there.
func offers(root, controller string) bool {
	words, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(words)), controller)
}

// pageSizes are the sizes of huge pages that this machine has, in bytes.
func pageSizes(dir string) ([]int64, error) {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the sizes of huge pages: %w", err)
	}
	var out []int64
	for _, e := range found {
		text, ok := strings.CutPrefix(e.Name(), "hugepages-")
		if kib, err := strconv.ParseInt(strings.TrimSuffix(text, "kB"), 10, 64); ok && err == nil {
			out = append(out, kib<<10)
		}
	}
	slices.Sort(out)
	return out, nil
}

// hugepages limits the huge pages of a container to those that it asks for: of a size
// that it does not name it gets none, as in Kubernetes.
func (b blueprint) hugepages() ([]specs.LinuxHugepageLimit, error) {
	wanted := map[int64]int64{}
	for name, q := range b.spec.Container.Resources.Limits {
		text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok || q.IsZero() {
			continue
		}
		size, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("container %s: the page size in %s: %w", b.spec.Container.Name, name, err)
		}
		if b.cgroups.hugetlb == "" {
			return nil, fmt.Errorf("container %s asks for %s, and this machine has no hugetlb controller to limit it by", b.spec.Container.Name, name)
		}
		if !slices.Contains(b.pages, size.Value()) {
			return nil, fmt.Errorf("container %s asks for %s, and this machine has no pages of that size", b.spec.Container.Name, name)
		}
		wanted[size.Value()] = q.Value()
	}
	if b.cgroups.hugetlb == "" {
		return nil, nil
	}
	var out []specs.LinuxHugepageLimit
	for _, size := range b.pages {
		out = append(out, specs.LinuxHugepageLimit{Pagesize: pageName(size), Limit: uint64(wanted[size])})
	}
	return out, nil
}

// pageName is a size as the names of the kernel's files have it.
func pageName(size int64) string {
	switch {
	case size%(1<<30) == 0:
		return strconv.FormatInt(size>>30, 10) + "GB"
	case size%(1<<20) == 0:
		return strconv.FormatInt(size>>20, 10) + "MB"
	default:
		return strconv.FormatInt(size>>10, 10) + "KB"
	}
}
