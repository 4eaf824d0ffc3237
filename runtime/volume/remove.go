package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// remove takes away a folder in dir, with what is mounted in it.
func remove(dir, name string) error {
	at := filepath.Join(dir, name)
	for try := 0; ; try++ {
		if err := unmountBelow(at); err != nil {
			return err
		}
		root, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		err = errors.Join(removeTree(root, name), unix.Close(root))
		// A mount that came after the look is met while walking: look again.
		if (errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EBUSY)) && try < 3 {
			continue
		}
		return err
	}
}

// unmountBelow unmounts everything on and below a path, the deepest first, by the
// kernel's own list, so that what an agent that was killed mounted is found, too.
func unmountBelow(at string) error {
	all, err := mountPoints()
	if err != nil {
		return err
	}
	slices.Reverse(all) // a mount stands after the one it is on
	for _, m := range all {
		if !within(at, m.Mountpoint) {
			continue
		}
		if err := unmount(m.Mountpoint); err != nil {
			return err
		}
	}
	return nil
}

// unmountAll takes away every mount on a path.
func unmountAll(path string) error {
	for {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		mounted, err := isMount(path)
		if err != nil || !mounted {
			return err
		}
		if err := unmount(path); err != nil {
			return err
		}
	}
}

func unmount(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // it is gone already
		return nil
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// deepest is how many folders are open at one time while we delete. What is deeper is
// moved up first: a container can nest more folders than a process can open files.
const deepest = 100

// tree is a folder that is being deleted.
type tree struct {
	root  int // open
	moved int
}

// removeTree deletes name in an open folder. It follows no link, and fails with EXDEV
// or EBUSY rather than enter or delete what is mounted.
func removeTree(parent int, name string) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !isFolder(err) {
		return err
	}
	dir, err := openFolder(parent, name)
	if dir == nil || err != nil {
		return err
	}
	t := &tree{root: int(dir.Fd())}
	for {
		names, err := dir.Readdirnames(-1)
		if err == nil && len(names) == 0 {
			break
		}
		for _, n := range names {
			err = errors.Join(err, t.remove(t.root, n, 1))
		}
		if err == nil {
			_, err = dir.Seek(0, 0) // for what was moved up
		}
		if err != nil {
			return errors.Join(err, dir.Close())
		}
	}
	if err := dir.Close(); err != nil {
		return err
	}
	return removeFolder(parent, name)
}

func (t *tree) remove(parent int, name string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case !isFolder(err):
		return err
	case depth > deepest:
		for {
			t.moved++
			err := unix.Renameat2(parent, name, t.root, fmt.Sprintf("deep.%d", t.moved), unix.RENAME_NOREPLACE)
			if !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
	}
	dir, err := openFolder(parent, name)
	if dir == nil || err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	for _, n := range names {
		if err = errors.Join(err, t.remove(int(dir.Fd()), n, depth+1)); err != nil {
			break
		}
	}
	if err := errors.Join(err, dir.Close()); err != nil {
		return err
	}
	return removeFolder(parent, name)
}

// isFolder reads out of the error of an unlink that what it names is a folder.
func isFolder(err error) bool { return errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) }

// openFolder is nil when the folder is gone.
func openFolder(parent int, name string) (*os.File, error) {
	fd, err := unix.Openat2(parent, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func removeFolder(parent int, name string) error {
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
