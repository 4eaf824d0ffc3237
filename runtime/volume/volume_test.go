package volume

import (
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

const uid = types.UID("11111111-2222")

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("this test needs root, and CI is set")
		}
		t.Skip("this test needs root")
	}
}

// open makes Volumes in a folder of the test; it needs root, for mounts.
func open(t *testing.T) *Volumes {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	v, err := New(Config{Disk: filepath.Join(dir, "disk"), Memory: filepath.Join(dir, "memory"), Persistent: filepath.Join(dir, "persistent"), Made: filepath.Join(dir, "made")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		if err := v.Destroy(t.Context()); err == nil {
			t.Error("a second Destroy found something to list")
		}
	})
	return v
}

func content(files map[string]string) Volume {
	v := Volume{Name: "c", Kind: Content, Files: map[string]File{}}
	for p, text := range files {
		v.Files[p] = File{Data: []byte(text), Mode: 0o644}
	}
	return v
}

func ensure(t *testing.T, v *Volumes, volumes ...Volume) {
	t.Helper()
	if err := v.Ensure(t.Context(), uid, volumes); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// tree is what a program sees in a folder of content.
func treeOf(t interface{ Fatal(...any) }, dir string) map[string]string {
	out := map[string]string{}
	top, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range top {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(real, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(p)
			out[strings.TrimPrefix(e.Name()+strings.TrimPrefix(p, real), "/")] = string(raw)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// What does not fit leaves the old content, and nothing beside it that would fill the
// disk further at each try.
func TestContentThatDoesNotFit(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmountAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := writeContent(dir, content(map[string]string{"a": "1"}).Files, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	large := content(map[string]string{"a": strings.Repeat("x", 30<<10), "b": strings.Repeat("x", 60<<10)}).Files
	for range 3 {
		if err := writeContent(dir, large, nil, time.Now()); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("%v", err)
		}
	}
	if after, err := os.ReadDir(dir); err != nil || len(after) != len(before) || text(t, filepath.Join(dir, "a")) != "1" {
		t.Errorf("%v, then %v, %v", before, after, err)
	}
}

func TestContentIsSwappedWhole(t *testing.T) {
	v := open(t)
	ensure(t, v, content(map[string]string{"a": "1", "d/x": "2", "gone": "3"}))
	dir := v.memory(uid, "c")
	if got := treeOf(t, dir); !maps.Equal(got, map[string]string{"a": "1", "d/x": "2", "gone": "3"}) {
		t.Fatal(got)
	}
	before, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	ensure(t, v, content(map[string]string{"a": "1", "d/x": "2", "gone": "3"}))
	if same, _ := os.Readlink(filepath.Join(dir, dataLink)); same != before {
		t.Error("the same content was written again")
	}
	held, err := os.Open(filepath.Join(dir, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	ensure(t, v, content(map[string]string{"a": "one", "d/y": "two"}))
	if got := treeOf(t, dir); !maps.Equal(got, map[string]string{"a": "one", "d/y": "two"}) {
		t.Error(got)
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 4 { // ..data, its folder, a, d
		t.Error(all, err)
	}
}

// Whatever an interrupted write left, the next one ends in the same state.
func TestContentAfterAnInterruptedWrite(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	names := []string{"a", "b", "d/x", "d/y", "e"}
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(base, strings.Repeat("i", n%50), "v")
		draw := func(label string) map[string]File {
			out := map[string]File{}
			for _, p := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(rt, label) {
				out[p] = File{Data: []byte(rapid.StringN(0, 4, 8).Draw(rt, p)), Mode: rapid.SampledFrom([]fs.FileMode{0o400, 0o644, 0o755}).Draw(rt, "mode")}
			}
			return out
		}
		var group *int64
		if rapid.Bool().Draw(rt, "group") {
			group = new(int64(1234))
		}
		old, next := draw("old"), draw("next")
		must := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		must(writeContent(dir, old, nil, time.Unix(0, 0)))
		switch rapid.IntRange(0, 4).Draw(rt, "killed") {
		case 1: // while it filled the new folder
			half := filepath.Join(dir, "..2026_12_01_00_00_00.1")
			must(os.MkdirAll(filepath.Join(half, "d"), 0o755))
			must(os.WriteFile(filepath.Join(half, "a"), []byte("half"), 0o600))
		case 2: // before the swap
			must(os.MkdirAll(filepath.Join(dir, "..2026_12_01_00_00_00.2"), 0o755))
			_ = os.Remove(filepath.Join(dir, newLink))
			must(os.Symlink("..2026_12_01_00_00_00.2", filepath.Join(dir, newLink)))
		case 3: // after it
			fresh := filepath.Join(dir, "..2026_12_01_00_00_00.3")
			_ = os.RemoveAll(fresh)
			must(os.Mkdir(fresh, 0o755))
			must(fill(fresh, next, group))
			must(swap(dir, filepath.Base(fresh)))
		case 4: // the link leads nowhere
			must(swap(dir, "..none"))
		}
		must(writeContent(dir, next, group, time.Unix(0, 0)))
		got := treeOf(rt, dir)
		if len(got) != len(next) {
			rt.Fatalf("%v, wanted %v", got, next)
		}
		for p, f := range next {
			info, err := os.Stat(filepath.Join(dir, p))
			must(err)
			if got[p] != string(f.Data) || info.Mode().Perm() != modeFor(f.Mode, group, true) || !ownedBy(info, f.Owner, group) {
				rt.Fatalf("%s is %q %v", p, got[p], info.Mode())
			}
		}
		left, err := os.ReadDir(dir)
		must(err)
		ours := 0
		for _, e := range left {
			if strings.HasPrefix(e.Name(), "..") {
				ours++
			}
		}
		if ours != 2 {
			rt.Fatalf("left over: %v", left)
		}
	})
}

// A reader never sees a part of the old content with a part of the new.
func TestReadersSeeOneContent(t *testing.T) {
	v := open(t)
	ensure(t, v, content(map[string]string{"a": "0", "b": "0"}))
	dir := v.memory(uid, "c")
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 300 {
			s := string(rune('0' + i%10))
			if err := v.Ensure(t.Context(), uid, []Volume{content(map[string]string{"a": s, "b": s})}); err != nil {
				t.Error(err)
			}
		}
		close(done)
	})
	reads := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		now, err := os.Readlink(filepath.Join(dir, dataLink))
		if err != nil {
			t.Fatal(err)
		}
		a, errA := os.ReadFile(filepath.Join(dir, now, "a"))
		b, errB := os.ReadFile(filepath.Join(dir, now, "b"))
		if errA == nil && errB == nil { // else the folder was replaced meanwhile
			reads++
			if string(a) != string(b) {
				t.Fatalf("a is %s and b is %s", a, b)
			}
		}
		if _, err := os.ReadFile(filepath.Join(dir, "a")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if reads == 0 {
		t.Error("nothing was read")
	}
}

func TestR14_ContentIsInMemoryOnly(t *testing.T) {
	v := open(t)
	ensure(t, v, content(map[string]string{"token": "hunter2"}))
	var s unix.Statfs_t
	if err := unix.Statfs(v.memory(uid, "c"), &s); err != nil || s.Type != unix.TMPFS_MAGIC {
		t.Errorf("type %x, %v", s.Type, err)
	}
	if left, err := os.ReadDir(v.cfg.Disk); err != nil || len(left) != 0 {
		t.Error("something is on the disk", left, err)
	}
}

func TestEmptyDirs(t *testing.T) {
	v := open(t)
	disk, memory := Volume{Name: "d", Kind: Disk}, Volume{Name: "m", Kind: Memory, Size: 1 << 20, Group: new(int64(55))}
	if err := os.MkdirAll(v.disk(uid, "d")+".new", 0o700); err != nil { // of an interrupted call
		t.Fatal(err)
	}
	ensure(t, v, disk, memory)
	for _, w := range []Volume{disk, memory} {
		if err := os.WriteFile(filepath.Join(v.path(uid, w), "mine"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ensure(t, v, disk, memory)
	for _, w := range []Volume{disk, memory} {
		if got := text(t, filepath.Join(v.path(uid, w), "mine")); got != "x" {
			t.Errorf("%s: %q", w.Name, got)
		}
	}
	info, err := os.Stat(v.path(uid, disk))
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Error(info, err)
	}
	info, err = os.Stat(v.path(uid, memory))
	if err != nil || info.Mode().Perm() != 0o777 || info.Mode()&fs.ModeSetgid == 0 || !ownedBy(info, nil, new(int64(55))) {
		t.Error(info, err)
	}
	// The limit of one in memory is the kernel's.
	if err := os.WriteFile(filepath.Join(v.path(uid, memory), "big"), make([]byte, 2<<20), 0o644); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("2 MiB into 1 MiB: %v", err)
	}
	all, err := mountPoints()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.DeleteFunc(all, func(m *mountinfo.Info) bool { return m.Mountpoint != v.path(uid, memory) })); n != 1 {
		t.Errorf("%d mounts where one should be", n)
	}
}

func TestUsage(t *testing.T) {
	v := open(t)
	ensure(t, v, Volume{Name: "d", Kind: Disk})
	dir := v.disk(uid, "d")
	outside := filepath.Join(t.TempDir(), "big")
	for _, err := range []error{
		os.WriteFile(outside, make([]byte, 8<<20), 0o644), os.Symlink(outside, filepath.Join(dir, "link")), os.Symlink(filepath.Dir(outside), filepath.Join(dir, "folder")),
		os.WriteFile(filepath.Join(dir, "one"), make([]byte, 1<<20), 0o644), os.Link(filepath.Join(dir, "one"), filepath.Join(dir, "two")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n, err := v.Usage(t.Context(), uid, "d", math.MaxInt64); err != nil || n.Bytes < 1<<20 || n.Bytes > 2<<20 || n.Inodes != 4 {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err := v.Usage(t.Context(), uid, "none", math.MaxInt64); err != nil || n != (Room{}) {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err := v.Usage(t.Context(), "nobody", "d", math.MaxInt64); err != nil || n != (Room{}) {
		t.Errorf("%+v, %v", n, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "three"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if n, err := v.Usage(t.Context(), uid, "d", 1000); err != nil || n.Bytes <= 1000 || n.Bytes >= 2<<20 {
		t.Errorf("it is counted on when it is more than enough: %+v, %v", n, err)
	}
	nest(t, dir, deepestMeasured+1)
	if n, err := v.Usage(t.Context(), uid, "d", math.MaxInt64); err != nil || n.Bytes != math.MaxInt64 {
		t.Errorf("nested too deep: %+v, %v", n, err)
	}
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	file, sock := filepath.Join(dir, "file"), filepath.Join(dir, "sock")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: sock}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string
		of   corev1.HostPathType
		err  string
	}{
		{dir, corev1.HostPathUnset, ""},
		{filepath.Join(dir, "unset"), corev1.HostPathUnset, ""},
		{dir, corev1.HostPathDirectory, ""},
		{file, corev1.HostPathDirectory, "is not a directory"},
		{filepath.Join(dir, "none"), corev1.HostPathDirectory, "is not a directory"},
		{filepath.Join(dir, "made", "too"), corev1.HostPathDirectoryOrCreate, ""},
		{file, corev1.HostPathDirectoryOrCreate, "is not a directory"},
		{file, corev1.HostPathFile, ""},
		{dir, corev1.HostPathFile, "is not a file"},
		{filepath.Join(dir, "made", "file"), corev1.HostPathFileOrCreate, ""},
		{filepath.Join(dir, "no", "folder"), corev1.HostPathFileOrCreate, "no such file"},
		{dir, corev1.HostPathFileOrCreate, "is not a file"},
		{sock, corev1.HostPathSocket, ""},
		{file, corev1.HostPathSocket, "is not a socket file"},
		{"/dev/null", corev1.HostPathCharDev, ""},
		{file, corev1.HostPathCharDev, "is not a character device"},
		{"/dev/null", corev1.HostPathBlockDev, "is not a block device"},
		{file, "Other", "invalid volume type"},
	} {
		err := checkHost(tc.path, tc.of)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s of %q: %v", tc.path, tc.of, err)
		}
		if err == nil {
			if _, err := os.Stat(tc.path); err != nil {
				t.Errorf("%s of %q is not there: %v", tc.path, tc.of, err)
			}
		}
	}
}

// nest makes so many folders in one another.
func nest(t *testing.T, dir string, n int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := unix.Mkdirat(at, "deep", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "deep", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
}

// Removing a pod's volumes takes away what it and a killed agent left, and nothing
// that its links and mounts lead to.
func TestRemoveReachesNothingElse(t *testing.T) {
	v := open(t)
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "data"), []byte("dear"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, m := Volume{Name: "d", Kind: Disk}, Volume{Name: "m", Kind: Memory}
	h := Volume{Name: "h", Kind: Host, Path: host}
	ensure(t, v, d, m, h, content(map[string]string{"a": "1"}))
	c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "h", MountPath: "/h", SubPath: "data"}, {Name: "d", MountPath: "/d", SubPath: "new/folder"}}}
	if _, err := v.Mounts(t.Context(), uid, c, []Volume{d, m, h}); err != nil {
		t.Fatal(err)
	}
	dir := v.disk(uid, "d")
	inner := filepath.Join(dir, "mounted here")
	for _, err := range []error{
		os.Symlink(host, filepath.Join(dir, "link")), os.Mkdir(inner, 0o755),
		unix.Mount(host, inner, "", unix.MS_BIND, ""), unix.Mount(host, inner, "", unix.MS_BIND, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	nest(t, dir, 3*deepest)  // deeper than what is opened at one time
	again, err := New(v.cfg) // an agent that was started anew
	if err != nil {
		t.Fatal(err)
	}
	if all, err := again.Pods(); err != nil || !slices.Equal(all, []types.UID{uid}) {
		t.Fatal(all, err)
	}
	for range 2 {
		if err := again.Remove(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
	}
	if got := text(t, filepath.Join(host, "data")); got != "dear" {
		t.Errorf("the machine's file is %q", got)
	}
	if all, err := again.Pods(); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	all, err := mountPoints()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if strings.Contains(p.Mountpoint, string(uid)) {
			t.Error("still mounted:", p.Mountpoint)
		}
	}
}

// Removing enters no mount, even one that came after the list of mounts was read.
func TestRemoveTreeStopsAtMounts(t *testing.T) {
	v := open(t)
	ensure(t, v, Volume{Name: "d", Kind: Disk})
	host := t.TempDir()
	inner := filepath.Join(v.disk(uid, "d"), "m")
	for _, err := range []error{os.WriteFile(filepath.Join(host, "data"), nil, 0o644), os.Mkdir(inner, 0o755), unix.Mount(host, inner, "", unix.MS_BIND, "")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := unix.Open(v.cfg.Disk, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	if err := removeTree(root, string(uid), nil); !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(host, "data")); err != nil {
		t.Error("what was mounted is deleted:", err)
	}
}

func TestUIDsAreNames(t *testing.T) {
	v := &Volumes{cfg: Config{Disk: "/nonexistent", Memory: "/nonexistent"}}
	for _, bad := range []types.UID{"", "..", "a/b", "../x", types.UID(strings.Repeat("a", 64))} {
		if err := errors.Join(v.Ensure(t.Context(), bad, nil)); err == nil {
			t.Errorf("Ensure took %q", bad)
		}
		if err := v.Remove(t.Context(), bad); err == nil {
			t.Errorf("Remove took %q", bad)
		}
		if _, err := v.Mounts(t.Context(), bad, &corev1.Container{}, nil); err == nil {
			t.Errorf("Mounts took %q", bad)
		}
		if _, err := v.Usage(t.Context(), bad, "v", math.MaxInt64); err == nil {
			t.Errorf("Usage took %q", bad)
		}
	}
}
