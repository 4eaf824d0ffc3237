package volume

import (
	"context"
	"errors"
	"io"
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

// measure sums the blocks of a folder and of everything below it, a file with several
// names once, until it is more than enough. It follows no link and enters no mount.
type measure struct {
	ctx  context.Context
	left int64 // until it is enough; negative: it is
	seen map[inode]bool
}

func (m *measure) folder(parent int, name string, depth int) (Room, error) {
	if depth > deepestMeasured {
		m.left = -1
		return Room{Bytes: math.MaxInt64, Inodes: 1}, nil
	}
	dir, err := openFolder(parent, name)
	if dir == nil || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return Room{}, nil // the pod changes it while we look, or something is mounted there
	}
	if err != nil {
		return Room{}, err
	}
	total, err := m.content(dir, depth)
	return total, errors.Join(err, dir.Close())
}

func (m *measure) content(dir *os.File, depth int) (Room, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &s); err != nil {
		return Room{}, err
	}
	total := m.count(s.Blocks)
	for m.left >= 0 {
		names, err := dir.Readdirnames(namesAtOnce)
		for _, name := range names {
			used, err := m.entry(int(dir.Fd()), name, depth)
			if err != nil {
				return Room{}, err
			}
			total.Add(used)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = m.ctx.Err()
		}
		if err != nil {
			return Room{}, err
		}
	}
	return total, nil
}

func (m *measure) entry(parent int, name string, depth int) (Room, error) {
	if m.left < 0 {
		return Room{}, nil
	}
	var s unix.Stat_t
	if err := unix.Fstatat(parent, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return Room{}, nil
		}
		return Room{}, err
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		return m.folder(parent, name, depth+1)
	}
	if s.Nlink > 1 {
		id := inode{s.Dev, s.Ino}
		if m.seen[id] {
			return Room{}, nil
		}
		m.seen[id] = true
	}
	return m.count(s.Blocks), nil
}

// count takes what a file has of what is left.
func (m *measure) count(blocks int64) Room {
	m.left -= blocks * 512
	return Room{Bytes: blocks * 512, Inodes: 1}
}
