package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FactsConfig is what this machine's Node has beside what the machine says.
type FactsConfig struct {
	Name    string
	Address string // internal IP; "" finds the one that the default route leaves from
	Labels  map[string]string
	Engine  string // containerd://2.1
	Version string // of Headway
	MaxPods int    // default 250
	// Reserved is kept for the machine itself; nil reserves 5 % of a core and
	// 256 MiB.
	Reserved corev1.ResourceList
}

// Facts collects this machine's Node.
func Facts(c FactsConfig) (*corev1.Node, error) {
	memory, err := memoryTotal()
	if err != nil {
		return nil, err
	}
	if c.MaxPods <= 0 {
		c.MaxPods = 250
	}
	if c.Reserved == nil {
		c.Reserved = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("256Mi")}
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(int64(c.MaxPods), resource.DecimalSI),
	}
	allocatable := capacity.DeepCopy()
	for name, reserved := range c.Reserved {
		if q, ok := allocatable[name]; ok {
			q.Sub(reserved)
			allocatable[name] = q
		}
	}
	labels := map[string]string{
		corev1.LabelHostname:   c.Name,
		corev1.LabelOSStable:   runtime.GOOS,
		corev1.LabelArchStable: runtime.GOARCH,
	}
	for k, v := range c.Labels {
		labels[k] = v
	}
	if c.Address == "" {
		if c.Address, err = defaultAddress(); err != nil {
			return nil, err
		}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: allocatable, NodeInfo: info(c),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: c.Address}, {Type: corev1.NodeHostName, Address: c.Name}},
		},
	}, nil
}

func info(c FactsConfig) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		MachineID: line("/etc/machine-id"), SystemUUID: line("/sys/class/dmi/id/product_uuid"), BootID: line("/proc/sys/kernel/random/boot_id"),
		KernelVersion: line("/proc/sys/kernel/osrelease"), OSImage: osName(), ContainerRuntimeVersion: c.Engine,
		KubeletVersion: c.Version, OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
}

// line is a file of one line; "" when the machine has no such file.
func line(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func osName() string {
	raw, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "linux"
	}
	for l := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(l), "PRETTY_NAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return "linux"
}

func memoryTotal() (int64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read the machine's memory: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) >= 2 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the machine's memory: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("read the machine's memory: /proc/meminfo has no MemTotal")
}

// defaultAddress is the address that packets to elsewhere leave from; on a
// machine without a route out, the first that is not loopback, else loopback.
func defaultAddress() (string, error) {
	if conn, err := net.Dial("udp4", "192.0.2.1:9"); err == nil { // sends nothing
		defer conn.Close()
		if a, ok := conn.LocalAddr().(*net.UDPAddr); ok {
			return a.IP.String(), nil
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("find the machine's address: %w", err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String(), nil
		}
	}
	return "127.0.0.1", nil
}

// bootTime is the time since boot, sleep included.
func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("agent: CLOCK_BOOTTIME: " + err.Error()) // every Linux since 2.6.39 has it
	}
	return time.Duration(t.Nano())
}

func isTmpfs(path string) (bool, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return false, err
	}
	return s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC, nil
}
