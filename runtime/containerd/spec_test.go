package containerd

import (
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

// drawn is a blueprint of a simple pod.
func drawn(change func(*blueprint)) blueprint {
	pod := testPod()
	b := blueprint{
		spec:  agent.ContainerSpec{Pod: pod, Container: &pod.Spec.Containers[0]},
		image: ocispec.ImageConfig{Entrypoint: []string{"entry"}, Cmd: []string{"cmd"}},
		dir:   "/state/pods/x", message: "/state/message", cgroup: "/headway/podx/y", oomScore: 5,
		cgroups: cgroups{weighs: true},
		caps:    append(defaultCapabilities(), "CAP_NET_ADMIN", "CAP_SYS_ADMIN"),
	}
	change(&b)
	return b
}

func TestCommandAndArgs(t *testing.T) {
	for _, tc := range []struct {
		command, args []string
		want          string
	}{
		{nil, nil, "entry cmd"},
		{nil, []string{"a"}, "entry a"},
		{[]string{"c"}, nil, "c"},
		{[]string{"c"}, []string{"a"}, "c a"},
	} {
		s, err := drawn(func(b *blueprint) { b.spec.Command, b.spec.Args = tc.command, tc.args }).build()
		if err != nil || strings.Join(s.Process.Args, " ") != tc.want {
			t.Errorf("%v %v: %v, %v", tc.command, tc.args, s, err)
		}
	}
	_, err := drawn(func(b *blueprint) { b.image = ocispec.ImageConfig{} }).build()
	if err == nil || !strings.Contains(err.Error(), "give a command") {
		t.Errorf("nothing to run: %v", err)
	}
}

func TestBuildSharesNothingWithItsInput(t *testing.T) {
	b := drawn(func(b *blueprint) {
		b.image.Entrypoint = append(make([]string, 0, 8), "entry")
		b.spec.Args = []string{"one"}
	})
	one, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	b.spec.Args = []string{"two"}
	if _, err := b.build(); err != nil {
		t.Fatal(err)
	}
	if one.Process.Args[1] != "one" {
		t.Errorf("%v", one.Process.Args)
	}
}

func TestCapabilities(t *testing.T) {
	known := append(defaultCapabilities(), "CAP_NET_ADMIN", "CAP_SYS_ADMIN")
	names := func(n ...corev1.Capability) []corev1.Capability { return n }
	for _, tc := range []struct {
		add, drop []corev1.Capability
		has, not  string
	}{
		{nil, nil, "CAP_CHOWN", "CAP_NET_ADMIN"},
		{names("NET_ADMIN"), nil, "CAP_NET_ADMIN", "CAP_SYS_ADMIN"},
		{names("cap_net_admin"), names("CHOWN"), "CAP_NET_ADMIN", "CAP_CHOWN"},
		{names("ALL"), nil, "CAP_SYS_ADMIN", ""},
		{names("ALL"), names("SYS_ADMIN"), "CAP_NET_ADMIN", "CAP_SYS_ADMIN"},
		{names("CHOWN"), names("ALL"), "CAP_CHOWN", "CAP_KILL"},
		{nil, names("NO_SUCH"), "CAP_CHOWN", ""},
	} {
		got, err := capabilities(&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: tc.add, Drop: tc.drop}}, known)
		if err != nil {
			t.Errorf("%+v: %v", tc, err)
			continue
		}
		if !slices.Contains(got.Effective, tc.has) || slices.Contains(got.Effective, tc.not) {
			t.Errorf("%+v: %v", tc, got.Effective)
		}
		if len(got.Ambient) != 0 || len(got.Inheritable) != 0 {
			t.Errorf("%+v: %v", tc, got)
		}
	}
	if _, err := capabilities(&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: names("SYS_BOOT")}}, known); err == nil {
		t.Error("gave what it has not")
	}
}

func TestOOMScore(t *testing.T) {
	const gib = 1 << 30
	mem := func(q string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(q)}
	}
	both := func(q string) corev1.ResourceList {
		l := mem(q)
		l[corev1.ResourceCPU] = resource.MustParse("1")
		return l
	}
	for _, tc := range []struct {
		r      corev1.ResourceRequirements
		lowest int64
		want   int
	}{
		{corev1.ResourceRequirements{}, -1000, 1000},
		{corev1.ResourceRequirements{Limits: both("1Gi")}, -1000, -997},
		{corev1.ResourceRequirements{Limits: both("1Gi")}, 0, 0},
		{corev1.ResourceRequirements{Requests: mem("1Gi")}, -1000, 750},
		{corev1.ResourceRequirements{Requests: mem("4Gi")}, -1000, 3},
		{corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}, -1000, 999},
	} {
		pod := testPod()
		pod.Spec.Containers[0].Resources = tc.r
		if got := oomScore(pod, &pod.Spec.Containers[0], 4*gib, tc.lowest); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.r, got, tc.want)
		}
	}
	always := corev1.ContainerRestartPolicyAlways
	pod := testPod()
	pod.Spec.Containers[0].Resources.Requests = mem("1Gi")
	pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always}, {Name: "large", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: mem("2Gi")}}, {Name: "first"}}
	for i, want := range []int{750, 500, 999} {
		if got := oomScore(pod, &pod.Spec.InitContainers[i], 4*gib, -1000); got != want {
			t.Errorf("%s: %d, want %d", pod.Spec.InitContainers[i].Name, got, want)
		}
	}
	pod.Spec.PriorityClassName = "system-node-critical"
	if got := oomScore(pod, &pod.Spec.Containers[0], 4*gib, -1000); got != -997 {
		t.Errorf("the node needs it: %d", got)
	}
}

func TestPrivilegedAndNot(t *testing.T) {
	plain, err := drawn(func(*blueprint) {}).build()
	if err != nil {
		t.Fatal(err)
	}
	if plain.Linux.Seccomp == nil || len(plain.Linux.MaskedPaths) == 0 || plain.Linux.Resources.Devices[0].Allow {
		t.Error("an ordinary container is not confined")
	}
	for _, ns := range plain.Linux.Namespaces {
		shared := ns.Type == specs.NetworkNamespace || ns.Type == specs.IPCNamespace || ns.Type == specs.UTSNamespace
		if shared != (ns.Path != "") {
			t.Errorf("namespace %+v", ns)
		}
	}
	all, err := drawn(func(b *blueprint) {
		b.spec.Container.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	}).build()
	if err != nil {
		t.Fatal(err)
	}
	if all.Linux.Seccomp != nil || len(all.Linux.MaskedPaths) != 0 || !slices.Contains(all.Process.Capabilities.Effective, "CAP_SYS_ADMIN") {
		t.Error("a privileged container is confined")
	}
}

func TestSignalOf(t *testing.T) {
	for name, want := range map[string]unix.Signal{
		"": unix.SIGTERM, "SIGQUIT": unix.SIGQUIT, "quit": unix.SIGQUIT, "3": unix.SIGQUIT, "nonsense": unix.SIGTERM, "0": unix.SIGTERM, "99": unix.SIGTERM,
	} {
		if got := signalOf(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestHostname(t *testing.T) {
	pod := testPod()
	pod.Name = strings.Repeat("a", 60) + "--.-" + strings.Repeat("b", 60)
	if got := hostname(pod); len(got) > 63 || strings.HasSuffix(got, "-") || strings.HasSuffix(got, ".") {
		t.Errorf("%q", got)
	}
}

func FuzzUID(f *testing.F) {
	for _, s := range []string{"", "a", "../x", "a/b", "0d4f7b52-3f4c-4a3e-9c64-0f9f6a1c2b3d", ".", ".."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if validUID(types.UID(s)) == nil && (strings.ContainsAny(s, "/.\x00") || s == "") {
			t.Errorf("%q", s)
		}
	})
}
