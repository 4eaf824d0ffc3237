package volume

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
)

const victimEnv = "HEADWAY_VOLUME_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimEnv); dir != "" {
		fmt.Fprintln(os.Stderr, "victim:", victim(dir)) // it returns only when it fails
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// afterlife are the volumes of the pod that victim makes, in one of two versions.
func afterlife(dir, version string) []Volume {
	c := content(map[string]string{"a": version, "d/b": version, version: version})
	c.Group = new(int64(99))
	return []Volume{
		c, {Name: "d", Kind: Disk, Group: new(int64(99))}, {Name: "m", Kind: Memory, Size: 1 << 20}, {Name: "h", Kind: Host, Path: filepath.Join(dir, "host")},
		{Name: "kept", Kind: Local, Persistent: "kept", Group: new(int64(99))}, {Name: "gone", Kind: Local, Persistent: "gone"},
	}
}

func container() *corev1.Container {
	return &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{
		{Name: "c", MountPath: "/c"}, {Name: "c", MountPath: "/a", SubPath: "a"}, {Name: "d", MountPath: "/d", SubPath: "x/y"}, {Name: "h", MountPath: "/h", SubPath: "sub"}, {Name: "m", MountPath: "/m"},
		{Name: "kept", MountPath: "/kept", SubPath: "sub"}, {Name: "gone", MountPath: "/gone"},
	}}
}

// victim makes, changes and removes the volumes of a pod until it is killed.
func victim(dir string) error {
	ctx := context.Background()
	v, err := New(Config{Disk: filepath.Join(dir, "disk"), Memory: filepath.Join(dir, "memory"), Persistent: filepath.Join(dir, "persistent"), Made: filepath.Join(dir, "made")})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		for _, version := range []string{"one", "two"} {
			volumes := afterlife(dir, version)
			if err := v.Ensure(ctx, uid, volumes); err != nil {
				return err
			}
			mounts, err := v.Mounts(ctx, uid, container(), volumes)
			if err != nil {
				return err
			}
			for i := range 20 { // what the pod writes
				if err := os.MkdirAll(filepath.Join(mounts[6].Source, fmt.Sprint(i%3), fmt.Sprint(i)), 0o755); err != nil {
					return err
				}
			}
		}
		if err := v.Remove(ctx, uid); err != nil {
			return err
		}
		if err := v.Discard(ctx, "gone"); err != nil {
			return err
		}
		for {
			left, err := v.Clear(ctx)
			if err != nil {
				return err
			}
			if len(left) == 0 {
				break
			}
		}
	}
}

// Killed at any moment and started again, the volumes end as they are to be, and then
// go without a trace; the machine's own files stay.
func TestKilledAtAnyMoment(t *testing.T) {
	v := open(t)
	dir := filepath.Dir(v.cfg.Disk)
	host := filepath.Join(dir, "host")
	if err := os.MkdirAll(filepath.Join(host, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(host, "sub", "data"), []byte("dear"), 0o644); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	must(t, os.MkdirAll(filepath.Join(v.persistent("kept"), "sub"), 0o777), os.WriteFile(filepath.Join(v.persistent("kept"), "sub", "data"), []byte("kept"), 0o644))
	for round := range 16 {
		kill(t, program, dir)
		version := []string{"one", "two"}[round%2]
		volumes := afterlife(dir, version)
		ensure(t, v, volumes...)
		mounts, err := v.Mounts(t.Context(), uid, container(), volumes)
		if err != nil {
			t.Fatal(err)
		}
		if got := treeOf(t, mounts[0].Source); len(got) != 3 || got["a"] != version || got["d/b"] != version || got[version] != version {
			t.Fatalf("content: %v", got)
		}
		if got := text(t, mounts[1].Source); got != version {
			t.Fatalf("subPath of the content: %q", got)
		}
		if got := text(t, filepath.Join(mounts[3].Source, "data")); got != "dear" {
			t.Fatalf("subPath of the machine: %q", got)
		}
		if got := text(t, filepath.Join(mounts[5].Source, "data")); got != "kept" {
			t.Fatalf("the persistent volume: %q", got)
		}
		if info, err := os.Stat(mounts[6].Source); err != nil || info.Mode().Perm() != 0o777 {
			t.Fatalf("the other persistent volume: %v, %v", info, err)
		}
		for _, path := range []string{mounts[2].Source, v.disk(uid, "d")} {
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != 0o777 || info.Mode()&fs.ModeSetgid == 0 || !ownedBy(info, nil, new(int64(99))) {
				t.Fatalf("%s: %v, %v", path, info.Mode(), err)
			}
		}
		if round%4 == 3 {
			if err := v.Remove(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
			if all, err := v.Pods(); err != nil || len(all) > 0 {
				t.Fatal(all, err)
			}
			must(t, v.Discard(t.Context(), "gone"))
			clearAll(t, v)
			for _, dir := range []string{v.cfg.Persistent, v.cfg.Made} {
				if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "kept" {
					t.Fatal(left, err)
				}
			}
			table, err := mountPoints()
			if err != nil || slices.ContainsFunc(table, func(m *mountinfo.Info) bool {
				return strings.Contains(m.Mountpoint, dir) && strings.Contains(m.Mountpoint, string(uid))
			}) {
				t.Fatal("something is still mounted", err)
			}
		}
		if got := text(t, filepath.Join(host, "sub", "data")); got != "dear" {
			t.Fatalf("the machine's file: %q", got)
		}
	}
}

// kill runs a victim for a moment.
func kill(t *testing.T, program, dir string) {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), victimEnv+"="+dir)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Error("no victim:", err, problem.String())
	}
	<-time.After(time.Duration(rand.IntN(8_000)) * time.Microsecond) // the moment it is killed at
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if problem.Len() > 0 {
		t.Fatal(problem.String())
	}
}
