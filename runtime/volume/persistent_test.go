package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const other = types.UID("33333333-4444")

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func ours(name string) Volume { return Volume{Name: "p", Kind: Local, Persistent: name} }

// clearAll removes what was set aside.
func clearAll(t testing.TB, v *Volumes) (steps int) {
	t.Helper()
	for ; ; steps++ {
		left, err := v.Clear(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return steps
		}
	}
}

// What a pod writes into a persistent volume is there for the next, and goes when the
// volume is discarded, not before.
func TestPersistentOutlivesItsPod(t *testing.T) {
	v := open(t)
	w := ours("pvc-1")
	for i, pod := range []types.UID{uid, other} {
		must(t, v.Ensure(t.Context(), pod, []Volume{w}), v.Ensure(t.Context(), pod, []Volume{w}))
		mounts, err := v.Mounts(t.Context(), pod, &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "p", MountPath: "/data"}, {Name: "p", MountPath: "/sub", SubPath: "a/b"}}}, []Volume{{Name: "p", Kind: Mounted}})
		must(t, err)
		data := filepath.Join(mounts[0].Source, "data")
		if i == 0 {
			must(t, os.WriteFile(data, []byte("dear"), 0o644))
		}
		if got := text(t, data); got != "dear" {
			t.Errorf("pod %d reads %q", i, got)
		}
		if info, err := os.Stat(mounts[1].Source); err != nil || info.Mode().Perm() != 0o777 {
			t.Error(info, err)
		}
		if err := v.Discard(t.Context(), "pvc-1"); err == nil || !strings.Contains(err.Error(), "a pod still has it") {
			t.Errorf("discarded while pod %d has it: %v", i, err)
		}
		must(t, v.Remove(t.Context(), pod))
		if got := text(t, filepath.Join(v.cfg.Persistent, "pvc-1", "data")); got != "dear" {
			t.Fatal("the data went with its pod")
		}
	}
	if kept, err := v.Kept(); err != nil || !slices.Equal(kept, []string{"pvc-1"}) {
		t.Error(kept, err)
	}
	must(t, v.Discard(t.Context(), "pvc-1"), v.Discard(t.Context(), "pvc-1"))
	if kept, err := v.Kept(); err != nil || len(kept) > 0 {
		t.Error(kept, err)
	}
	clearAll(t, v)
	for _, dir := range []string{v.cfg.Persistent, v.cfg.Made} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Error(left, err)
		}
	}
	must(t, v.Discard(t.Context(), "pvc-1"))
	for _, name := range []string{"..", "../disk", ".removing.x", "", "a/b", "A"} {
		if err := v.Discard(t.Context(), name); err == nil {
			t.Errorf("discarded %q", name)
		}
		if err := v.Ensure(t.Context(), uid, []Volume{ours(name)}); err == nil && name != "" {
			t.Errorf("made %q", name)
		}
	}
}

// A data dir that a link leads to is no other one: what is mounted and who has it is seen.
func TestPersistentBehindALink(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/real", 0o755), os.Symlink("real", dir+"/link"))
	v, err := New(Config{Disk: dir + "/link/disk", Memory: dir + "/link/memory", Persistent: dir + "/link/persistent", Made: dir + "/link/made"})
	must(t, err)
	t.Cleanup(func() { must(t, v.Destroy(context.Background())) })
	if v.PersistentDir() != dir+"/link/persistent" {
		t.Errorf("it is told to be in %s", v.PersistentDir())
	}
	must(t, v.Ensure(t.Context(), uid, []Volume{ours("a")}))
	if err := v.Discard(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "a pod still has it") {
		t.Error(err)
	}
	must(t, v.Remove(t.Context(), uid), v.Discard(t.Context(), "a"))
	clearAll(t, v)
}

func TestDestroyPersistent(t *testing.T) {
	v := open(t)
	must(t, v.Ensure(t.Context(), uid, []Volume{ours("a"), {Name: "q", Kind: Local, Persistent: "b"}}))
	if err := v.DestroyPersistent(t.Context()); err == nil {
		t.Error("what a pod has is gone")
	}
	must(t, v.Remove(t.Context(), uid), v.DestroyPersistent(t.Context()))
	if left, err := os.ReadDir(v.cfg.Persistent); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// A folder that was made once and is not there is not begun anew: the disk may not be
// mounted. One that somebody put there is taken.
func TestPersistentDataThatIsGone(t *testing.T) {
	v := open(t)
	must(t, v.Ensure(t.Context(), uid, []Volume{ours("pvc-1")}), v.Remove(t.Context(), uid))
	away := filepath.Join(t.TempDir(), "away")
	must(t, os.Rename(v.persistent("pvc-1"), away))
	err := v.Ensure(t.Context(), uid, []Volume{ours("pvc-1")})
	if err == nil || !strings.Contains(err.Error(), "the data of volume pvc-1 is gone") {
		t.Fatal(err)
	}
	must(t, os.Rename(away, v.persistent("pvc-1")), v.Ensure(t.Context(), uid, []Volume{ours("pvc-1")}))
	must(t, os.Mkdir(v.persistent("restored"), 0o700), v.Ensure(t.Context(), other, []Volume{ours("restored")}))
	if _, err := os.Stat(filepath.Join(v.cfg.Made, "restored")); err != nil {
		t.Error(err)
	}
	// A link in its place is not followed.
	must(t, os.Symlink(t.TempDir(), v.persistent("link")))
	if err := v.Ensure(t.Context(), "55", []Volume{ours("link")}); err == nil {
		t.Error("a link was followed")
	}
	if err := v.Discard(t.Context(), "link"); err == nil || !strings.Contains(err.Error(), "is no folder") {
		t.Error(err)
	}
}

// Removing goes in bounded steps, follows no link, and stops at a mount.
func TestDiscardIsBoundedAndStaysInside(t *testing.T) {
	v := open(t)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "data"), []byte("dear"), 0o644))
	must(t, v.Ensure(t.Context(), uid, []Volume{ours("pvc-1")}), v.Remove(t.Context(), uid))
	dir := v.persistent("pvc-1")
	must(t, os.Symlink(outside, filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "mount"), 0o755))
	for i := range 3 * removeAtOnce / 2 {
		sub := filepath.Join(dir, fmt.Sprint(i%7))
		if i < 7 {
			must(t, os.Mkdir(sub, 0o755))
		}
		must(t, os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), nil, 0o600))
	}
	must(t, unix.Mount(outside, filepath.Join(dir, "mount"), "", unix.MS_BIND, ""))
	if err := v.Discard(t.Context(), "pvc-1"); err == nil || !strings.Contains(err.Error(), "something is mounted at "+dir+"/mount") {
		t.Errorf("%v", err)
	}
	must(t, unix.Unmount(filepath.Join(dir, "mount"), 0), v.Discard(t.Context(), "pvc-1"))
	// A mount that comes later holds the rest up.
	aside := v.persistent(beingRemoved + "pvc-1")
	must(t, unix.Mount(outside, filepath.Join(aside, "mount"), "", unix.MS_BIND, ""))
	if left, err := v.Clear(t.Context()); err == nil || !slices.Equal(left, []string{"pvc-1"}) {
		t.Error(left, err)
	}
	must(t, unix.Unmount(filepath.Join(aside, "mount"), 0))
	if steps := clearAll(t, v); steps < 1 {
		t.Errorf("%d steps", steps)
	}
	if text(t, filepath.Join(outside, "data")) != "dear" {
		t.Error("what a link led to is gone")
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, v.Ensure(t.Context(), uid, []Volume{ours("pvc-2")}), v.Remove(t.Context(), uid), v.Discard(t.Context(), "pvc-2"))
	must(t, os.WriteFile(filepath.Join(v.persistent(beingRemoved+"pvc-2"), "x"), nil, 0o600))
	if left, err := v.Clear(done); err != nil || len(left) != 1 {
		t.Error(left, err)
	}
	clearAll(t, v)
}

// The files of a volume become its pod's group's: Always all, OnRootMismatch only when
// the folder is not; nothing outside, and none that another pod uses.
func TestPersistentGroups(t *testing.T) {
	v := open(t)
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, nil, 0o600))
	must(t, v.Ensure(t.Context(), uid, []Volume{ours("p")}), v.Remove(t.Context(), uid))
	dir := v.persistent("p")
	must(t, os.MkdirAll(filepath.Join(dir, "d/e"), 0o700), os.WriteFile(filepath.Join(dir, "d/f"), nil, 0o400), os.Symlink(outside, filepath.Join(dir, "d/link")))
	check := func(what string, group int64, paths ...string) {
		t.Helper()
		for _, p := range paths {
			info, err := os.Lstat(filepath.Join(dir, p))
			must(t, err)
			if ownedBy(info, nil, &group) != (what == "theirs") {
				t.Errorf("%s of %d: %s is not", what, group, p)
			}
		}
		if info, err := os.Stat(outside); err != nil || !ownedBy(info, nil, new(int64(0))) || info.Mode().Perm() != 0o600 {
			t.Error("a file outside was changed", err)
		}
	}
	mount := func(pod types.UID, group int64, mismatch bool) {
		t.Helper()
		w := ours("p")
		w.Group, w.Mismatch = &group, mismatch
		must(t, v.Ensure(t.Context(), pod, []Volume{w}))
	}
	mount(uid, 99, true)
	check("theirs", 99, ".", "d", "d/e", "d/f", "d/link")
	for p, want := range map[string]fs.FileMode{".": 0o777 | fs.ModeSetgid, "d": 0o770 | fs.ModeSetgid, "d/e": 0o770 | fs.ModeSetgid, "d/f": 0o660} {
		if info, err := os.Stat(filepath.Join(dir, p)); err != nil || info.Mode()&^fs.ModeDir != want {
			t.Errorf("%s: %v, want %v", p, info.Mode(), want)
		}
	}
	mount(other, 77, false) // the first pod has it
	check("theirs", 99, ".", "d/f")
	must(t, v.Remove(t.Context(), uid), v.Remove(t.Context(), other), os.Lchown(filepath.Join(dir, "d/f"), -1, 5))
	mount(uid, 99, true)
	check("theirs", 5, "d/f")
	must(t, v.Remove(t.Context(), uid))
	mount(uid, 99, false)
	check("theirs", 99, "d/f")
}

// Static volumes: a local path must be there, a hostPath is what it says to be and comes
// with what is mounted in it.
func TestStaticLocalVolumes(t *testing.T) {
	v := open(t)
	host := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(host, "in"), 0o755), os.WriteFile(filepath.Join(host, "file"), []byte("text"), 0o644))
	must(t, unix.Mount("tmpfs", filepath.Join(host, "in"), "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unmountAll(filepath.Join(host, "in"))) })
	must(t, os.WriteFile(filepath.Join(host, "in", "data"), []byte("deep"), 0o644))
	local := func(name, path string) Volume { return Volume{Name: name, Kind: Local, Path: path} }
	for path, want := range map[string]string{host + "/none": "does not exist", host + "/file": "is not a directory"} {
		if err := v.Ensure(t.Context(), uid, []Volume{local("x", path)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	deep := local("h", host)
	deep.Recursive = true
	file := local("f", host+"/file")
	file.Recursive, file.Type = true, corev1.HostPathFile
	made := local("m", host+"/made")
	made.Recursive, made.Type = true, corev1.HostPathDirectoryOrCreate
	must(t, v.Ensure(t.Context(), uid, []Volume{local("l", host), deep, file, made}))
	if got := text(t, v.memory(uid, "h")+"/in/data"); got != "deep" {
		t.Errorf("the hostPath has %q", got)
	}
	if _, err := os.Stat(v.memory(uid, "l") + "/in/data"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the local volume has what is mounted in it", err)
	}
	if got := text(t, v.memory(uid, "f")); got != "text" {
		t.Errorf("the file has %q", got)
	}
	if err := v.Ensure(t.Context(), other, []Volume{{Name: "f", Kind: Local, Recursive: true, Path: host + "/file", Type: corev1.HostPathDirectory}}); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Error(err)
	}
	must(t, v.Remove(t.Context(), other), v.Remove(t.Context(), uid))
	if text(t, host+"/in/data") != "deep" || text(t, host+"/file") != "text" {
		t.Error("what is the machine's is not as it was")
	}
}

// What the machine mounts below a folder that a pod has, stays when the pod goes, though
// both are told of each other's mounts.
func TestRemoveLeavesTheMachinesMounts(t *testing.T) {
	v := open(t)
	host := t.TempDir()
	must(t, unix.Mount("tmpfs", host, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unmountAll(host)) })
	must(t, unix.Mount("", host, "", unix.MS_SHARED, ""), os.MkdirAll(host+"/sub/disk", 0o755))
	w := Volume{Name: "h", Kind: Local, Path: host, Recursive: true}
	d := Volume{Name: "d", Kind: Host, Path: host}
	must(t, v.Ensure(t.Context(), uid, []Volume{w, d}))
	_, err := v.Mounts(t.Context(), uid, &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "d", MountPath: "/d", SubPath: "sub"}}}, []Volume{w, d})
	must(t, err)
	must(t, unix.Mount("tmpfs", host+"/sub/disk", "tmpfs", 0, ""), os.WriteFile(host+"/sub/disk/data", []byte("dear"), 0o644))
	if got := text(t, v.memory(uid, "h")+"/sub/disk/data"); got != "dear" {
		t.Errorf("the pod's folder does not follow: %q", got)
	}
	must(t, v.Remove(t.Context(), uid))
	if got := text(t, host+"/sub/disk/data"); got != "dear" {
		t.Errorf("%q", got)
	}
}

// script is a program that stands for mount.nfs.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mount.nfs")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return path
}

func TestNFS(t *testing.T) {
	v := open(t)
	w := Volume{Name: "n", Kind: NFS, Server: "nas.example", Path: "/x y", Options: []string{"vers=4.2", "soft"}, ReadOnly: true}
	v.cfg.NFSProgram = script(t, `[ "$1" = "nas.example:/x y" ] && [ "$3" = -o ] && [ "$4" = vers=4.2,soft,ro ] || { echo "$@"; exit 1; }
mount -t tmpfs tmpfs "$2" && echo hello > "$2/data"`)
	must(t, v.Ensure(t.Context(), uid, []Volume{w}))
	if got := text(t, v.memory(uid, "n")+"/data"); got != "hello\n" {
		t.Errorf("%q", got)
	}
	v.cfg.NFSProgram = script(t, "exit 1")
	must(t, v.Ensure(t.Context(), uid, []Volume{w})) // it is mounted
	mounts, err := v.Mounts(t.Context(), uid, &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "n", MountPath: "/n"}}}, []Volume{w})
	if err != nil || !mounts[0].ReadOnly {
		t.Error(mounts, err)
	}
	must(t, v.Remove(t.Context(), uid))

	fails := func(what, want string) {
		t.Helper()
		if err := v.Ensure(t.Context(), uid, []Volume{w}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	v.cfg.NFSProgram = script(t, "echo 'mount.nfs: access denied by server' >&2; exit 32")
	fails("refused", "mount nas.example:/x y: exit status 32: mount.nfs: access denied by server")
	v.cfg.NFSProgram = script(t, "head -c 100000 /dev/zero | tr '\\0' x; exit 1")
	if err := v.Ensure(t.Context(), uid, []Volume{w}); err == nil || len(err.Error()) > 2*mostSaid {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	v.cfg.NFSProgram = "/none"
	fails("no program", "this node has no NFS client: install nfs-common")
	w.Server = "-oexec"
	fails("server", "is neither an address nor a name")
	for server, want := range map[string]string{"10.0.0.1": "10.0.0.1:/x", "fd00::1": "[fd00::1]:/x", "NAS": "NAS:/x"} {
		if got, err := nfsSource(server, "/x"); err != nil || got != want {
			t.Error(got, err)
		}
	}
	if _, err := nfsSource("nas", "x"); err == nil {
		t.Error("a path that is not absolute")
	}
}

// A server that does not answer holds nobody: who asks is told, is not told at length a
// second time, and gets the outcome when there is one.
func TestNFSServerThatDoesNotAnswer(t *testing.T) {
	v := open(t)
	v.jobs.patience, v.cfg.NFSTimeout = 50*time.Millisecond, time.Minute
	gate := filepath.Join(t.TempDir(), "gate")
	must(t, unix.Mkfifo(gate, 0o600))
	v.cfg.NFSProgram = script(t, "read x < "+gate+`; mount -t tmpfs tmpfs "$2"`)
	w := Volume{Name: "n", Kind: NFS, Server: "nas", Path: "/x"}
	for range 2 {
		if err := v.Ensure(t.Context(), uid, []Volume{w}); !errors.Is(err, errSlow) || !strings.Contains(err.Error(), "NFS server nas has not answered yet") {
			t.Fatal(err)
		}
	}
	must(t, os.WriteFile(gate, []byte("go\n"), 0o600))
	v.jobs.mu.Lock()
	b := v.jobs.all[string(uid)+"/volume/n"]
	v.jobs.mu.Unlock()
	<-b.done
	must(t, v.Ensure(t.Context(), uid, []Volume{w}))
	if mounted, err := isMount(v.memory(uid, "n")); err != nil || !mounted {
		t.Error(mounted, err)
	}
	must(t, v.Remove(t.Context(), uid))

	// One that never answers is given up, and a pod that goes does not wait for it.
	v.cfg.NFSTimeout, v.jobs.patience = 100*time.Millisecond, time.Minute
	v.cfg.NFSProgram = script(t, "read x < "+gate)
	if err := v.Ensure(t.Context(), uid, []Volume{w}); err == nil || !strings.Contains(err.Error(), "NFS server nas does not answer") {
		t.Error(err)
	}
	v.cfg.NFSTimeout, v.jobs.patience = time.Minute, time.Millisecond
	if err := v.Ensure(t.Context(), uid, []Volume{w}); !errors.Is(err, errSlow) {
		t.Error(err)
	}
	v.jobs.mu.Lock()
	b = v.jobs.all[string(uid)+"/volume/n"]
	v.jobs.mu.Unlock()
	must(t, v.Remove(t.Context(), uid))
	<-b.done
	if len(v.jobs.all) > 0 {
		t.Error("the job of a pod that is gone is kept")
	}
}

// So many calls hang, and no more.
func TestJobsAreBounded(t *testing.T) {
	j := &jobs{patience: time.Microsecond}
	gate := make(chan struct{})
	for i := range maxJobs {
		if _, err := j.do(t.Context(), uid, fmt.Sprint(i), "it hangs", func(context.Context) ([]Mount, error) { <-gate; return nil, nil }); !errors.Is(err, errSlow) {
			t.Fatal(err)
		}
	}
	if _, err := j.do(t.Context(), uid, "one more", "", func(context.Context) ([]Mount, error) { return nil, nil }); err == nil || !strings.Contains(err.Error(), "do not answer") {
		t.Error(err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.do(done, uid, "0", "", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(gate)
	j.patience = time.Minute
	for i := range maxJobs {
		j.mu.Lock()
		b := j.all[string(uid)+"/"+fmt.Sprint(i)]
		j.mu.Unlock()
		<-b.done
		if _, err := j.do(t.Context(), uid, fmt.Sprint(i), "", nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(j.all) > 0 {
		t.Errorf("%d are kept", len(j.all))
	}
}
