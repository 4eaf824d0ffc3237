package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// secretsFolder makes path a folder in memory: Secrets that a node keeps for the
// time without a server must never reach a disk. Where the machine's /run is a
// disk, a small tmpfs is mounted.
func secretsFolder(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make the folder for secrets: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return fmt.Errorf("inspect %s: %w", path, err)
	}
	if fs.Type == unix.TMPFS_MAGIC {
		return nil
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOSUID, "mode=0700,size=64m"); err != nil {
		return fmt.Errorf("mount a tmpfs for secrets on %s: %w", path, err)
	}
	return nil
}
