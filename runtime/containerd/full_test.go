package containerd

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

// What ends on a full disk has ended, and is stopped and taken apart: it may be what
// fills the disk. How it ended is written down when there is room.
func TestDiskThatIsFull(t *testing.T) {
	var n *node
	t.Cleanup(func() { // after the node is taken apart
		if n == nil {
			return
		}
		if err := unix.Unmount(n.cfg.Dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	n = newNode(t)
	n.close()
	if err := unix.Mount("tmpfs", n.cfg.Dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the node is taken apart, which needs its files
		if err := os.Remove(filepath.Join(n.cfg.Dir, "big")); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	n.netCfg.Dir = filepath.Join(n.cfg.Dir, "network")
	n.open()
	dies, stopped := testPod("term", "0s"), testPod("term", "0s")
	one, two := n.start(dies), n.start(stopped)
	n.ready(dies, "ready")
	n.ready(stopped, "ready")
	big := filepath.Join(n.cfg.Dir, "big")
	if err := os.WriteFile(big, bytes.Repeat([]byte{1}, 3<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if out, err := exec.Command("kill", "-TERM", strconv.Itoa(int(one.PID))).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if c := n.exit(dies.UID, one.ID); c.ExitCode != 7 {
		t.Errorf("%+v", c)
	}
	if err := n.StopContainer(t.Context(), two.ID, time.Minute); err != nil {
		t.Error(err)
	}
	if err := n.StopSandbox(t.Context(), stopped.UID); err != nil {
		t.Error(err)
	}
	if s := n.wait(stopped.UID, "stop", func(s agent.SandboxState) bool { return !s.Ready }); s.Containers[0].ExitCode != 7 {
		t.Errorf("%+v", s.Containers[0])
	}
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	ends := map[types.UID]string{dies.UID: one.ID, stopped.UID: two.ID}
	for uid, id := range ends {
		tick, deadline := time.NewTicker(20*time.Millisecond), time.After(time.Minute)
		for written := false; !written; {
			var record containerRecord
			if _, err := readRecord(n.pod(uid).containerRecord(id), &record); err != nil {
				t.Fatal(err)
			}
			if written = !record.FinishedAt.IsZero(); written {
				break
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatal("an exit is not written down when there is room")
			}
		}
		tick.Stop()
	}
	n.close()
	n.open()
	for uid, id := range ends {
		if c := n.exit(uid, id); c.ExitCode != 7 {
			t.Errorf("after a restart: %+v", c)
		}
	}
	if s := n.wait(stopped.UID, "it", func(agent.SandboxState) bool { return true }); s.Ready {
		t.Error("what was stopped is ready after a restart")
	}
}
