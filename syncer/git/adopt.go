package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// adopt links the objects of a quarantine into the object store, and returns
// when the disk has them. Git moves them there itself later, finds them there
// already, and is content.
//
// Without it a kill between the moved key and git's own move would lose the
// commit that the key names: git removes the quarantine when it is told to stop,
// and nobody would ever look into it when it is killed.
func adopt(quarantine, objects string) error {
	packs, loose, err := contentsOf(quarantine)
	if err != nil {
		return fmt.Errorf("make the pushed objects permanent: %w", err)
	}
	// An index makes a pack visible, so it comes after the pack.
	slices.SortFunc(packs, func(a, b string) int {
		rank := func(s string) int {
			if strings.HasSuffix(s, ".idx") {
				return 1
			}
			return 0
		}
		if r := rank(a) - rank(b); r != 0 {
			return r
		}
		return strings.Compare(a, b)
	})
	slices.Sort(loose)
	changed := []string{objects}
	for _, name := range append(packs, loose...) {
		target := filepath.Join(objects, name)
		dir := filepath.Dir(target)
		if !slices.Contains(changed, dir) {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fmt.Errorf("make the pushed objects permanent: %w", err)
			}
			changed = append(changed, dir)
		}
		// One that is there is the same: its name is the hash of its content.
		if err := os.Link(filepath.Join(quarantine, name), target); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the pushed objects permanent: %w", err)
		}
	}
	for _, dir := range changed {
		if err := syncDir(dir); err != nil {
			return fmt.Errorf("make the pushed objects permanent: %w", err)
		}
	}
	return nil
}

// contentsOf lists the files of packs and the loose objects in a quarantine,
// relative to it.
func contentsOf(quarantine string) (packs, loose []string, err error) {
	folders, err := os.ReadDir(quarantine)
	if err != nil {
		return nil, nil, err
	}
	for _, folder := range folders {
		name := folder.Name()
		if !folder.IsDir() || (name != "pack" && len(name) != 2) {
			continue
		}
		files, err := os.ReadDir(filepath.Join(quarantine, name))
		if err != nil {
			return nil, nil, err
		}
		for _, f := range files {
			rel := filepath.Join(name, f.Name())
			switch {
			case name != "pack":
				if len(f.Name()) == 38 { // not a temporary file
					loose = append(loose, rel)
				}
			case strings.HasPrefix(f.Name(), "pack-") && !strings.HasSuffix(f.Name(), ".keep"):
				packs = append(packs, rel)
			}
		}
	}
	return packs, loose, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
