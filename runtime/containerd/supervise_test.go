package containerd

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"headway.dev/headway/runtime/agent"
)

func TestDaemonLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "containerd.log")
	if err := rotate(path); err != nil {
		t.Errorf("no log: %v", err)
	}
	for _, size := range []int{maxDaemonLog, maxDaemonLog + 1} {
		if err := os.WriteFile(path, bytes.Repeat([]byte{'x'}, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := rotate(path); err != nil {
			t.Fatal(err)
		}
		want := int64(size)
		if size > maxDaemonLog {
			want = 0
			if info, err := os.Stat(path + ".1"); err != nil || info.Size() != int64(size) {
				t.Errorf("previous log: %v, %v", info, err)
			}
		}
		if info, err := os.Stat(path); err != nil || info.Size() != want {
			t.Errorf("of %d: %v, %v", size, info, err)
		}
	}
}

func TestDaemonIsFoundAgain(t *testing.T) {
	n := newNode(t) // containerd runs
	again, err := StartDaemon(t.Context(), n.shared.daemon.cfg)
	if err != nil || again.Socket != n.shared.daemon.Socket {
		t.Fatalf("%+v, %v", again, err)
	}
	one, err := n.shared.daemon.process()
	if err != nil || one == nil {
		t.Fatalf("%v, %v", one, err)
	}
	defer one.Close()
	if socket, ok := Find(t.Context(), filepath.Join(t.TempDir(), "none.sock"), again.Socket); !ok || socket != again.Socket {
		t.Errorf("%q, %v", socket, ok)
	}
	if _, err := StartDaemon(t.Context(), DaemonConfig{Dir: t.TempDir(), Binary: "/bin/false", Log: n.cfg.Log}); err == nil {
		t.Error("a containerd that ends at once was started")
	}
}

func TestD12_KilledKeeper(t *testing.T) {
	n := newNode(t)
	pod := testPod("flood", "60000")
	before, err := n.keep.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.start(pod)
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// It prints more than pipes hold: it ends only if somebody reads again.
	if c := n.exit(pod.UID, idOf(pod.UID, "c", 0)); c.ExitCode != 0 {
		t.Errorf("%+v", c)
	}
	contains(t, n.logs(agent.LogRequest{UID: pod.UID, Container: "c", Attempt: 0, TailLines: 1}), "line 000059999 ")
	after, err := n.keep.Hello(t.Context())
	if err != nil || after.PID == before.PID {
		t.Errorf("%+v, %v", after, err)
	}
}
