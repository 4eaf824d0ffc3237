package volume

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

func inodeOf(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

func TestMounts(t *testing.T) {
	v := open(t)
	c := content(map[string]string{"key": "text"})
	d := Volume{Name: "d", Kind: Disk, Group: new(int64(77))}
	ensure(t, v, c, d)
	container := &corev1.Container{Name: "main", VolumeMounts: []corev1.VolumeMount{
		{Name: "c", MountPath: "/c"}, {Name: "c", MountPath: "/key", SubPath: "key"}, {Name: "d", MountPath: "d/"}, {Name: "d", MountPath: "/ro", ReadOnly: true, SubPath: "x/y"},
	}}
	for range 2 { // and again, as for the next attempt
		got, err := v.Mounts(t.Context(), uid, container, []Volume{c, d})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 4 || got[0] != (Mount{v.memory(uid, "c"), "/c", true, Private}) || got[2] != (Mount{v.disk(uid, "d"), "/d", false, Private}) || !got[1].ReadOnly || !got[3].ReadOnly {
			t.Fatalf("%+v", got)
		}
		if s := text(t, got[1].Source); s != "text" {
			t.Errorf("the subPath shows %q", s)
		}
		if inodeOf(t, got[3].Source) != inodeOf(t, filepath.Join(v.disk(uid, "d"), "x/y")) {
			t.Error("the subPath is another folder")
		}
		info, err := os.Stat(got[3].Source)
		if err != nil || info.Mode().Perm() != 0o777 || info.Mode()&fs.ModeSetgid == 0 || !ownedBy(info, nil, d.Group) {
			t.Error("the folder of the subPath is not as its volume:", info.Mode(), err)
		}
	}
	// A subPath is what it was when its container started.
	ensure(t, v, content(map[string]string{"key": "newer"}))
	if s := text(t, filepath.Join(v.cfg.Memory, string(uid), "subpaths/main/1")); s != "text" {
		t.Errorf("the subPath was updated: %q", s)
	}
	if _, err := v.Mounts(t.Context(), uid, &corev1.Container{Name: "x", VolumeMounts: []corev1.VolumeMount{{Name: "none"}}}, nil); err == nil || !strings.Contains(err.Error(), `cannot find volume "none"`) {
		t.Error(err)
	}
	// Mounts that are to come later need a mount that tells of them.
	if err := unix.Mount("", v.cfg.Memory, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	both := corev1.MountPropagationBidirectional
	shared := &corev1.Container{Name: "s", VolumeMounts: []corev1.VolumeMount{{Name: "c", MountPath: "/c", MountPropagation: &both}}}
	if _, err := v.Mounts(t.Context(), uid, shared, []Volume{c}); err == nil || !strings.Contains(err.Error(), "not a shared mount") {
		t.Error(err)
	}
	if err := unix.Mount("", v.cfg.Memory, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Mounts(t.Context(), uid, shared, []Volume{c}); err != nil || got[0].Propagation != Shared {
		t.Error(got, err)
	}
}

func TestSubPathDoesNotEscape(t *testing.T) {
	v := open(t)
	d := Volume{Name: "d", Kind: Disk}
	ensure(t, v, d)
	dir := v.disk(uid, "d")
	outside := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(outside, "secret"), []byte("hunter2"), 0o644), os.Mkdir(filepath.Join(dir, "real"), 0o755),
		os.Symlink(outside, filepath.Join(dir, "absolute")), os.Symlink("../../../../../../../../etc", filepath.Join(dir, "relative")),
		os.Symlink("real", filepath.Join(dir, "inside")), os.Symlink("nowhere", filepath.Join(dir, "dangling")), os.Symlink("loop", filepath.Join(dir, "loop")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o644), os.Symlink("/proc/self/root", filepath.Join(dir, "magic")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	try := func(sub string) error {
		_, err := v.Mounts(t.Context(), uid, &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "d", MountPath: "/d", SubPath: sub}}}, []Volume{d})
		return err
	}
	for sub, want := range map[string]string{
		"absolute": "leads out", "absolute/secret": "leads out", "absolute/new": "leads out", "relative": "leads out", "relative/passwd": "leads out", "magic/etc": "leads out",
		"../d": "leads out", "loop": "leads out", "dangling": "leads nowhere", "dangling/new": "leads nowhere", "file/x": "not a directory",
		strings.Repeat("n", 300): "too long",
	} {
		err := try(sub)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `failed to prepare subPath for volumeMount "d" of container "c"`) || strings.Contains(err.Error(), outside) {
			t.Errorf("%s: %v", sub, err)
		}
	}
	for _, sub := range []string{"inside", "inside/new", "real/../real", ".", "file"} {
		if err := try(sub); err != nil {
			t.Errorf("%s: %v", sub, err)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Error("something was made outside:", left, err)
	}
}

// While somebody swaps the folder of a subPath for a link that leads out, what is
// mounted is always in the volume.
func TestSubPathRace(t *testing.T) {
	v := open(t)
	d := Volume{Name: "d", Kind: Disk}
	ensure(t, v, d)
	dir := v.disk(uid, "d")
	outside := t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(outside, "leaf"), 0o755), os.MkdirAll(filepath.Join(dir, "a/leaf"), 0o755), os.Symlink(outside, filepath.Join(dir, "b")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "a"), unix.AT_FDCWD, filepath.Join(dir, "b"), unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	})
	bad := []uint64{inodeOf(t, outside), inodeOf(t, filepath.Join(outside, "leaf"))}
	c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "d", MountPath: "/d", SubPath: "a/leaf"}}}
	mounted, refused := 0, 0
	for range 2000 {
		got, err := v.Mounts(t.Context(), uid, c, []Volume{d})
		if err != nil {
			refused++
			continue
		}
		mounted++
		if slices.Contains(bad, inodeOf(t, got[0].Source)) {
			t.Fatal("a folder outside of the volume is mounted")
		}
	}
	close(stop)
	wg.Wait()
	if left, err := os.ReadDir(filepath.Join(outside, "leaf")); err != nil || len(left) != 0 {
		t.Error("something was made outside:", left, err)
	}
	t.Logf("%d mounted, %d refused", mounted, refused)
}
