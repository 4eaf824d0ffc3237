package volume

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// deepestMeasured is how many folders in one another are measured. What is deeper
// counts as more than any limit: it would cost a node more to look than a pod to make.
const deepestMeasured = 1000

// inode names a file that has several names.
type inode struct{ dev, ino uint64 }

// Room is what something takes of a disk.
type Room struct{ Bytes, Inodes int64 }

// Add adds up, to no more than there can be.
func (r *Room) Add(more Room) {
	if r.Inodes += more.Inodes; more.Bytes > math.MaxInt64-r.Bytes {
		r.Bytes = math.MaxInt64
		return
	}
	r.Bytes += more.Bytes
}

// usage sums the blocks of a folder and of everything below it, a file with several
// names once. It follows no link and enters no mount.
func usage(parent int, name string, depth int, seen map[inode]bool) (Room, error) {
	if depth > deepestMeasured {
		return Room{Bytes: math.MaxInt64, Inodes: 1}, nil
	}
	dir, err := openFolder(parent, name)
	if dir == nil || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return Room{}, nil // the pod changes it while we look, or something is mounted there
	}
	if err != nil {
		return Room{}, err
	}
	total, err := usageOf(dir, depth, seen)
	return total, errors.Join(err, dir.Close())
}

func usageOf(dir *os.File, depth int, seen map[inode]bool) (Room, error) {
	fd := int(dir.Fd())
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return Room{}, err
	}
	total := Room{Bytes: s.Blocks * 512, Inodes: 1}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return Room{}, err
	}
	for _, name := range names {
		if err := unix.Fstatat(fd, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return Room{}, err
		}
		used := Room{Bytes: s.Blocks * 512, Inodes: 1}
		switch {
		case s.Mode&unix.S_IFMT == unix.S_IFDIR:
			if used, err = usage(fd, name, depth+1, seen); err != nil {
				return Room{}, err
			}
		case s.Nlink > 1:
			id := inode{s.Dev, s.Ino}
			if seen[id] {
				continue
			}
			seen[id] = true
		}
		total.Add(used)
	}
	return total, nil
}
