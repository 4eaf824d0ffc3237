package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	groupBits    = 0o660                // what the group may do with a file
	groupFolder  = 0o110 | unix.S_ISGID // and with a folder, whose new files are its own
	namesAtOnce  = 1000                 // of a folder
	deepestOwned = 500                  // folders in one another; each is open meanwhile
)

// giveTree gives a folder that is open, and all in it, to a group, as Kubernetes does:
// the folder last, so that a folder that looks right is right. With mismatch one that
// looks right is left alone. It follows no link and enters no mount.
func giveTree(ctx context.Context, root int, group int64, mismatch bool) error {
	var s unix.Stat_t
	if err := unix.Fstat(root, &s); err != nil {
		return err
	}
	if mismatch && belongs(&s, group) {
		return nil
	}
	return giveFolderTree(ctx, root, &s, group, 0)
}

// belongs says whether a group may do with a file what a volume's group may.
func belongs(s *unix.Stat_t, group int64) bool {
	return int64(s.Gid) == group && s.Mode&wantedBits(s) == wantedBits(s)
}

func wantedBits(s *unix.Stat_t) uint32 {
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		return groupBits | groupFolder
	}
	return groupBits
}

func giveFolderTree(ctx context.Context, at int, s *unix.Stat_t, group int64, depth int) error {
	if depth > deepestOwned {
		return fmt.Errorf("the files of the volume cannot be given to group %d: more than %d folders are nested", group, deepestOwned)
	}
	fd, err := unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), "")
	for {
		names, err := dir.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := giveEntry(ctx, fd, name, group, depth); err != nil {
				return errors.Join(err, dir.Close())
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(err, dir.Close())
		}
	}
	if err := dir.Close(); err != nil {
		return err
	}
	return giveOpen(at, s, group)
}

func giveEntry(ctx context.Context, parent int, name string, group int64, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fd, err := unix.Openat2(parent, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) { // it went, or is no file of the volume
		return nil
	}
	if err != nil {
		return err
	}
	var s unix.Stat_t
	err = unix.Fstat(fd, &s)
	switch {
	case err != nil:
	case s.Mode&unix.S_IFMT == unix.S_IFDIR:
		err = giveFolderTree(ctx, fd, &s, group, depth+1)
	default:
		err = giveOpen(fd, &s, group)
	}
	return errors.Join(err, unix.Close(fd))
}

// giveOpen gives what is open to a group, and nothing else, whatever its name leads to
// by now.
func giveOpen(fd int, s *unix.Stat_t, group int64) error {
	if int64(s.Gid) != group {
		if err := unix.Fchownat(fd, "", -1, int(group), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("give a file of the volume to group %d: %w", group, err)
		}
	}
	if s.Mode&unix.S_IFMT == unix.S_IFLNK || belongs(s, group) {
		return nil
	}
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), s.Mode&0o7777|wantedBits(s)); err != nil {
		return fmt.Errorf("let group %d write a file of the volume: %w", group, err)
	}
	return nil
}
