package agent_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
)

// sleep moves the bubble's clock and lets everything come to rest.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestR8_AgentRestartRestartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, dir := newServer(t), fake.New(fake.Config{}), t.TempDir()
		a := run(t, s, machine, dir)
		s.assign(pod("web"), pod("db", "hello:1", "hello:2"))
		synctest.Wait()
		before := ids(t, machine)
		if len(before) != 3 {
			t.Fatalf("%v run", before)
		}
		for range 3 {
			a.stop()
			a = run(t, s, machine, dir)
			sleep(10 * time.Minute)
		}
		if after := ids(t, machine); !maps.Equal(before, after) {
			t.Fatalf("before %v\nafter %v", before, after)
		}
		if n := machine.Calls("StartContainer"); n != 3 {
			t.Fatalf("%d starts", n)
		}
		// Neither does an agent whose checkpoint is lost, nor one that knows nothing
		// and reaches the server later.
		a.stop()
		s.stop()
		a = run(t, s, machine, t.TempDir())
		sleep(time.Minute)
		if after := ids(t, machine); !maps.Equal(before, after) {
			t.Fatalf("without checkpoint and server: before %v\nafter %v", before, after)
		}
		s.start()
		sleep(time.Minute)
		if after := ids(t, machine); !maps.Equal(before, after) {
			t.Fatalf("without checkpoint: before %v\nafter %v", before, after)
		}
		if st := s.status(pod("web")); st.Phase != corev1.PodRunning {
			t.Fatalf("status is %+v", st)
		}
	})
}

func TestR8_UnrelatedChangeRestartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		run(t, s, machine, t.TempDir())
		p := pod("web")
		s.assign(p)
		synctest.Wait()
		before := ids(t, machine)
		p = p.DeepCopy()
		p.Labels = map[string]string{"a": "b"}
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NEW", Value: "field"}}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "x"}}
		p.Generation = 2
		s.assign(p)
		sleep(time.Minute)
		if after := ids(t, machine); !maps.Equal(before, after) {
			t.Fatalf("before %v\nafter %v", before, after)
		}
		p = p.DeepCopy()
		p.Spec.Containers[0].Image = "hello:2"
		s.assign(p)
		synctest.Wait()
		after := ids(t, machine)
		if after["web/c0"] == before["web/c0"] || after["web/c0"] == "" {
			t.Fatalf("a new image was not taken: %v", after)
		}
		if c := s.state(p, "c0"); c.RestartCount != 1 || c.Image != "hello:2" || c.State.Running == nil {
			t.Fatalf("status is %+v", c)
		}
	})
}

func TestR9_PodsRunOnWithoutServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, dir := newServer(t), fake.New(fake.Config{}), t.TempDir()
		a := run(t, s, machine, dir)
		web := pod("web")
		s.assign(web, pod("db"))
		synctest.Wait()
		s.stop()
		sleep(time.Hour)
		if now := ids(t, machine); len(now) != 2 {
			t.Fatalf("%v run", now)
		}
		crash(t, machine, web, 1)
		if now := ids(t, machine); len(now) != 2 {
			t.Fatalf("a crash was not mended: %v run", now)
		}
		// The same with an agent that was restarted meanwhile.
		a.stop()
		a = run(t, s, machine, dir)
		sleep(time.Hour)
		crash(t, machine, web, 1)
		sleep(time.Minute)
		if now := ids(t, machine); len(now) != 2 {
			t.Fatalf("a crash was not mended after a restart: %v run", now)
		}
		// And after a reboot.
		a.stop()
		machine.Reboot()
		a = run(t, s, machine, dir)
		sleep(time.Minute)
		if now := ids(t, machine); len(now) != 2 {
			t.Fatalf("the pods did not come back after a reboot: %v run", now)
		}
		s.start()
		sleep(time.Minute)
		if c := s.state(web, "c0"); c.RestartCount != 3 || c.State.Running == nil || c.LastTerminationState.Terminated == nil {
			t.Fatalf("the server learns %+v", c)
		}
	})
}

func TestOrphansGoOnlyOnceSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		a := run(t, s, machine, t.TempDir())
		s.assign(pod("kept"), pod("gone"))
		synctest.Wait()
		a.stop()
		s.stop()
		s.forget()
		s.mu.Lock()
		s.full = append(s.full, setPod(t, pod("kept")))
		s.mu.Unlock()
		run(t, s, machine, t.TempDir())
		sleep(time.Hour)
		if len(ids(t, machine)) != 2 {
			t.Fatal("something was removed before a server said so")
		}
		s.start()
		sleep(time.Minute)
		now := ids(t, machine)
		if len(now) != 1 || now["kept/c0"] == "" {
			t.Fatalf("%v run", now)
		}
	})
}

func TestEngineThatFailsAndLies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended sync.Map // operations that work
		var unknown atomic.Bool
		machine := fake.New(fake.Config{
			Fail: func(op, _ string) error {
				if _, ok := mended.Load(op); !ok && slices.Contains([]string{"EnsureSandbox", "StartContainer", "List"}, op) {
					return errors.New(op + " is broken")
				}
				return nil
			},
			Lie: func(list []agent.SandboxState) []agent.SandboxState {
				for i := range list {
					for j := range list[i].Containers {
						if unknown.Load() {
							list[i].Containers[j].Phase = agent.Unknown
						}
					}
				}
				return list
			},
		})
		s := newServer(t)
		run(t, s, machine, t.TempDir())
		p := pod("web")
		s.assign(p)
		sleep(10 * time.Second)
		if machine.Calls("EnsureSandbox") != 0 {
			t.Fatal("something was done before what runs was known")
		}
		if n := machine.Calls("List"); n > 20 {
			t.Fatalf("%d lists in 10 s", n)
		}
		if s.ready != corev1.ConditionFalse {
			t.Fatalf("the node is ready: %s, while its engine does not answer", s.ready)
		}
		for _, op := range []string{"List", "EnsureSandbox", "StartContainer"} {
			mended.Store(op, true)
			sleep(2 * time.Minute)
		}
		if n := machine.Calls("StartContainer"); n > 20 {
			t.Fatalf("%d starts", n)
		}
		if s.state(p, "c0").State.Running == nil {
			t.Fatalf("status is %+v", s.status(p))
		}
		if s.ready != corev1.ConditionTrue {
			t.Fatalf("the node is ready: %s", s.ready)
		}
		before, starts := ids(t, machine), machine.Calls("StartContainer")
		unknown.Store(true)
		sleep(time.Hour)
		if s.state(p, "c0").State.Running == nil {
			t.Fatalf("a doubt became a fact: %+v", s.status(p))
		}
		unknown.Store(false)
		if after := ids(t, machine); !maps.Equal(before, after) || machine.Calls("StartContainer") != starts {
			t.Fatalf("acted on a doubt: %v, then %v", before, after)
		}
	})
}

func TestCheckpointFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, dir := newServer(t), fake.New(fake.Config{}), t.TempDir()
		a := run(t, s, machine, dir)
		s.live <- setSecret(t, "s", "hunter2")
		s.assign(pod("one"), pod("two"))
		synctest.Wait()
		a.stop()
		var files []string
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			files = append(files, path)
			info, err := d.Info()
			if err != nil {
				return err
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %s", path, info.Mode())
			}
			raw, err := os.ReadFile(path)
			if strings.Contains(string(raw), "hunter2") {
				t.Errorf("R14: %s holds a secret", path)
			}
			return err
		})
		if err != nil || len(files) != 3 { // a file for each pod, and the mark
			t.Fatal(files, err)
		}
		if err := os.WriteFile(files[0], []byte("not a checkpoint"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.stop()
		a = run(t, s, machine, dir)
		sleep(time.Minute)
		if len(ids(t, machine)) != 2 {
			t.Fatal("a damaged file stopped something")
		}
		crash(t, machine, pod("two"), 1)
		if len(ids(t, machine)) != 2 {
			t.Fatal("the pod of the other file is not known")
		}
		if _, err := os.Stat(files[0] + ".damaged"); err != nil {
			t.Fatal(err)
		}
	})
}
