package containerd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/pkg/cap"
	"golang.org/x/sys/unix"
)

// allCapabilities are those that this machine can give: a container manager that
// runs restricted itself cannot give more than it has.
func allCapabilities() []string {
	have, err := cap.Current()
	if err != nil || len(have) == 0 {
		return cap.Known()
	}
	return have
}

// lowestOOMScore is the lowest oom_score_adj that we can give. Without
// CAP_SYS_RESOURCE the kernel lets nobody go below their own.
func lowestOOMScore() (int64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read own capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		return -1000, nil
	}
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, fmt.Errorf("read own oom score: %w", err)
	}
	own, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return own, err
}

// totalMemory of the machine in bytes.
func totalMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("read size of memory: %w", err)
	}
	total := int64(info.Totalram) * int64(info.Unit)
	if total <= 0 {
		return 0, errors.New("read size of memory: it is zero")
	}
	return total, nil
}
