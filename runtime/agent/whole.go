package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A checkpoint is whole when it has every Service and EndpointSlice that there is. A
// restarted agent without a server then knows that a name which is not among them does
// not exist; else it could not tell, and pods could look up nothing but the names that
// it has. A mark says so. It counts in the boot that wrote it: the files are not synced,
// so some may be lost with the power.

// bootID is one for each boot of the machine.
const bootID = "/proc/sys/kernel/random/boot_id"

func (k *checkpoint) mark() string { return filepath.Join(k.dir, "whole") }

// saveAll notes that every Service and slice that there is has been saved.
func (k *checkpoint) saveAll() {
	k.mu.Lock()
	k.all = true
	k.mu.Unlock()
	notify(k.wake)
}

// loadWhole says whether what was loaded is whole. A file that is damaged, now or at an
// earlier load, belies the mark.
func (k *checkpoint) loadWhole() (bool, error) {
	damaged, err := k.damaged()
	if err != nil {
		return false, fmt.Errorf("read the checkpoint: %w", err)
	}
	if len(damaged) > 0 {
		return false, k.belie()
	}
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return false, fmt.Errorf("read which boot of the machine this is: %w", err)
	}
	said, err := os.ReadFile(k.mark())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read the checkpoint: %w", err)
	}
	k.whole = string(said) == string(boot)
	return k.whole, nil
}

func (k *checkpoint) damaged() (out []string, err error) {
	for _, dir := range []string{k.services(), k.slices()} {
		files, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if filepath.Ext(f.Name()) == ".damaged" {
				out = append(out, filepath.Join(dir, f.Name()))
			}
		}
	}
	return out, nil
}

// belie takes the mark away.
func (k *checkpoint) belie() error {
	k.whole = false
	if err := os.Remove(k.mark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take the mark off the checkpoint: %w", err)
	}
	return nil
}

// attest puts the mark on a checkpoint that has everything. What was damaged has been
// sent again by then.
func (k *checkpoint) attest() error {
	damaged, err := k.damaged()
	if err != nil {
		return err
	}
	for _, path := range damaged {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.mark()+".new", boot, 0o600); err != nil {
		return err
	}
	if err := os.Rename(k.mark()+".new", k.mark()); err != nil {
		return err
	}
	k.whole = true
	return nil
}
