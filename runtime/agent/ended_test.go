package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
)

// That a pod has ended is not told before the disk has it: whoever takes its name
// then may run elsewhere, and an agent that was killed meanwhile must not start it
// again from an older file, also when the disk takes no more.
func TestR10_AnEndIsKeptBeforeItIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		pod  func() *corev1.Pod
		end  func(t *testing.T, a *agent.Agent, m *fake.Runtime)
		told func(*session.PodStatus) bool
		full bool
	}{
		"deleted": {
			pod: func() *corev1.Pod { return pod("a") },
			end: func(t *testing.T, a *agent.Agent, _ *fake.Runtime) {
				p := pod("a")
				at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.ResourceVersion = &at, new(int64(1)), "9"
				if err := a.Receive(setPod(t, p)); err != nil {
					t.Fatal(err)
				}
			},
			told: func(s *session.PodStatus) bool { return s.Stopped },
		},
		"failed":              {pod: never, end: crashed, told: failed},
		"failed on full disk": {pod: never, end: crashed, told: failed, full: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, now, dir := context.Background(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), t.TempDir()
			machine := fake.New(fake.Config{Now: func() time.Time { return now }})
			begin := func() *agent.Agent {
				a, err := agent.New(agent.Config{Runtime: machine, Dir: dir, Now: func() time.Time { return now }, Boot: func() time.Duration { return time.Minute },
					Node: func() (*corev1.Node, error) {
						return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil
					}})
				if err != nil {
					t.Fatal(err)
				}
				if err := a.Adopt(ctx); err != nil {
					t.Fatal(err)
				}
				return a
			}
			// said is whether the end is among what the outbox gives now.
			said := func(a *agent.Agent) bool {
				for range 100 {
					m, _, err := a.Take()
					if err != nil {
						t.Fatal(err)
					}
					if m == nil {
						return false
					}
					if s := m.GetPodStatus(); s != nil && c.told(s) {
						return true
					}
				}
				t.Fatal("the outbox has no end")
				return false
			}
			a := begin()
			a.Begin()
			for _, m := range []*session.Down{setPod(t, c.pod()), {Message: &session.Down_Synced{Synced: &session.Synced{}}}} {
				if err := a.Receive(m); err != nil {
					t.Fatal(err)
				}
			}
			for a.Step(ctx) {
			}
			if err := a.Save(); err != nil {
				t.Fatal(err)
			}
			c.end(t, a, machine)
			for range 20 { // the wait of a stop, too
				for a.Step(ctx) {
				}
				now = now.Add(time.Second)
				if said(a) {
					t.Fatal("told before it was kept")
				}
			}
			if c.full { // nothing can be written, only removed
				file := filepath.Join(dir, "pods", "uid-a.new")
				if err := os.MkdirAll(filepath.Join(file, "in the way"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.Save(); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second)
			if !said(a) {
				t.Fatal("kept and not told")
			}
			// Killed now, on a machine that has been started again: nothing of the pod
			// is there, and no server says anything.
			starts := machine.Calls("StartContainer")
			if err := machine.RemoveSandbox(ctx, "uid-a"); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(dir, "pods", "uid-a.new")); err != nil {
				t.Fatal(err)
			}
			again := begin()
			for range 20 {
				for again.Step(ctx) {
				}
				now = now.Add(time.Minute)
			}
			if n := machine.Calls("StartContainer"); n != starts {
				t.Errorf("it was started again")
			}
		})
	}
}

func never() *corev1.Pod {
	p := pod("a")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	return p
}

func crashed(t *testing.T, a *agent.Agent, m *fake.Runtime) {
	if err := m.Crash("uid-a", "c0", 1); err != nil {
		t.Fatal(err)
	}
	a.Changed("uid-a")
}

func failed(s *session.PodStatus) bool {
	var status corev1.PodStatus
	return status.Unmarshal(s.Status) == nil && status.Phase == corev1.PodFailed
}

// A node on which more Jobs' pods have ended than it may run at one time still runs what
// it is given.
func TestEndedPodsTakeNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := fake.New(fake.Config{})
		s := newServer(t)
		run(t, s, machine, t.TempDir())
		for i := range session.MaxPods + 100 {
			p := pod(fmt.Sprint("ended", i))
			p.Spec.RestartPolicy, p.Status.Phase = corev1.RestartPolicyNever, corev1.PodSucceeded
			s.assign(p)
		}
		s.assign(pod("next"))
		sleep(time.Minute)
		if got := ids(t, machine); len(got) != 1 || got["next/c0"] == "" {
			t.Errorf("%v run", got)
		}
		if s.hellos != 1 {
			t.Errorf("%d sessions began", s.hellos)
		}
	})
}
