package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
)

// An engine that hangs stops nothing that runs and holds nobody up for ever: each call of
// it ends, what was asked for is asked for again, and starts once. On the fake, since a
// real engine hangs for as long as the test waits.
func TestEngineThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		started := map[string]int{}
		machine := fake.New(fake.Config{
			Delay: func(op string) time.Duration {
				if hangs.Load() && op != "List" && op != "Foreign" {
					return 24 * time.Hour
				}
				return 0
			},
			Programs: func(s agent.ContainerSpec) fake.Program {
				started[s.Pod.Name]++
				return fake.Program{}
			},
		})
		s := newServer(t)
		run(t, s, machine, t.TempDir())
		s.assign(pod("old"))
		sleep(time.Minute)
		old := ids(t, machine)["old/c0"]
		hangs.Store(true)
		var more []*corev1.Pod
		for i := range 40 { // more than work the engine at a time
			more = append(more, pod("new"+string(rune('a'+i))))
		}
		s.assign(more...)
		sleep(30 * time.Minute)
		if s.state(pod("old"), "c0").State.Running == nil || ids(t, machine)["old/c0"] != old {
			t.Error("what ran is shown, or was made, dead")
		}
		if got := s.said("FailedCreatePodSandBox"); len(got) == 0 {
			t.Error("nobody is told that the engine hangs")
		}
		hangs.Store(false)
		sleep(10 * time.Minute)
		if got := ids(t, machine); len(got) != 41 || got["old/c0"] != old {
			t.Errorf("%d pods run when it answers again", len(got))
		}
		for name, n := range started {
			if n != 1 {
				t.Errorf("%s was started %d times", name, n)
			}
		}
	})
}

// A full disk keeps no pod from starting, running or being told of; what the agent must
// know after a restart is written when there is room.
func TestDiskThatIsFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no small disk here, and CI is set: ", err)
		}
		t.Skip("no small disk here, it needs root: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		machine := fake.New(fake.Config{})
		s := newServer(t)
		a := run(t, s, machine, dir)
		s.assign(pod("first"))
		sleep(time.Minute)
		big := filepath.Join(dir, "big")
		if err := os.WriteFile(big, bytes.Repeat([]byte{1}, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%v", err)
		}
		second := pod("second")
		s.assign(second)
		sleep(time.Minute)
		if len(ids(t, machine)) != 2 || s.state(second, "c0").State.Running == nil {
			t.Errorf("%v run, %+v", ids(t, machine), s.status(second))
		}
		if err := os.Remove(big); err != nil {
			t.Fatal(err)
		}
		sleep(5 * time.Minute)
		before := ids(t, machine)
		a.stop()
		s.stop() // the next agent has only what was written
		run(t, s, machine, dir)
		sleep(time.Minute)
		if err := machine.Crash(second.UID, "c0", 1); err != nil {
			t.Fatal(err)
		}
		sleep(time.Minute)
		if after := ids(t, machine); len(after) != 2 || after["first/c0"] != before["first/c0"] || after["second/c0"] == before["second/c0"] {
			t.Errorf("before %v, after %v", before, after)
		}
	})
}

// A container that cannot be made is told apart from one that does not start, by
// Kubernetes' reasons.
func TestContainerThatIsNotMade(t *testing.T) {
	for reason, failure := range map[string]error{
		"CreateContainerError": fmt.Errorf("engine: %w", &agent.CreateError{Err: errors.New("no such user")}),
		"RunContainerError":    errors.New("no such program"),
	} {
		synctest.Test(t, func(t *testing.T) {
			machine := fake.New(fake.Config{Fail: func(op, _ string) error {
				if op == "StartContainer" {
					return failure
				}
				return nil
			}})
			s := newServer(t)
			run(t, s, machine, t.TempDir())
			p := pod("web")
			s.assign(p)
			sleep(time.Minute)
			if w := s.state(p, "c0").State.Waiting; w == nil || w.Reason != reason || w.Message != failure.Error() {
				t.Errorf("%s: %+v", reason, w)
			}
		})
	}
}
