package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The folders of persistent volumes are made whole, and set aside before they are
// removed: no name of a volume begins with a dot.
//
//	<Persistent>/<volume>            the data
//	<Persistent>/.new.<volume>       being made
//	<Persistent>/.removing.<volume>  being removed; the second of a name, .removing.<volume>~1
//	<Made>/<volume>                  says that the folder was made once
//
// The last is elsewhere for a machine whose disk was not mounted: a volume that had data
// is not begun anew, empty.
const (
	beingMade    = ".new."
	beingRemoved = ".removing."
	asideNumber  = "~" // is in no name of a volume
	mostAside    = 100 // of volumes of one name
)

// How much of what is set aside is removed at one time.
const (
	removeAtOnce = 5000
	removeFor    = 200 * time.Millisecond
)

// PersistentDir is the folder of the persistent volumes that this machine makes; "" if
// it makes none.
func (v *Volumes) PersistentDir() string { return v.kept }

func (v *Volumes) persistent(name string) string { return filepath.Join(v.cfg.Persistent, name) }

func (v *Volumes) checkPersistent(name string) error {
	if v.cfg.Persistent == "" {
		return errors.New("this node makes no persistent volumes")
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("the name of volume %q is none of a folder: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// openPersistent opens the folder of a persistent volume, which it makes if it never
// was.
func (v *Volumes) openPersistent(name string) (int, error) {
	if err := v.checkPersistent(name); err != nil {
		return -1, err
	}
	path := v.persistent(name)
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = v.makePersistent(name)
	}
	if err != nil {
		return -1, err
	}
	if err := v.mark(name); err != nil {
		return -1, err
	}
	dir, err := unix.Open(v.cfg.Persistent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = fmt.Errorf("%s is no folder", path)
	}
	return fd, errors.Join(err, unix.Close(dir))
}

func (v *Volumes) makePersistent(name string) error {
	_, err := os.Lstat(filepath.Join(v.cfg.Made, name))
	if err == nil {
		return fmt.Errorf("the data of volume %s is gone: it was in %s on this machine. Mount the disk that has it, or put it back from a backup; make the folder yourself to begin with an empty one", name, v.persistent(name))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	half := v.persistent(beingMade + name)
	if err := os.MkdirAll(half, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(half, 0o777); err != nil { // as for an emptyDir: whoever its pods run as
		return err
	}
	if err := syncFolder(half); err != nil {
		return err
	}
	if err := os.Rename(half, v.persistent(name)); err != nil {
		return err
	}
	return syncFolder(v.cfg.Persistent)
}

// mark notes that a folder is there. One whose data was put back is marked, too.
func (v *Volumes) mark(name string) error {
	path := filepath.Join(v.cfg.Made, name)
	if _, err := os.Lstat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return syncFolder(v.cfg.Made)
}

func (v *Volumes) unmark(name string) error {
	if err := os.Remove(filepath.Join(v.cfg.Made, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncFolder(v.cfg.Made)
}

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Kept lists the persistent volumes of which there are data.
func (v *Volumes) Kept() ([]string, error) {
	if v.cfg.Persistent == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(v.cfg.Persistent)
	if err != nil {
		return nil, fmt.Errorf("list the persistent volumes: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && v.checkPersistent(e.Name()) == nil {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Discard sets the data of a persistent volume aside for Clear, and forgets it. It
// fails while a pod has the volume, or something is mounted in it.
func (v *Volumes) Discard(_ context.Context, name string) error {
	if err := v.checkPersistent(name); err != nil {
		return err
	}
	path := v.persistent(name)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return v.unmark(name)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder: it is left alone", path)
	}
	table, err := mountPoints()
	if err != nil {
		return err
	}
	for _, m := range table {
		if within(path, m.Mountpoint) {
			return fmt.Errorf("the data of volume %s stays: something is mounted at %s; unmount it", name, m.Mountpoint)
		}
	}
	if users := v.users(table, path); len(users) > 0 {
		return fmt.Errorf("the data of volume %s stays: a pod still has it, at %s", name, users[0])
	}
	// Its mark goes first: from here on a volume of its name may begin empty, whatever is
	// left of this one after a crash.
	if err := v.unmark(name); err != nil {
		return err
	}
	err = unix.EEXIST
	for n := 0; errors.Is(err, unix.EEXIST) && n < mostAside; n++ { // of another volume of its name something may be left
		err = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, v.persistent(aside(name, n)), unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return fmt.Errorf("set the data of volume %s aside: %w", name, err)
	}
	return syncFolder(v.cfg.Persistent)
}

// aside is a folder for what is left of a volume, the nth of its name.
func aside(name string, n int) string {
	if n == 0 {
		return beingRemoved + name
	}
	return fmt.Sprint(beingRemoved, name, asideNumber, n)
}

// Clear removes a part of what Discard has set aside, now or before a crash, and says
// of which volumes something is left. The error is that of those that cannot be removed.
func (v *Volumes) Clear(ctx context.Context) (left []string, err error) {
	if v.cfg.Persistent == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(v.cfg.Persistent)
	if err != nil {
		return nil, fmt.Errorf("list the persistent volumes: %w", err)
	}
	bound := &allowance{ctx: ctx, left: removeAtOnce, until: time.Now().Add(removeFor)}
	var problems []error
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), beingRemoved)
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, asideNumber)
		if bound.spent() {
			left = append(left, name)
			continue
		}
		err := v.clear(e.Name(), bound)
		switch {
		case errors.Is(err, errSpent):
			left = append(left, name)
		case err != nil:
			left = append(left, name)
			problems = append(problems, fmt.Errorf("remove the data of volume %s: %w", name, err))
		}
	}
	return left, errors.Join(problems...)
}

// DestroyPersistent removes the data of every persistent volume. No pod may have one.
func (v *Volumes) DestroyPersistent(ctx context.Context) error {
	names, err := v.Kept()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := v.Discard(ctx, name); err != nil {
			return err
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		left, err := v.Clear(ctx)
		if err != nil || len(left) == 0 {
			return err
		}
	}
}

// clear removes a part of one folder that was set aside.
func (v *Volumes) clear(aside string, bound *allowance) error {
	table, err := mountPoints()
	if err != nil {
		return err
	}
	for _, m := range table {
		if within(v.persistent(aside), m.Mountpoint) {
			return fmt.Errorf("something is mounted at %s: unmount it", m.Mountpoint)
		}
	}
	dir, err := unix.Open(v.cfg.Persistent, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(removeTree(dir, aside, bound), unix.Close(dir)); err != nil {
		return err
	}
	return syncFolder(v.cfg.Persistent)
}
