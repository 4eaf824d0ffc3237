package agent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
)

func TestStatusIsSentUntilStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		s.deaf = true
		run(t, s, machine, t.TempDir())
		p := pod("web")
		s.assign(p)
		sleep(time.Second)
		if s.writes == 0 {
			t.Fatal("nothing was sent")
		}
		s.stop()
		s.mu.Lock()
		s.deaf = false
		s.mu.Unlock()
		s.start()
		sleep(time.Minute)
		if s.status(p).Phase != corev1.PodRunning {
			t.Fatal("what was not acknowledged is lost")
		}
	})
}

func TestFewWritesPerPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		machine := fake.New(fake.Config{Delay: func(string) time.Duration { return 10 * time.Millisecond }})
		run(t, s, machine, t.TempDir())
		sleep(time.Second)
		p := pod("web")
		s.assign(p)
		began := time.Now()
		for s.status(p).Phase != corev1.PodRunning {
			sleep(time.Millisecond)
		}
		// Three steps of the engine, and a fourth when an event makes us look again.
		if took := time.Since(began); took > 42*time.Millisecond {
			t.Fatalf("the status came %s after the pod", took)
		}
		if s.writes != 1 {
			t.Fatalf("%d statuses for a pod that came up at once", s.writes)
		}
		st := s.status(p)
		for _, c := range st.Conditions {
			if c.Status != corev1.ConditionTrue || c.ObservedGeneration != 1 {
				t.Fatalf("condition %+v", c)
			}
		}
		if len(st.Conditions) != 4 || st.QOSClass != corev1.PodQOSBestEffort || st.StartTime == nil || st.HostIP != "10.0.0.9" || len(st.PodIPs) != 1 {
			t.Fatalf("status is %+v", st)
		}
	})
}

func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		start := time.Now()
		a := run(t, s, machine, t.TempDir(), func(c *agent.Config) {
			c.Boot = func() time.Duration { return time.Since(start) + time.Hour }
		})
		sleep(100*time.Second + time.Millisecond)
		if s.renewals != 10 || s.hellos != 1 {
			t.Fatalf("%d renewals and %d sessions in 100 s", s.renewals, s.hellos)
		}
		if right, want := a.Right(), time.Hour+100*time.Second+40*time.Second-agent.Margin; right.Round(time.Second) != want {
			t.Fatalf("the right ends at %s, want %s", right, want)
		}
		s.mu.Lock()
		s.mute = true
		s.mu.Unlock()
		sleep(40 * time.Second)
		if s.hellos < 2 {
			t.Fatal("a server that answers no renewal is kept")
		}
	})
}

func TestReconnectIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		var dials atomic.Int32
		s.stop()
		run(t, s, machine, t.TempDir(), func(c *agent.Config) {
			dial := c.Dial
			c.Dial = func(ctx context.Context) (agent.Conn, error) { dials.Add(1); return dial(ctx) }
		})
		sleep(time.Second)
		if n := dials.Load(); n < 3 {
			t.Fatalf("%d dials in the first second", n)
		}
		sleep(10 * time.Minute)
		if n := dials.Load(); n > 150 {
			t.Fatalf("%d dials in 10 minutes", n)
		}
		s.start()
		sleep(10 * time.Second)
		if s.hellos != 1 {
			t.Fatal("no session once the server is back")
		}
	})
}
