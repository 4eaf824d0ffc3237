package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// A persistent volume is mounted in the pod's folder in memory: what was opened once is
// what its containers get, and the kernel's list of mounts says which pods have it.

// ensureLocal mounts a folder of this machine for a pod.
func (v *Volumes) ensureLocal(ctx context.Context, uid types.UID, w Volume) error {
	fd, err := v.openLocal(w)
	if err != nil {
		return err
	}
	return errors.Join(v.bindLocal(ctx, uid, w, fd), unix.Close(fd))
}

func (v *Volumes) openLocal(w Volume) (int, error) {
	if w.Persistent != "" {
		return v.openPersistent(w.Persistent)
	}
	if w.Recursive {
		if err := checkHost(w.Path, w.Type); err != nil {
			return -1, err
		}
		return unix.Open(w.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	fd, err := unix.Open(w.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return -1, fmt.Errorf("path %q does not exist", w.Path)
	case errors.Is(err, unix.ENOTDIR):
		return -1, fmt.Errorf("path %q is not a directory", w.Path)
	case err != nil:
		return -1, fmt.Errorf("open path %q: %w", w.Path, err)
	}
	return fd, nil
}

func (v *Volumes) bindLocal(ctx context.Context, uid types.UID, w Volume, fd int) error {
	target := v.memory(uid, w.Name)
	if done, err := shown(target, fd); done || err != nil {
		return err
	}
	if w.Group != nil {
		shared, err := v.shared(uid, w, fd)
		if err != nil {
			return err
		}
		if !shared { // as in Kubernetes: the files are not taken from a pod that runs
			if err := giveTree(ctx, fd, *w.Group, w.Mismatch); err != nil {
				return err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return bind(fd, target, w.Recursive)
}

// shown says whether what is open is mounted on a path already.
func shown(target string, fd int) (bool, error) {
	mounted, err := isMount(target)
	if errors.Is(err, unix.ENOENT) || err == nil && !mounted {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var there, wanted unix.Stat_t
	if err := unix.Stat(target, &there); err != nil {
		return false, err
	}
	if err := unix.Fstat(fd, &wanted); err != nil {
		return false, err
	}
	return there.Dev == wanted.Dev && there.Ino == wanted.Ino, nil
}

// shared says whether another pod has a volume that is open.
func (v *Volumes) shared(uid types.UID, w Volume, fd int) (bool, error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return false, err
	}
	table, err := mountPoints()
	if err != nil {
		return false, err
	}
	own := filepath.Join(v.cfg.Memory, string(uid))
	return slices.ContainsFunc(v.users(table, path), func(at string) bool { return !within(own, at) }), nil
}

// users are the places in pods' folders where a folder, or a part of it, is mounted.
func (v *Volumes) users(table []*mountinfo.Info, path string) (out []string) {
	on := mountOf(table, path)
	root := filepath.Join(on.Root, strings.TrimPrefix(path, on.Mountpoint))
	for _, m := range table {
		if within(v.cfg.Memory, m.Mountpoint) && m.Major == on.Major && m.Minor == on.Minor && within(root, m.Root) {
			out = append(out, m.Mountpoint)
		}
	}
	return out
}
