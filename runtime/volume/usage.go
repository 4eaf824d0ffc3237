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

// measure sums the blocks of a folder and of everything below it, a file with several
// names once, until it is more than enough. It follows no link and enters no mount.
type measure struct {
	ctx  context.Context
	left int64 // until it is enough; negative: it is
	seen map[inode]bool
}

func (m *measure) folder(parent int, name string, depth int) (int64, error) {
	if depth > deepestMeasured {
		m.left = -1
		return math.MaxInt64, nil
	}
	dir, err := openFolder(parent, name)
	if dir == nil || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return 0, nil // the pod changes it while we look, or something is mounted there
	}
	if err != nil {
		return 0, err
	}
	total, err := m.content(dir, depth)
	return total, errors.Join(err, dir.Close())
}

func (m *measure) content(dir *os.File, depth int) (int64, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &s); err != nil {
		return 0, err
	}
	total := m.count(s.Blocks)
	for m.left >= 0 {
		names, err := dir.Readdirnames(namesAtOnce)
		for _, name := range names {
			used, err := m.entry(int(dir.Fd()), name, depth)
			if err != nil {
				return 0, err
			}
			if used > math.MaxInt64-total {
				return math.MaxInt64, nil
			}
			total += used
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = m.ctx.Err()
		}
		if err != nil {
			return 0, err
		}
	}
	return total, nil
}

func (m *measure) entry(parent int, name string, depth int) (int64, error) {
	if m.left < 0 {
		return 0, nil
	}
	var s unix.Stat_t
	if err := unix.Fstatat(parent, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return 0, nil
		}
		return 0, err
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		return m.folder(parent, name, depth+1)
	}
	if s.Nlink > 1 {
		id := inode{s.Dev, s.Ino}
		if m.seen[id] {
			return 0, nil
		}
		m.seen[id] = true
	}
	return m.count(s.Blocks), nil
}

// count takes what a file has of what is left.
func (m *measure) count(blocks int64) int64 {
	m.left -= blocks * 512
	return blocks * 512
}
