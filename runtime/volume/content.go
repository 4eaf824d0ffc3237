package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	dataLink = "..data"     // leads to the folder with the content of now
	newLink  = "..data_tmp" // becomes dataLink
	folders  = 0o755
)

// writeContent makes dir show files: all of them at once, and nothing else.
func writeContent(dir string, files map[string]File, group *int64, now time.Time) error {
	if err := os.MkdirAll(dir, folders); err != nil {
		return err
	}
	if err := give(dir, 0o777, group, false); err != nil {
		return err
	}
	current, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	same := false
	if !strings.HasPrefix(current, "..") || filepath.Base(current) != current || current == ".." {
		current = "" // not of our making
	}
	if current != "" {
		if same, err = shows(filepath.Join(dir, current), files, group); err != nil {
			return err
		}
	}
	if !same {
		fresh, err := os.MkdirTemp(dir, now.UTC().Format("..2006_01_02_15_04_05."))
		if err != nil {
			return err
		}
		err = fill(fresh, files, group)
		if err == nil {
			err = swap(dir, filepath.Base(fresh))
		}
		if err != nil { // a half of it would fill a full disk further at each try
			return errors.Join(err, os.RemoveAll(fresh))
		}
		current = filepath.Base(fresh)
	}
	return tidy(dir, current, files)
}

// fill writes files into a folder that nobody looks at yet.
func fill(dir string, files map[string]File, group *int64) error {
	if err := give(dir, folders, group, false); err != nil {
		return err
	}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		f := files[p]
		at := dir
		for name := range strings.SplitSeq(filepath.Dir(p), "/") {
			if name == "." {
				continue
			}
			at = filepath.Join(at, name)
			if err := os.Mkdir(at, folders); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if err := give(at, folders, group, false); err != nil {
				return err
			}
		}
		at = filepath.Join(dir, p)
		if err := os.WriteFile(at, f.Data, 0o600); err != nil {
			return err
		}
		if f.Owner != nil {
			if err := os.Lchown(at, int(*f.Owner), -1); err != nil {
				return err
			}
		}
		if err := give(at, f.Mode, group, true); err != nil {
			return err
		}
	}
	return nil
}

// modeFor is the mode of something that belongs to a group: the group may read it,
// and what is made in a folder is the group's, too.
func modeFor(mode fs.FileMode, group *int64, file bool) fs.FileMode {
	switch {
	case group == nil:
		return mode
	case file:
		return mode | 0o440
	}
	return mode | 0o550 | fs.ModeSetgid
}

func give(path string, mode fs.FileMode, group *int64, file bool) error {
	if group != nil {
		if err := os.Lchown(path, -1, int(*group)); err != nil {
			return err
		}
	}
	return os.Chmod(path, modeFor(mode, group, file))
}

// swap lets dataLink lead to a folder.
func swap(dir, to string) error {
	link := filepath.Join(dir, newLink)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(to, link); err != nil {
		return err
	}
	return os.Rename(link, filepath.Join(dir, dataLink))
}

// tidy makes the links that programs open, and takes away those that lead nowhere
// and what earlier or interrupted writes left.
func tidy(dir, current string, files map[string]File) error {
	links := map[string]bool{}
	for p := range files {
		name, _, _ := strings.Cut(p, "/")
		links[name] = true
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range there {
		at := filepath.Join(dir, e.Name())
		switch {
		case e.Name() == dataLink || e.Name() == current:
		case strings.HasPrefix(e.Name(), ".."):
			err = os.RemoveAll(at)
		case links[e.Name()] && e.Type() == fs.ModeSymlink:
			delete(links, e.Name()) // each is made once, and leads through dataLink
		default:
			err = os.RemoveAll(at)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(links)) {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// shows says whether a folder has these files and no others.
func shows(dir string, files map[string]File, group *int64) (bool, error) {
	left := len(files)
	same := true
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && at == dir {
			same = false
			return fs.SkipAll
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		f, wanted := files[rel]
		mode := f.Mode
		if e.IsDir() {
			mode, wanted = folders, !wanted
		}
		if !wanted || info.Mode()&(fs.ModePerm|fs.ModeSetgid) != modeFor(mode, group, !e.IsDir()) || !ownedBy(info, f.Owner, group) {
			same = false
			return fs.SkipAll
		}
		if e.IsDir() {
			return nil
		}
		data, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, f.Data) {
			same = false
			return fs.SkipAll
		}
		left--
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look at the content: %w", err)
	}
	return same && left == 0, nil
}

func ownedBy(info fs.FileInfo, owner, group *int64) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (owner == nil || int64(stat.Uid) == *owner) && (group == nil || int64(stat.Gid) == *group)
}
