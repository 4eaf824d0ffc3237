package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
)

// diary notes what happens on a machine and when.
type diary struct {
	mu      sync.Mutex
	began   time.Time
	entries []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, fmt.Sprintf("%d ", time.Since(d.began)/time.Second)+fmt.Sprintf(format, args...))
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.entries, "\n")
}

func (d *diary) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries, d.began = nil, time.Now()
}

// commanded is a machine whose commands take as long as they are named: "take 3s".
func commanded(d *diary, programs func(agent.ContainerSpec) fake.Program) *fake.Runtime {
	return fake.New(fake.Config{Programs: programs,
		Fail: func(op, subject string) error {
			if op == "StopContainer" {
				d.note("stop %s", strings.Split(subject, "-")[2])
			}
			return nil
		},
		Commands: func(c agent.ContainerState, command []string) fake.Reply {
			d.note("%s in %s", strings.Join(command, " "), c.Name)
			switch command[0] {
			case "take":
				takes, err := time.ParseDuration(command[1])
				return fake.Reply{Takes: takes, Err: err}
			case "fail":
				return fake.Reply{Code: 1, Output: "secret"}
			case "absent":
				return fake.Reply{Err: errors.New("there is no such program")}
			}
			return fake.Reply{}
		}})
}

func command(words ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: words}}
}

func TestPostStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{began: time.Now()}
		s, machine := newServer(t), commanded(d, nil)
		run(t, s, machine, t.TempDir())
		p := pod("web", "hello:1", "hello:1")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: command("take", "3s")}
		s.assign(p)
		sleep(2 * time.Second)
		if st := s.status(p); st.Phase != corev1.PodPending || s.state(p, "c0").State.Waiting == nil || s.state(p, "c0").ContainerID == "" || s.state(p, "c1").ContainerID != "" {
			t.Fatalf("while the hook runs: %+v", st)
		}
		sleep(2 * time.Second)
		if st := s.status(p); !ready(st) || s.state(p, "c0").State.Running == nil {
			t.Fatalf("after the hook: %+v", st)
		}
		if got := d.String(); got != "0 take 3s in c0" {
			t.Fatal(got)
		}
		crash(t, machine, p, 1)
		if got := d.String(); !strings.HasSuffix(got, "4 take 3s in c0") {
			t.Fatalf("not called for the next attempt: %s", got)
		}
	})
}

// A postStart hook that fails has the container killed and restarted with back-off;
// what the command printed is told to nobody.
func TestPostStartFails(t *testing.T) {
	for _, hook := range []*corev1.LifecycleHandler{command("fail"), command("absent"), {TCPSocket: &corev1.TCPSocketAction{}}} {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{began: time.Now()}
			s, machine := newServer(t), commanded(d, nil)
			run(t, s, machine, t.TempDir())
			p := pod("web")
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: hook}
			s.assign(p)
			sleep(5 * time.Second)
			c := s.state(p, "c0")
			if c.RestartCount != 1 || c.State.Waiting == nil || c.State.Waiting.Reason != "CrashLoopBackOff" {
				t.Fatalf("%+v", c)
			}
			told := s.said("FailedPostStartHook")
			if len(told) == 0 || !strings.HasPrefix(told[0], "FailedPostStartHook PostStartHook failed: ") || strings.Contains(strings.Join(told, ""), "secret") {
				t.Fatalf("events %q", told)
			}
			if got := s.said("Killing"); len(got) == 0 || !strings.HasPrefix(got[0], "Killing FailedPostStartHook") {
				t.Fatalf("events %q", got)
			}
		})
	}
}

// A pod that is deleted does not wait for its hook to end.
func TestPostStartIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{began: time.Now()}
		s, machine := newServer(t), commanded(d, nil)
		run(t, s, machine, t.TempDir())
		p := pod("web")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: command("take", "1000h")}
		s.assign(p)
		sleep(time.Hour)
		s.assign(deleted(p, 5))
		sleep(10 * time.Second)
		if len(ids(t, machine)) != 0 || len(s.said("FailedPostStartHook")) != 0 {
			t.Fatalf("%v runs, events %q", ids(t, machine), s.said("FailedPostStartHook"))
		}
	})
}

// An agent that was killed during a hook runs it again, after it never.
func TestPostStartAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dir := &diary{began: time.Now()}, t.TempDir()
		s, machine := newServer(t), commanded(d, nil)
		first := run(t, s, machine, dir)
		p := pod("web")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: command("take", "10s")}
		s.assign(p)
		sleep(5 * time.Second)
		first.stop()
		second := run(t, s, machine, dir)
		sleep(11 * time.Second)
		if got := d.String(); got != "0 take 10s in c0\n5 take 10s in c0" || !ready(s.status(p)) {
			t.Fatalf("%s\n%+v", got, s.status(p))
		}
		second.stop()
		run(t, s, machine, dir)
		sleep(time.Minute)
		if got := d.String(); strings.Count(got, "take") != 2 || machine.Calls("StartContainer") != 1 {
			t.Fatal(got)
		}
	})
}

// The preStop hook comes before the signal, within the grace period; the container gets
// two seconds at least.
func TestPreStop(t *testing.T) {
	for _, c := range []struct {
		hook   *corev1.LifecycleHandler
		grace  int64
		want   string
		gone   time.Duration // when the container is dead: it ignores its signal
		failed string
	}{
		{command("take", "4s"), 10, "0 take 4s in c0\n4 stop c0", 10 * time.Second, ""},
		{command("take", "9s"), 10, "0 take 9s in c0\n9 stop c0", 11 * time.Second, ""},
		{command("take", "90s"), 10, "0 take 90s in c0\n10 stop c0", 12 * time.Second, "it did not end within the grace period of 10s"},
		{command("fail"), 10, "0 fail in c0\n0 stop c0", 10 * time.Second, "the command ended with exit code 1"},
		{&corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}, 10, "3 stop c0", 10 * time.Second, ""},
		{&corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{}}, 10, "0 stop c0", 10 * time.Second, "a hook cannot be a tcpSocket"},
		{command("take", "4s"), 0, "0 stop c0", 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{}
			s, machine := newServer(t), commanded(d, func(agent.ContainerSpec) fake.Program { return fake.Program{Stubborn: true} })
			run(t, s, machine, t.TempDir())
			p := pod("web")
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: c.hook}
			s.assign(p)
			synctest.Wait()
			d.reset()
			s.assign(deleted(p, c.grace))
			if c.gone > 0 {
				sleep(c.gone - time.Millisecond)
				if len(ids(t, machine)) != 1 {
					t.Fatalf("%s: killed too early", d)
				}
			}
			sleep(2 * time.Millisecond)
			if got := d.String(); got != c.want || len(ids(t, machine)) != 0 {
				t.Fatalf("%s\nwant %s; %v runs", got, c.want, ids(t, machine))
			}
			var told []string
			if c.failed != "" {
				told = []string{"FailedPreStopHook PreStopHook failed: " + c.failed + " x1"}
			}
			if got := s.said("FailedPreStopHook"); !slices.Equal(got, told) {
				t.Fatalf("events %q, want %q", got, told)
			}
		})
	}
}

// A deletion that becomes more urgent cuts the hook short; it is called again for what is
// left of the grace period.
func TestPreStopGetsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		s, machine := newServer(t), commanded(d, func(agent.ContainerSpec) fake.Program { return fake.Program{Stubborn: true} })
		run(t, s, machine, t.TempDir())
		p := pod("web")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: command("take", "1000s")}
		s.assign(p)
		synctest.Wait()
		d.reset()
		s.assign(deleted(p, 600))
		sleep(5 * time.Second)
		s.assign(deleted(p, 8))
		sleep(6 * time.Second)
		if got := d.String(); got != "0 take 1000s in c0\n5 take 1000s in c0\n8 stop c0" || len(ids(t, machine)) != 0 {
			t.Fatalf("%s; %v runs", got, ids(t, machine))
		}
	})
}

// The hook of a container whose signal was sent is not called again by the next agent.
func TestPreStopAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dir := &diary{}, t.TempDir()
		s, machine := newServer(t), commanded(d, func(agent.ContainerSpec) fake.Program { return fake.Program{Stubborn: true} })
		first := run(t, s, machine, dir)
		p := pod("web")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: command("take", "4s")}
		s.assign(p)
		synctest.Wait()
		d.reset()
		s.forget()
		s.assign(deleted(p, 10))
		sleep(2 * time.Second)
		first.stop() // during the hook
		second := run(t, s, machine, dir)
		sleep(5 * time.Second)
		second.stop() // after the signal
		run(t, s, machine, dir)
		sleep(time.Minute)
		if got := d.String(); got != "0 take 4s in c0\n2 take 4s in c0\n6 stop c0\n7 stop c0" || len(ids(t, machine)) != 0 {
			t.Fatalf("%s; %v runs", got, ids(t, machine))
		}
	})
}
