package containerd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// unifiedEnv makes this binary see a machine with cgroups of version 2.
const unifiedEnv = "HEADWAY_TEST_UNIFIED"

// notUnified is its exit status on a machine whose kernel has no cgroup2, or lets
// nobody mount it.
const notUnified = 77

// unify gives this process, alone in its mount namespace, what a machine with
// cgroups of version 2 has at /sys/fs/cgroup.
func unify() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for { // each tree of version 1, and the folder of them
		err := unix.Unmount("/sys/fs/cgroup", unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) {
			break
		}
		if err != nil {
			return fmt.Errorf("unmount cgroups: %w", err)
		}
	}
	if err := unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount cgroup2: %w", err)
	}
	if c, err := findCgroups(slog.New(slog.DiscardHandler)); err != nil || !c.unified {
		return fmt.Errorf("cgroups are not of version 2 only: %+v: %w", c, err)
	}
	return nil
}

// On a machine of version 1 the other tests of this package have shown that one.
// Here they run again in a mount namespace whose cgroups are version 2. Controllers
// that version 1 holds are missing there, so what needs them is left out: limits,
// and who was killed for memory.
func TestCgroupVersion2(t *testing.T) {
	c, err := findCgroups(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if c.unified {
		t.Log("this machine has version 2: all tests of this package ran on it")
		return
	}
	left := "TestOutOfMemory|TestResources|TestCgroupVersion2|TestPull.*"
	if testing.Short() {
		left += "|TestKilledAtAnyMoment"
	}
	cmd := exec.Command(os.Args[0], "-test.skip=^("+left+")$", "-test.timeout=20m")
	cmd.Env = append(os.Environ(), unifiedEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == notUnified {
		t.Logf("cgroups of version 2 cannot be had here: %s", out)
		return
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
