package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
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
		err = errors.Join(removeTree(root, name, nil), unix.Close(root))
		// A mount that came after the look is met while walking: look again.
		if (errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EBUSY)) && try < 3 {
			continue
		}
		return err
	}
}

// unmountBelow unmounts everything on and below a path, the deepest first, by the
// kernel's own list, so that what an agent that was killed mounted is found, too. A mount
// that shows what a mount of the machine shows is cut off from it before: else what is
// unmounted below the one would be below the other.
func unmountBelow(at string) error {
	for {
		all, err := mountPoints()
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(m *mountinfo.Info) bool { return !within(at, m.Mountpoint) })
		cut := false
		for _, m := range all {
			if !tagged(m, "shared:") || strings.HasPrefix(m.FSType, "nfs") { // one of ours, whose server may be down
				continue
			}
			if err := unix.Mount("", m.Mountpoint, "", unix.MS_PRIVATE, ""); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("cut mount %s off: %w", m.Mountpoint, err)
			}
			cut = cut || err == nil
		}
		if cut { // nothing more comes from outside, but it may have meanwhile
			continue
		}
		slices.Reverse(all) // a mount stands after the one it is on
		for _, m := range all {
			if err := unmount(m.Mountpoint); err != nil {
				return err
			}
		}
		return nil
	}
}

// unmountAll takes away every mount on a path.
func unmountAll(path string) error {
	for {
		mounted, err := isMount(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !mounted {
			return err
		}
		if err := unmountBelow(path); err != nil {
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

// namesRemoved is how many names of a folder are read at one time.
const namesRemoved = 1000

// allowance bounds how much is removed at one time; nil does not.
type allowance struct {
	ctx   context.Context
	left  int
	until time.Time
}

// errSpent says that the allowance is used up before everything is removed.
var errSpent = errors.New("there is more to remove")

func (b *allowance) spent() bool {
	return b != nil && (b.left <= 0 || b.ctx.Err() != nil || b.left%100 == 0 && time.Now().After(b.until))
}

func (b *allowance) take() error {
	if b == nil {
		return nil
	}
	if b.spent() {
		return errSpent
	}
	b.left--
	return nil
}

// tree is a folder that is being deleted.
type tree struct {
	root  int // open
	moved int
	bound *allowance
}

// removeTree deletes name in an open folder, or as much of it as the allowance lets,
// with errSpent. It follows no link, and fails with EXDEV or EBUSY rather than enter or
// delete what is mounted.
func removeTree(parent int, name string, bound *allowance) error {
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
	t := &tree{root: int(dir.Fd()), bound: bound}
	if err := errors.Join(t.empty(dir, 1), dir.Close()); err != nil {
		return err
	}
	return removeFolder(parent, name)
}

// empty deletes what is in a folder, and what is moved into it meanwhile.
func (t *tree) empty(dir *os.File, depth int) error {
	for {
		names, err := dir.Readdirnames(namesRemoved)
		if errors.Is(err, io.EOF) && len(names) == 0 {
			if _, err := dir.Seek(0, io.SeekStart); err != nil {
				return err
			}
			if names, err = dir.Readdirnames(namesRemoved); errors.Is(err, io.EOF) {
				return nil
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var problems []error
		for _, n := range names {
			err := t.remove(int(dir.Fd()), n, depth)
			if errors.Is(err, errSpent) {
				return err
			}
			problems = append(problems, err)
		}
		if err := errors.Join(problems...); err != nil {
			return err
		}
	}
}

func (t *tree) remove(parent int, name string, depth int) error {
	if err := t.bound.take(); err != nil {
		return err
	}
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
	if err := errors.Join(t.empty(dir, depth+1), dir.Close()); err != nil {
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
