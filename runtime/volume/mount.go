package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Mount is a place in a container where something of this machine is seen.
type Mount struct {
	Source      string
	Destination string
	ReadOnly    bool
	Propagation Propagation
}

// Propagation says whether mounts that come later, below a mount, are seen.
type Propagation string

const (
	Private Propagation = "rprivate" // neither way
	Slave   Propagation = "rslave"   // those of the machine are seen in the container
	Shared  Propagation = "rshared"  // both ways
)

// Mounts prepares what a container mounts and says where it is. The volumes are the
// pod's that Ensure made; subPathExprs are already expanded into subPath. It is called
// before each start of the container, while it does not run.
func (v *Volumes) Mounts(ctx context.Context, uid types.UID, c *corev1.Container, volumes []Volume) ([]Mount, error) {
	if err := validUID(uid); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(volumes, func(w Volume) bool { return w.Kind == Host || w.Kind == NFS || w.Kind == Mounted }) {
		return v.mounts(ctx, uid, c, volumes)
	}
	stage := "the file system of a volume does not answer; its server may be down"
	return v.jobs.do(ctx, uid, "mounts/"+c.Name, stage, func(ctx context.Context) ([]Mount, error) { return v.mounts(ctx, uid, c, volumes) })
}

func (v *Volumes) mounts(ctx context.Context, uid types.UID, c *corev1.Container, volumes []Volume) ([]Mount, error) {
	byName := make(map[string]Volume, len(volumes))
	for _, w := range volumes {
		byName[w.Name] = w
	}
	table := &mountTable{}
	out := make([]Mount, 0, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m := &c.VolumeMounts[i]
		w, ok := byName[m.Name]
		if !ok {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Name)
		}
		one := Mount{Source: v.path(uid, w), Destination: path.Join("/", m.MountPath), ReadOnly: m.ReadOnly || w.ReadOnly || w.Kind == Content}
		var err error
		if one.Propagation, err = table.propagation(m, w, one.Source); err != nil {
			return nil, err
		}
		if m.SubPath != "" {
			target := filepath.Join(v.cfg.Memory, string(uid), "subpaths", c.Name, strconv.Itoa(i))
			if err := bindSubPath(one.Source, m.SubPath, target); err != nil {
				// The cause could tell of the machine's files.
				return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", m.Name, c.Name, outward(err))
			}
			one.Source = target
		}
		out = append(out, one)
	}
	return out, nil
}

// SubPath is the path in the volume that a mount shows, with the container's
// variables in the place of $(NAME).
func SubPath(m *corev1.VolumeMount, expand func(string) (string, error)) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		var err error
		if sub, err = expand(m.SubPathExpr); err != nil {
			return "", err
		}
	}
	said := cmp.Or(m.SubPathExpr, m.SubPath) // what a variable holds may be secret (R14)
	switch {
	case sub == "":
		return "", nil
	case path.IsAbs(sub):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", said)
	}
	for name := range strings.SplitSeq(sub, "/") {
		if name == ".." {
			return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", said)
		}
	}
	return sub, nil
}

// outward is what may be told of why a subPath cannot be opened.
func outward(err error) error {
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
		return errors.New("it leads out of the volume")
	case errors.Is(err, unix.ENOTDIR):
		return errors.New("something on the way is not a directory")
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("a link on the way leads nowhere")
	case errors.Is(err, unix.ENAMETOOLONG):
		return errors.New("a name is too long")
	case errors.Is(err, unix.EROFS):
		return errors.New("the volume is read-only and does not have it")
	}
	return errors.New("it cannot be opened")
}

// bindSubPath mounts a path in a volume on target. What is mounted is what was
// opened beneath the volume, whatever the path leads to afterwards.
func bindSubPath(volume, sub, target string) error {
	root, err := unix.Open(volume, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	fd, err := openBeneath(root, sub)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return bind(fd, target, false)
}

// openBeneath opens a path below root and makes the folders of it that are missing,
// with root's mode. No link leads it out of root: the kernel refuses that while it
// walks, so that nobody can change the way in between.
func openBeneath(root int, sub string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	open := func(p string) (int, error) {
		for try := 0; ; try++ {
			fd, err := unix.Openat2(root, p, how)
			// The kernel gives up when something was renamed meanwhile.
			if (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)) && try < 100 {
				continue
			}
			return fd, err
		}
	}
	sub = path.Clean(sub)
	fd, err := open(sub)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	var s unix.Stat_t
	if err := unix.Fstat(root, &s); err != nil {
		return -1, err
	}
	parent, err := open(".")
	if err != nil {
		return -1, err
	}
	defer func() { unix.Close(parent) }()
	at := ""
	for name := range strings.SplitSeq(sub, "/") {
		at = path.Join(at, name)
		fd, err := open(at)
		if errors.Is(err, unix.ENOENT) {
			if err := makeIn(parent, name, s.Mode&0o7777); err != nil && !errors.Is(err, unix.EEXIST) {
				return -1, err
			}
			fd, err = open(at)
		}
		if err != nil {
			return -1, err
		}
		unix.Close(parent)
		parent = fd
	}
	return open(sub)
}

// makeIn makes a folder in one that is open, with its mode at once: what is killed
// between two calls would leave one that nobody mends. So it is made by a thread whose
// umask is its own, and which ends with it. The group's bit is inherited.
func makeIn(parent int, name string, mode uint32) error {
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			unix.Umask(0)
			err = unix.Mkdirat(parent, name, mode)
		}
		made <- err
	}()
	return <-made
}

// bind mounts what is open on target, anew if something is there; with what is mounted
// below it or without.
func bind(fd int, target string, recursive bool) error {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	if err := unmountAll(target); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := os.Mkdir(target, 0o700); err != nil {
			return err
		}
	} else if err := os.WriteFile(target, nil, 0o600); err != nil {
		return err
	}
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(fd, "", flags)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// mountTable is what the kernel says is mounted, read when it is needed.
type mountTable struct {
	read bool
	all  []*mountinfo.Info
}

// propagation of a mount. One that is to be heard of later needs a mount of the
// machine that tells of them.
func (t *mountTable) propagation(m *corev1.VolumeMount, w Volume, source string) (Propagation, error) {
	if m.MountPropagation == nil {
		return Private, nil
	}
	var p Propagation
	switch *m.MountPropagation {
	case corev1.MountPropagationNone:
		return Private, nil
	case corev1.MountPropagationHostToContainer:
		p = Slave
	case corev1.MountPropagationBidirectional:
		p = Shared
	default:
		return "", fmt.Errorf("invalid MountPropagation mode: %q", *m.MountPropagation)
	}
	if !t.read {
		var err error
		if t.all, err = mountPoints(); err != nil {
			return "", err
		}
		t.read = true
	}
	real, err := filepath.EvalSymlinks(source)
	if err != nil {
		return "", fmt.Errorf("find the mount of volume %q: %w", w.Name, err)
	}
	on := mountOf(t.all, real)
	if shared := tagged(on, "shared:"); p == Shared && !shared || p == Slave && !shared && !tagged(on, "master:") {
		return "", fmt.Errorf("volumeMount %q: path %q is mounted on %q but it is not a shared mount", m.Name, w.Name, on.Mountpoint)
	}
	return p, nil
}

// mountOf is the mount that a path is on.
func mountOf(all []*mountinfo.Info, at string) *mountinfo.Info {
	on := &mountinfo.Info{}
	for _, m := range all { // of several on one path the last is seen
		if within(m.Mountpoint, at) && len(m.Mountpoint) >= len(on.Mountpoint) {
			on = m
		}
	}
	return on
}

// tagged says whether a mount has an optional field, as mount_namespaces(7) names them.
func tagged(m *mountinfo.Info, tag string) bool {
	return slices.ContainsFunc(strings.Fields(m.Optional), func(f string) bool { return strings.HasPrefix(f, tag) })
}

func within(dir, p string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

func mountPoints() ([]*mountinfo.Info, error) {
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read the mounts of this machine: %w", err)
	}
	return all, nil
}
