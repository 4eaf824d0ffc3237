package agent

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/session"
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
	// Disk is the folder that pods write to: its file system is the node's
	// ephemeral-storage; "": the node says nothing of it.
	Disk string
	// Thresholds are those at which pods are evicted; what the hard ones keep free is
	// not given to pods.
	Thresholds []Threshold
}

// Facts collects this machine's Node.
func Facts(c FactsConfig) (*corev1.Node, error) {
	capacity, err := capacityOf(c)
	if err != nil {
		return nil, err
	}
	allocatable, err := allocatableOf(c, capacity)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{
		corev1.LabelHostname:   c.Name,
		corev1.LabelOSStable:   runtime.GOOS,
		corev1.LabelArchStable: runtime.GOARCH,
		session.LabelOS:        runtime.GOOS, // the old names, which many manifests still select by
		session.LabelArch:      runtime.GOARCH,
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

// capacityOf is what the machine has.
func capacityOf(c FactsConfig) (corev1.ResourceList, error) {
	host, err := ReadHost(c.Disk, "")
	if err != nil {
		return nil, err
	}
	out, err := hugePages("/sys/kernel/mm/hugepages")
	if err != nil {
		return nil, err
	}
	if c.MaxPods <= 0 {
		c.MaxPods = 250
	}
	out[corev1.ResourceCPU] = *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)
	out[corev1.ResourceMemory] = *resource.NewQuantity(host[MemoryAvailable].All, resource.BinarySI)
	out[corev1.ResourcePods] = *resource.NewQuantity(int64(c.MaxPods), resource.DecimalSI)
	if disk, known := host[DiskAvailable]; known {
		out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk.All, resource.BinarySI)
	}
	return out, nil
}

// MemoryOfPods is how many bytes all pods together may use where so much is reserved.
func MemoryOfPods(reserved corev1.ResourceList) (int64, error) {
	memory, err := meminfo()
	if err != nil {
		return 0, err
	}
	return max(memory["MemTotal"]-reserved.Memory().Value(), 0), nil
}

// allocatableOf is what of it pods may have: without what is reserved, what the hard
// thresholds keep free, and, of the memory, what is set apart as huge pages.
func allocatableOf(c FactsConfig, capacity corev1.ResourceList) (corev1.ResourceList, error) {
	if c.Reserved == nil {
		c.Reserved = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("256Mi")}
	}
	out := capacity.DeepCopy()
	take := func(name corev1.ResourceName, amount resource.Quantity) {
		if q, ok := out[name]; ok {
			q.Sub(amount)
			out[name] = q
		}
	}
	for name, amount := range c.Reserved {
		take(name, amount)
	}
	for _, t := range c.Thresholds {
		name, known := map[Signal]corev1.ResourceName{MemoryAvailable: corev1.ResourceMemory, DiskAvailable: corev1.ResourceEphemeralStorage}[t.Signal]
		if all := capacity[name]; known && !t.Soft {
			take(name, *resource.NewQuantity(t.least(all.Value()), resource.BinarySI))
		}
	}
	for name, amount := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			take(corev1.ResourceMemory, amount)
		}
	}
	for _, name := range sortedKeys(out) {
		if q := out[name]; q.Sign() < 0 {
			all := capacity[name]
			return nil, fmt.Errorf("more %s is reserved than the machine's %s: lower what --system-reserved and --eviction-hard keep", name, all.String())
		}
	}
	return out, nil
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
