package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Config says where volumes are kept.
type Config struct {
	Disk   string // folder on a disk
	Memory string // folder that is, or becomes, a tmpfs
	// Persistent has the volumes that outlive their pods, and Made, a folder elsewhere,
	// says which of those were made; "": none are.
	Persistent, Made string
	NFSProgram       string           // that mounts NFS; "": the machine's mount.nfs
	NFSTimeout       time.Duration    // of one run of it; default 30 s
	Patience         time.Duration    // for a file system to answer; default 10 s
	Now              func() time.Time // nil: time.Now
}

// Volumes are those of a node's pods. Methods about one pod are called one at a time;
// about different pods, side by side.
type Volumes struct {
	cfg  Config
	kept string // Config.Persistent as it was given
	jobs jobs
}

// New makes the folders.
func New(cfg Config) (*Volumes, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Patience <= 0 {
		cfg.Patience = defaultPatience
	}
	if cfg.NFSTimeout <= 0 {
		cfg.NFSTimeout = nfsTimeout
	}
	v := &Volumes{kept: cfg.Persistent, jobs: jobs{patience: cfg.Patience}}
	for _, dir := range []*string{&cfg.Disk, &cfg.Memory, &cfg.Persistent, &cfg.Made} {
		if *dir == "" {
			continue
		}
		// Only root comes through; a container that may enter is given the folder below.
		if err := os.MkdirAll(*dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the folder of volumes: %w", err)
		}
		real, err := filepath.EvalSymlinks(*dir) // as the kernel lists mounts
		if err != nil {
			return nil, fmt.Errorf("find the folder of volumes: %w", err)
		}
		*dir = real
	}
	v.cfg = cfg
	var s unix.Statfs_t
	if err := unix.Statfs(cfg.Memory, &s); err != nil {
		return nil, fmt.Errorf("inspect the folder of volumes in memory: %w", err)
	}
	mounted, err := isMount(cfg.Memory)
	if err != nil {
		return nil, err
	}
	if mounted && s.Type == unix.TMPFS_MAGIC {
		return v, nil
	}
	if err := mountMemory(cfg.Memory, "mode=0700"); err != nil {
		return nil, fmt.Errorf("mount a tmpfs for volumes: %w", err)
	}
	return v, nil
}

// mountMemory mounts a tmpfs that is never swapped out to a disk, where the kernel
// can promise that.
func mountMemory(path, options string) error {
	const flags = unix.MS_NODEV | unix.MS_NOSUID
	err := unix.Mount("tmpfs", path, "tmpfs", flags, options+",noswap")
	if errors.Is(err, unix.EINVAL) { // before Linux 6.4
		err = unix.Mount("tmpfs", path, "tmpfs", flags, options)
	}
	return err
}

func (v *Volumes) disk(uid types.UID, name string) string {
	return filepath.Join(v.cfg.Disk, string(uid), name)
}

func (v *Volumes) memory(uid types.UID, name string) string {
	return filepath.Join(v.cfg.Memory, string(uid), "volumes", name)
}

// path is where a volume is on this machine.
func (v *Volumes) path(uid types.UID, w Volume) string {
	switch w.Kind {
	case Host:
		return w.Path
	case Disk:
		return v.disk(uid, w.Name)
	default:
		return v.memory(uid, w.Name)
	}
}

// Ensure makes a pod's volumes, and brings the content of those that are there up to
// date. The error is an *Error.
func (v *Volumes) Ensure(ctx context.Context, uid types.UID, volumes []Volume) error {
	if err := validUID(uid); err != nil {
		return err
	}
	for _, w := range volumes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := v.ensure(ctx, uid, w); err != nil {
			return &Error{Volume: w.Name, Err: err}
		}
	}
	return nil
}

// Refresh brings the content of a pod's volumes up to date, and leaves all others.
func (v *Volumes) Refresh(ctx context.Context, uid types.UID, volumes []Volume) error {
	return v.Ensure(ctx, uid, slices.DeleteFunc(slices.Clone(volumes), func(w Volume) bool { return w.Kind != Content }))
}

func (v *Volumes) ensure(ctx context.Context, uid types.UID, w Volume) error {
	path := v.path(uid, w)
	switch w.Kind {
	case Host:
		return v.wait(ctx, uid, w, "path "+w.Path+" does not answer; the server of its file system may be down", func(context.Context) error {
			return checkHost(w.Path, w.Type)
		})
	case Local:
		stage := "the files of the volume are given to the pod's group, or the file system does not answer"
		return v.wait(ctx, uid, w, stage, func(ctx context.Context) error { return v.ensureLocal(ctx, uid, w) })
	case NFS:
		return v.wait(ctx, uid, w, "NFS server "+w.Server+" has not answered yet", func(ctx context.Context) error { return v.ensureNFS(ctx, uid, w) })
	case Mounted:
		return errors.New("nobody has said what it is")
	case Disk:
		return makeFolder(path, w.Group)
	case Memory:
		return makeMemory(path, w)
	case Huge:
		return makeHuge(path, w)
	default:
		return writeContent(path, w.Files, w.Group, v.cfg.Now())
	}
}

// wait does what may take long, for a moment.
func (v *Volumes) wait(ctx context.Context, uid types.UID, w Volume, stage string, f func(context.Context) error) error {
	_, err := v.jobs.do(ctx, uid, "volume/"+w.Name, stage, func(ctx context.Context) ([]Mount, error) { return nil, f(ctx) })
	return err
}

// makeFolder makes an empty folder for anybody. One that has its name is whole: what
// its pod did to it since stays.
func makeFolder(path string, group *int64) error {
	if _, err := os.Lstat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	half := path + ".new" // no volume's name has a dot
	if err := os.MkdirAll(half, 0o700); err != nil {
		return err
	}
	if err := giveFolder(half, group); err != nil {
		return err
	}
	return os.Rename(half, path)
}

func giveFolder(path string, group *int64) error {
	mode := fs.FileMode(0o777)
	if group != nil {
		if err := os.Lchown(path, -1, int(*group)); err != nil {
			return err
		}
		mode |= fs.ModeSetgid
	}
	return os.Chmod(path, mode)
}

// makeMemory mounts a tmpfs where there is none yet.
func makeMemory(path string, w Volume) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	mounted, err := isMount(path)
	if mounted || err != nil {
		return err
	}
	options := "mode=0777"
	if w.Group != nil {
		options = "mode=02777,gid=" + strconv.FormatInt(*w.Group, 10)
	}
	if w.Size > 0 {
		options += ",size=" + strconv.FormatInt(w.Size, 10)
	}
	return mountMemory(path, options)
}

// isMount says whether something is mounted on a path.
func isMount(path string) (bool, error) {
	var s unix.Statx_t
	// Without asking a server, which may be down, for what it has.
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, 0, &s); err != nil {
		return false, fmt.Errorf("inspect %s: %w", path, err)
	}
	if s.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, errors.New("this kernel does not tell mounts: Linux 5.8 or later is needed")
	}
	return s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// Pods lists those of which something is kept here.
func (v *Volumes) Pods() ([]types.UID, error) {
	var out []types.UID
	for _, dir := range []string{v.cfg.Disk, v.cfg.Memory} {
		there, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("list the pods that have volumes: %w", err)
		}
		for _, e := range there {
			if uid := types.UID(e.Name()); e.IsDir() && validUID(uid) == nil {
				out = append(out, uid)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Usage is what a volume on the disk takes of it; more than any limit if its folders are
// nested too deep to be measured.
func (v *Volumes) Usage(uid types.UID, name string) (Room, error) {
	if err := validUID(uid); err != nil {
		return Room{}, err
	}
	pod, err := unix.Open(filepath.Join(v.cfg.Disk, string(uid)), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Room{}, nil
	}
	if err != nil {
		return Room{}, fmt.Errorf("measure volume %s: %w", name, err)
	}
	total, err := usage(pod, name, 0, map[inode]bool{})
	if err := errors.Join(err, unix.Close(pod)); err != nil {
		return Room{}, fmt.Errorf("measure volume %s: %w", name, err)
	}
	return total, nil
}

// Remove takes everything of a pod away.
func (v *Volumes) Remove(_ context.Context, uid types.UID) error {
	if err := validUID(uid); err != nil {
		return err
	}
	v.jobs.drop(uid)
	for _, dir := range []string{v.cfg.Memory, v.cfg.Disk} {
		if err := remove(dir, string(uid)); err != nil {
			return fmt.Errorf("remove the volumes of pod %s: %w", uid, err)
		}
	}
	return nil
}

// Destroy takes everything of every pod away, and the two folders. The persistent
// volumes stay.
func (v *Volumes) Destroy(ctx context.Context) error {
	all, err := v.Pods()
	if err != nil {
		return err
	}
	for _, uid := range all {
		if err := v.Remove(ctx, uid); err != nil {
			return err
		}
	}
	if err := unmountAll(v.cfg.Memory); err != nil {
		return fmt.Errorf("unmount the tmpfs of volumes: %w", err)
	}
	for _, dir := range []string{v.cfg.Memory, v.cfg.Disk} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the folder of volumes: %w", err)
		}
	}
	return nil
}

// validUID keeps a UID from being anything but a name in our folders.
func validUID(uid types.UID) error {
	if uid == "" || len(uid) > 63 {
		return fmt.Errorf("pod uid %q must have 1 to 63 characters", uid)
	}
	for _, c := range []byte(uid) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return fmt.Errorf("pod uid %q has a character that is not allowed", uid)
		}
	}
	return nil
}

// checkHost holds a path of the machine against what the pod says that it is, and
// makes what may be made.
func checkHost(path string, of corev1.HostPathType) error {
	info, err := os.Stat(path)
	absent := errors.Is(err, fs.ErrNotExist)
	if err != nil && !absent {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	what, ok := "", false
	switch of {
	case corev1.HostPathUnset: // as containerd does it for Kubernetes
		if absent {
			return os.MkdirAll(path, 0o755)
		}
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if absent {
			return os.MkdirAll(path, 0o755)
		}
		what, ok = "directory", info.IsDir()
	case corev1.HostPathFileOrCreate:
		if absent {
			return makeFile(path)
		}
		what, ok = "file", info.Mode().IsRegular()
	case corev1.HostPathDirectory:
		what, ok = "directory", !absent && info.IsDir()
	case corev1.HostPathFile:
		what, ok = "file", !absent && info.Mode().IsRegular()
	case corev1.HostPathSocket:
		what, ok = "socket file", !absent && info.Mode()&fs.ModeSocket != 0
	case corev1.HostPathCharDev:
		what, ok = "character device", !absent && info.Mode()&fs.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		what, ok = "block device", !absent && info.Mode()&fs.ModeDevice != 0 && info.Mode()&fs.ModeCharDevice == 0
	default:
		return fmt.Errorf("hostPath type check failed: %s is an invalid volume type", of)
	}
	if !ok {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", path, what)
	}
	return nil
}

func makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return fmt.Errorf("make the file of a hostPath: %w", err)
	}
	return f.Close()
}
