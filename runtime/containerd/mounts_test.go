package containerd

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/volume"
)

func TestVolumesAmongMounts(t *testing.T) {
	base := []specs.Mount{{Destination: "/proc"}, {Destination: "/dev"}, {Destination: "/dev/shm"}, {Destination: "/etc/hosts"}, {Destination: "/etc/hostname"}}
	got := withVolumes(base, []volume.Mount{
		{Source: "/1", Destination: "/data/deep/x", Propagation: volume.Private},
		{Source: "/2", Destination: "/data", Propagation: volume.Slave, ReadOnly: true},
		{Source: "/3", Destination: "/etc/hosts", Propagation: volume.Private},
		{Source: "/4", Destination: "/dev/shm/", Propagation: volume.Shared},
		{Source: "/5", Destination: "/etc", Propagation: volume.Private},
	})
	var places []string
	for _, m := range got {
		places = append(places, m.Destination)
	}
	if want := []string{"/proc", "/dev", "/data", "/etc", "/etc/hostname", "/etc/hosts", "/dev/shm", "/data/deep/x"}; !slices.Equal(places, want) {
		t.Errorf("%v, want %v", places, want)
	}
	for _, m := range got {
		switch m.Destination {
		case "/data":
			if !slices.Equal(m.Options, []string{"rbind", "rslave", "ro"}) || m.Source != "/2" {
				t.Errorf("%+v", m)
			}
		case "/dev/shm":
			if !slices.Equal(m.Options, []string{"rbind", "rshared", "rw"}) {
				t.Errorf("%+v", m)
			}
		}
	}
	for _, tc := range []struct {
		all  []volume.Mount
		want string
	}{
		{nil, ""}, {[]volume.Mount{{Propagation: volume.Private}}, ""}, {[]volume.Mount{{Propagation: volume.Slave}, {Propagation: volume.Private}}, "rslave"},
		{[]volume.Mount{{Propagation: volume.Slave}, {Propagation: volume.Shared}}, "rshared"},
	} {
		if got := propagation(tc.all); got != tc.want {
			t.Errorf("%v: %q", tc.all, got)
		}
	}
}

func TestGroups(t *testing.T) {
	image := specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{1000, 2000}}
	strict := corev1.SupplementalGroupsPolicyStrict
	for _, tc := range []struct {
		pod  *corev1.PodSecurityContext
		want []uint32
	}{
		{nil, []uint32{1000, 2000}},
		{&corev1.PodSecurityContext{SupplementalGroups: []int64{2000, 7}, FSGroup: new(int64(9))}, []uint32{1000, 2000, 7, 9}},
		{&corev1.PodSecurityContext{SupplementalGroups: []int64{7}, SupplementalGroupsPolicy: &strict}, []uint32{1000, 7}},
	} {
		if got := withGroups(image, tc.pod); !slices.Equal(got.AdditionalGids, tc.want) {
			t.Errorf("%+v: %v", tc.pod, got.AdditionalGids)
		}
	}
	if len(image.AdditionalGids) != 2 {
		t.Error("the image's groups were changed")
	}
}

// A container sees its volumes as they are to be: content read-only and updated, the
// group's files, a limit in memory, a subPath, the machine's files; the next attempt
// finds what the first one wrote.
func TestVolumesInContainers(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	volumes, err := volume.New(volume.Config{Disk: filepath.Join(dir, "disk"), Memory: filepath.Join(dir, "memory")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := volumes.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "file"), []byte("of the machine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := volume.Volume{Name: "config", Kind: volume.Content, Group: new(int64(4242)), Files: map[string]volume.File{"key": {Data: []byte("old\n"), Mode: 0o400}}}
	all := []volume.Volume{config, {Name: "disk", Kind: volume.Disk, Group: new(int64(4242))}, {Name: "memory", Kind: volume.Memory, Size: 1 << 20}, {Name: "host", Kind: volume.Host, Path: host}}
	pod := testPod("sleep")
	c := &pod.Spec.Containers[0]
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), FSGroup: new(int64(4242)), SupplementalGroups: []int64{17}}
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "config", MountPath: "/config"}, {Name: "config", MountPath: "/work/key", SubPath: "key"}, {Name: "disk", MountPath: "/disk"},
		{Name: "disk", MountPath: "/part", SubPath: "sub"}, {Name: "memory", MountPath: "/memory"}, {Name: "host", MountPath: "/host", ReadOnly: true},
	}
	if err := volumes.Ensure(t.Context(), pod.UID, all); err != nil {
		t.Fatal(err)
	}
	if _, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod}); err != nil {
		t.Fatal(err)
	}
	attempt := -1
	run := func(args ...string) (string, int32) {
		t.Helper()
		attempt++
		mounts, err := volumes.Mounts(t.Context(), pod.UID, c, all)
		if err != nil {
			t.Fatal(err)
		}
		c.Args = args
		spec := n.specOf(pod, 0, attempt)
		spec.Mounts = mounts
		state, err := n.StartContainer(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		state = n.exit(pod.UID, state.ID)
		return n.logs(agent.LogRequest{UID: pod.UID, Container: "c", Attempt: attempt, TailLines: -1}), state.ExitCode
	}
	if out, _ := run("where"); !strings.HasSuffix(out, "[17 1000 2000 4242]\n") {
		t.Errorf("groups: %s", out)
	}
	if out, _ := run("cat", "/config/key", "/work/key", "/host/file"); out != "old\nold\nof the machine\n" {
		t.Errorf("content: %q", out)
	}
	for _, path := range []string{"/config/new", "/config/key", "/work/key", "/host/new"} {
		if out, code := run("write", path); code != 1 {
			t.Errorf("%s was written: %s", path, out)
		}
	}
	for _, path := range []string{"/disk/a", "/part/b", "/memory/c"} {
		if out, code := run("write", path); code != 0 {
			t.Errorf("%s: %s", path, out)
		}
	}
	if out, _ := run("cat", "/disk/a", "/disk/sub/b", "/part/b", "/memory/c"); strings.TrimSpace(out) != "xxxx" {
		t.Errorf("what an earlier attempt wrote: %q", out)
	}

	// A change of the content is seen by the container that runs, but for its subPath.
	attempt++
	mounts, err := volumes.Mounts(t.Context(), pod.UID, c, all)
	if err != nil {
		t.Fatal(err)
	}
	c.Args = []string{"sleep"}
	spec := n.specOf(pod, 0, attempt)
	spec.Mounts = mounts
	state, err := n.StartContainer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	config.Files = map[string]volume.File{"key": {Data: []byte("new\n"), Mode: 0o400}}
	if err := volumes.Refresh(t.Context(), pod.UID, []volume.Volume{config}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/config/key": "new\n", "/work/key": "old\n"} {
		got, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(state.PID)), "root", path))
		if err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", path, got, err)
		}
	}
}
