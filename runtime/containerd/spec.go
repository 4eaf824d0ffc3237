package containerd

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

// plan of a container: everything its OCI specification follows from.
type blueprint struct {
	spec     agent.ContainerSpec
	image    ocispec.ImageConfig
	user     specs.User
	host     string // the pod's host name
	dir      podDir
	message  string // file for the termination message
	cgroup   string
	oomScore int
	cgroups  cgroups
	pages    []int64             // sizes of the machine's huge pages
	caps     []string            // that we can give
	seccomp  *specs.LinuxSeccomp // the profile from the node's folder, if it asks for one
	confined confinement
	// processes is the PID namespace that it joins; "": it has its own.
	processes string
}

// defaultPath is what a container gets whose image says nothing.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// build is pure: it derives the OCI specification.
func (b blueprint) build() (*specs.Spec, error) {
	args, err := b.args()
	if err != nil {
		return nil, err
	}
	resources, err := b.resources()
	if err != nil {
		return nil, err
	}
	security := b.spec.Container.SecurityContext
	if security == nil {
		security = &corev1.SecurityContext{}
	}
	privileged := isTrue(security.Privileged)
	caps, err := capabilities(security, b.caps)
	if err != nil {
		return nil, err
	}
	s := &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: "rootfs", Readonly: isTrue(security.ReadOnlyRootFilesystem)},
		Process: &specs.Process{
			Args: args, Env: b.env(), Cwd: b.cwd(), User: b.user, Terminal: b.spec.Container.TTY,
			Capabilities:    caps,
			NoNewPrivileges: security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation,
			OOMScoreAdj:     &b.oomScore,
			ApparmorProfile: b.confined.apparmor,
			SelinuxLabel:    b.confined.selinux,
		},
		Mounts: b.mounts(privileged),
		Linux: &specs.Linux{
			Namespaces:  b.namespaces(),
			CgroupsPath: b.cgroup,
			Resources:   resources,
		},
	}
	s.Linux.RootfsPropagation = propagation(b.spec.Mounts)
	if privileged {
		s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
		return s, nil
	}
	s.Linux.MaskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
	s.Linux.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	switch p := seccompOf(b.spec.Pod, security); {
	case p == nil || p.Type == corev1.SeccompProfileTypeRuntimeDefault:
		s.Linux.Seccomp = seccomp.DefaultProfile(s)
	case p.Type == corev1.SeccompProfileTypeLocalhost:
		s.Linux.Seccomp = b.seccomp
	}
	return s, nil
}

// namespaces are the container's own and its pod's. One that is not named is the
// node's.
func (b blueprint) namespaces() []specs.LinuxNamespace {
	out := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	switch {
	case b.spec.Pod.Spec.HostPID:
	case b.processes != "":
		out = append(out, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: b.processes})
	default:
		out = append(out, specs.LinuxNamespace{Type: specs.PIDNamespace})
	}
	types := map[string]specs.LinuxNamespaceType{"net": specs.NetworkNamespace, "ipc": specs.IPCNamespace, "uts": specs.UTSNamespace}
	for _, n := range own(b.spec.Pod) {
		out = append(out, specs.LinuxNamespace{Type: types[n.kind], Path: b.dir.ns(n.kind)})
	}
	if b.cgroups.unified {
		out = append(out, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return out
}

// args: the pod's command replaces the image's entrypoint and its command; the
// pod's args replace the image's command.
func (b blueprint) args() ([]string, error) {
	args := slices.Clone(b.spec.Command)
	switch {
	case len(b.spec.Command) > 0:
		args = append(args, b.spec.Args...)
	case len(b.spec.Args) > 0:
		args = append(slices.Clone(b.image.Entrypoint), b.spec.Args...)
	default:
		args = append(slices.Clone(b.image.Entrypoint), b.image.Cmd...)
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("container %s: neither the image %s nor the pod says what to run: give a command",
			b.spec.Container.Name, b.spec.Image.Reference)
	}
	return args, nil
}

// env: the image's, overridden by the pod's, sorted as they came first.
func (b blueprint) env() []string {
	var out []string
	at := map[string]int{}
	add := func(v string) {
		name, _, _ := strings.Cut(v, "=")
		if i, ok := at[name]; ok {
			out[i] = v
			return
		}
		at[name] = len(out)
		out = append(out, v)
	}
	add(defaultPath)
	add("HOSTNAME=" + b.host)
	if b.spec.Container.TTY {
		add("TERM=xterm")
	}
	for _, v := range b.image.Env {
		add(v)
	}
	for _, v := range b.spec.Env {
		add(v)
	}
	return out
}

func (b blueprint) cwd() string {
	switch {
	case b.spec.Container.WorkingDir != "":
		return b.spec.Container.WorkingDir
	case b.image.WorkingDir != "":
		return path.Join("/", b.image.WorkingDir)
	}
	return "/"
}

func (b blueprint) mounts(privileged bool) []specs.Mount {
	ro := "ro"
	if privileged {
		ro = "rw"
	}
	files := "rw"
	if s := b.spec.Container.SecurityContext; s != nil && isTrue(s.ReadOnlyRootFilesystem) {
		files = "ro"
	}
	shm := b.dir.path("shm")
	if b.spec.Pod.Spec.HostIPC {
		shm = "/dev/shm"
	}
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", ro}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", ro}},
		{Destination: "/dev/shm", Type: "bind", Source: shm, Options: []string{"rbind", "rprivate", "rw"}},
	}
	for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
		mounts = append(mounts, specs.Mount{
			Destination: "/etc/" + name, Type: "bind", Source: b.dir.path(name), Options: []string{"rbind", "rprivate", files},
		})
	}
	if at := b.spec.Container.TerminationMessagePath; at != "" && b.message != "" {
		mounts = append(mounts, specs.Mount{Destination: at, Type: "bind", Source: b.message, Options: []string{"rbind", "rprivate", "rw"}})
	}
	return withVolumes(mounts, b.spec.Mounts)
}

// cfsPeriod is the length in which a CPU limit is counted, in microseconds.
const cfsPeriod = 100_000

func (b blueprint) resources() (*specs.LinuxResources, error) {
	r := b.spec.Container.Resources
	cpu := &specs.LinuxCPU{}
	shares := uint64(2) // the least there is
	request := r.Requests.Cpu().MilliValue()
	if request == 0 {
		request = r.Limits.Cpu().MilliValue()
	}
	if request > 0 {
		shares = min(max(uint64(request)*1024/1000, 2), 262144)
	}
	if b.cgroups.weighs {
		cpu.Shares = &shares
	}
	if limit := r.Limits.Cpu().MilliValue(); limit > 0 {
		period, quota := uint64(cfsPeriod), max(limit*cfsPeriod/1000, 1000)
		cpu.Period, cpu.Quota = &period, &quota
	}
	out := &specs.LinuxResources{CPU: cpu}
	if limit := r.Limits.Memory().Value(); limit > 0 {
		out.Memory = &specs.LinuxMemory{Limit: &limit}
	}
	if b.cgroups.groups { // one process less would leave a container that nobody restarts
		out.Unified = map[string]string{"memory.oom.group": "1"}
	}
	var err error
	out.HugepageLimits, err = b.hugepages()
	return out, err
}

// capabilities of a container: the usual fourteen, with what it adds and drops.
func capabilities(s *corev1.SecurityContext, known []string) (*specs.LinuxCapabilities, error) {
	set := map[string]bool{}
	for _, c := range defaultCapabilities() {
		set[c] = true
	}
	if isTrue(s.Privileged) {
		for _, c := range known {
			set[c] = true
		}
	}
	if s.Capabilities != nil && !isTrue(s.Privileged) {
		change := func(list []corev1.Capability, on bool) error {
			for _, c := range list {
				name := strings.ToUpper(string(c))
				if name == "ALL" {
					for _, c := range known {
						set[c] = on
					}
					continue
				}
				if !strings.HasPrefix(name, "CAP_") {
					name = "CAP_" + name
				}
				if on && !slices.Contains(known, name) {
					return fmt.Errorf("this node cannot give the capability %q", c)
				}
				set[name] = on
			}
			return nil
		}
		add, drop := s.Capabilities.Add, s.Capabilities.Drop
		all := func(c corev1.Capability) bool { return strings.EqualFold(string(c), "ALL") }
		// "ALL" first, so that single ones are exceptions to it, whichever list it is in.
		for _, step := range []struct {
			list []corev1.Capability
			on   bool
		}{{filter(add, all), true}, {filter(drop, all), false}, {without(add, all), true}, {without(drop, all), false}} {
			if err := change(step.list, step.on); err != nil {
				return nil, err
			}
		}
	}
	maps.DeleteFunc(set, func(c string, on bool) bool { return !on || !slices.Contains(known, c) })
	list := slices.Sorted(maps.Keys(set))
	return &specs.LinuxCapabilities{Bounding: list, Effective: list, Permitted: list}, nil
}

func filter(list []corev1.Capability, keep func(corev1.Capability) bool) []corev1.Capability {
	return slices.DeleteFunc(slices.Clone(list), func(c corev1.Capability) bool { return !keep(c) })
}

func without(list []corev1.Capability, drop func(corev1.Capability) bool) []corev1.Capability {
	return slices.DeleteFunc(slices.Clone(list), drop)
}

func defaultCapabilities() []string {
	return []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
		"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// oomScore is Kubernetes': the less a pod asked for, the sooner it goes. A pod that the
// node cannot do without goes last, and a sidecar not before the containers it serves.
func oomScore(pod *corev1.Pod, c *corev1.Container, memory, lowest int64) int {
	const systemNodeCritical = "system-node-critical"
	var score int64
	switch class := quality(pod); {
	case pod.Spec.PriorityClassName == systemNodeCritical, class == corev1.PodQOSGuaranteed:
		score = -997
	case class == corev1.PodQOSBestEffort:
		score = 1000
	default:
		request := c.Resources.Requests.Memory().Value()
		if isSidecar(pod, c) {
			request = max(request, leastMemory(pod))
		}
		score = 999
		if request > 0 && memory > 0 {
			score = min(max(1000-1000*request/memory, 3), 999)
		}
	}
	return int(max(score, lowest))
}

func isSidecar(pod *corev1.Pod, c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways &&
		slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
}

// leastMemory is what the regular container asks for that asks for the least.
func leastMemory(pod *corev1.Pod) int64 {
	var least int64
	for i := range pod.Spec.Containers {
		if n := pod.Spec.Containers[i].Resources.Requests.Memory().Value(); i == 0 || n < least {
			least = n
		}
	}
	return least
}

// quality of service, from what the containers ask for.
func quality(pod *corev1.Pod) corev1.PodQOSClass {
	none, exact := true, true
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			if !request.IsZero() || !limit.IsZero() {
				none = false
			}
			if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
				exact = false
			}
		}
	}
	switch {
	case none:
		return corev1.PodQOSBestEffort
	case exact:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
