package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"headway.dev/headway/runtime/image"
)

// user looks a name up in the image's own /etc/passwd and /etc/group, once per
// image: snapshot is any container's writable layer over it.
func (e *engine) user(ctx context.Context, img image.Image, snapshot, name string) (specs.User, error) {
	key := img.ChainID + " " + name
	e.mu.Lock()
	known, ok := e.users[key]
	e.mu.Unlock()
	if ok {
		return known, nil
	}
	mounts, err := e.client.SnapshotService(snapshotter).Mounts(ctx, snapshot)
	if err != nil {
		return specs.User{}, fmt.Errorf("find user %q in image %s: %w", name, img.Reference, err)
	}
	var found specs.User
	err = e.looks.at(mounts, func(root fs.FS) (err error) { found, err = lookUp(root, name); return err })
	if err != nil {
		return specs.User{}, fmt.Errorf("find user %q in image %s: %w", name, img.Reference, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users[key] = found
	return found, nil
}

const (
	highestID   = math.MaxInt32 // runc's
	longestList = 10 << 20      // of users or groups, in bytes
)

// idOrName tells a number from a name.
func idOrName(text string) (id int, name string, err error) {
	n, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (n < 0 || n > highestID):
		return 0, "", fmt.Errorf("%s is no number of a user or a group: they go from 0 to %d", text, highestID)
	case err != nil:
		return 0, text, nil
	}
	return n, "", nil
}

// lookUp finds user[:group] in the lists of a file system, as images name it; "" is
// root. A number need not be in a list, a name must be.
func lookUp(root fs.FS, name string) (specs.User, error) {
	who, group, grouped := strings.Cut(name, ":")
	if strings.Contains(group, ":") {
		return specs.User{}, errors.New("it is not of the form user or user:group")
	}
	if who == "" {
		who = "0"
	}
	uid, userName, err := idOrName(who)
	if err != nil {
		return specs.User{}, err
	}
	var gid int
	found, err := oci.UserFromFS(root, func(u user.User) bool { return userName != "" && u.Name == userName || userName == "" && u.Uid == uid })
	switch {
	case err == nil:
		uid, userName = found.Uid, found.Name
		if name != "" {
			gid = found.Gid
		}
	case userName != "" || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, oci.ErrNoUsersFound):
		return specs.User{}, err
	}
	if grouped {
		var groupName string
		if gid, groupName, err = idOrName(group); err != nil {
			return specs.User{}, err
		}
		if groupName != "" {
			n, err := oci.GIDFromFS(root, func(g user.Group) bool { return g.Name == groupName })
			if err != nil {
				return specs.User{}, err
			}
			gid = int(n)
		}
	}
	more, err := groupsOf(root, userName)
	if err != nil {
		return specs.User{}, err
	}
	if !slices.Contains(more, uint32(gid)) {
		more = append([]uint32{uint32(gid)}, more...)
	}
	return specs.User{UID: uint32(uid), GID: uint32(gid), AdditionalGids: more}, nil
}

// groupsOf lists the groups that name a user, but for the one of his own name.
func groupsOf(root fs.FS, name string) ([]uint32, error) {
	if name == "" {
		return nil, nil
	}
	f, err := root.Open("etc/group")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened for reading: nothing to lose
	list := &io.LimitedReader{R: f, N: longestList + 1}
	found, err := user.ParseGroupFilter(list, func(g user.Group) bool { return g.Name != name && slices.Contains(g.List, name) })
	if err == nil && list.N == 0 {
		err = fmt.Errorf("etc/group is longer than %d bytes", longestList)
	}
	if err != nil {
		return nil, err
	}
	out := make([]uint32, 0, len(found))
	for _, g := range found {
		out = append(out, uint32(g.Gid))
	}
	return out, nil
}

// looks is a folder where layers are mounted for the moment of a look at their files.
type looks struct{ dir string }

// clear takes away what a process that was killed was looking at.
func (l looks) clear() error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("make folder for looks at images: %w", err)
	}
	there, err := os.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("find looks at images: %w", err)
	}
	for _, e := range there {
		if err := l.end(filepath.Join(l.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// end removes a mount. What it shows is never entered.
func (l looks) end(at string) error {
	if err := unmount(at); err != nil {
		return err
	}
	if err := os.Remove(at); err != nil {
		return fmt.Errorf("end look at image: %w", err)
	}
	return nil
}

// at mounts layers, read-only, while f looks at them.
func (l looks) at(mounts []mount.Mount, f func(fs.FS) error) (err error) {
	at, err := os.MkdirTemp(l.dir, "")
	if err != nil {
		return fmt.Errorf("look at image: %w", err)
	}
	defer func() { err = errors.Join(err, l.end(at)) }()
	if err := mount.All(readOnly(mounts), at); err != nil {
		return fmt.Errorf("mount image: %w", err)
	}
	root, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open image: %w", err)
	}
	defer unix.Close(root)
	return f(plainFiles{root})
}

// readOnly are the mounts of a writable layer without what is writable.
func readOnly(mounts []mount.Mount) []mount.Mount {
	out := slices.Clone(mounts)
	for i := range out {
		m := &out[i]
		upper := ""
		var options []string
		for _, o := range m.Options {
			name, value, _ := strings.Cut(o, "=")
			switch {
			case name == "upperdir":
				upper = value
			case name != "workdir" && o != "rw" && o != "ro" && o != "volatile":
				options = append(options, o)
			}
		}
		for j, o := range options {
			if lower, ok := strings.CutPrefix(o, "lowerdir="); ok && upper != "" {
				options[j] = "lowerdir=" + upper + ":" + lower
			}
		}
		m.Options = append(options, "ro")
	}
	return out
}

// plainFiles opens files below a folder, which is / to the links on the way. What is not
// a plain file is refused before it is opened: a FIFO would hold whoever opens it for
// ever, and a device may do anything.
type plainFiles struct{ root int }

// Open implements fs.FS.
func (p plainFiles) Open(name string) (fs.File, error) {
	fail := func(err error) (fs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(p.root, name, how)
	for try := 0; try < 100 && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)); try++ {
		fd, err = unix.Openat2(p.root, name, how)
	}
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return fail(err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG {
		return fail(errors.New("it is not a regular file"))
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)) // what was looked at, and nothing else
}
