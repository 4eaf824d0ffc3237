package agent_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/probe"
)

// withInit is a pod with init containers; those whose name begins with "side" are
// sidecars.
func withInit(names ...string) *corev1.Pod {
	p, always := pod("web"), corev1.ContainerRestartPolicyAlways
	for _, name := range names {
		c := corev1.Container{Name: name, Image: "hello:1"}
		if strings.HasPrefix(name, "side") {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return p
}

// ending is a machine whose containers end at once when they are called init.
func ending(started func(name string)) func(agent.ContainerSpec) fake.Program {
	return func(c agent.ContainerSpec) fake.Program {
		started(c.Container.Name)
		return fake.Program{AtOnce: strings.HasPrefix(c.Container.Name, "init"), Stubborn: strings.HasSuffix(c.Container.Name, "stubborn")}
	}
}

// A sandbox that is lost with all that ran in it has the whole sequence run again; one
// that is not lost never.
func TestInitRunsAgainInANewSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{began: time.Now()}
		s, dir := newServer(t), t.TempDir()
		machine := fake.New(fake.Config{Programs: ending(func(name string) { d.note("%s", name) })})
		first := run(t, s, machine, dir)
		p := withInit("init1", "side", "init2")
		s.assign(p)
		sleep(time.Second)
		crash(t, machine, p, 1)
		first.stop()
		run(t, s, machine, dir)
		sleep(time.Second)
		if got := d.String(); got != "0 init1\n0 side\n0 init2\n0 c0\n1 c0" {
			t.Fatal(got)
		}
		d.reset()
		machine.Reboot()
		sleep(time.Minute)
		if got := d.String(); got != "0 init1\n0 side\n0 init2\n10 c0" {
			t.Fatal(got)
		}
		if st := s.status(p); !ready(st) || s.state(p, "init1").RestartCount != 1 || !s.state(p, "init1").Ready || condition(st, corev1.PodInitialized).Status != corev1.ConditionTrue {
			t.Fatalf("%+v", st)
		}
	})
}

// An init container that fails runs again with back-off, or ends the pod that never
// restarts.
func TestInitFails(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			machine := fake.New(fake.Config{Programs: func(agent.ContainerSpec) fake.Program { return fake.Program{AtOnce: true, Code: 2} }})
			run(t, s, machine, t.TempDir())
			p := withInit("init1", "init2")
			p.Spec.RestartPolicy = policy
			s.assign(p)
			sleep(15 * time.Second)
			st, c := s.status(p), s.state(p, "init1")
			if cond := condition(st, corev1.PodInitialized); cond.Status != corev1.ConditionFalse || cond.Reason != "ContainersNotInitialized" || cond.Message != "containers with incomplete status: [init1 init2]" {
				t.Fatalf("%+v", cond)
			}
			switch {
			case policy == corev1.RestartPolicyNever && (st.Phase != corev1.PodFailed || c.State.Terminated.ExitCode != 2):
				t.Fatalf("%+v", st)
			case policy == corev1.RestartPolicyAlways && (st.Phase != corev1.PodPending || c.State.Waiting.Reason != "CrashLoopBackOff" || c.RestartCount != 2):
				t.Fatalf("%+v", st)
			}
			if s.state(p, "c0").State.Waiting.Reason != "PodInitializing" || s.state(p, "init2").RestartCount != 0 {
				t.Fatalf("%+v", st)
			}
		})
	}
}

// Until an init container starts, it waits for the same as those after it.
func TestInitWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vols := newServer(t), newShelf()
		run(t, s, fake.New(fake.Config{}), t.TempDir(), vols.in)
		p := withVolume(withInit("init1"), "v", secretVolume("missing"))
		s.assign(p)
		sleep(5 * time.Second) // a pod that comes up tells of it lazily
		for _, name := range []string{"init1", "c0"} {
			if w := s.state(p, name).State.Waiting; w == nil || w.Reason != "PodInitializing" {
				t.Errorf("%s: %+v", name, w)
			}
		}
	})
}

// The next container starts when a sidecar's startup probe has succeeded; a sidecar that
// crashes later holds nothing up, and is restarted.
func TestSidecarGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		s, a := newServer(t), newAsked()
		machine := fake.New(fake.Config{Programs: ending(func(name string) { order = append(order, name) })})
		run(t, s, machine, t.TempDir(), a.config)
		p := withInit("side", "init2")
		p.Spec.InitContainers[0].StartupProbe = get("/s", func(p *corev1.Probe) { p.FailureThreshold = 100 })
		p.Spec.InitContainers[0].ReadinessProbe = get("/r")
		a.set("/s", probe.Failure)
		a.set("/r", probe.Failure)
		s.assign(p)
		sleep(15 * time.Second)
		if !slices.Equal(order, []string{"side"}) || condition(s.status(p), corev1.PodInitialized).Status != corev1.ConditionFalse {
			t.Fatalf("%v, %+v", order, s.status(p).Conditions)
		}
		a.set("/s", probe.Success)
		sleep(10 * time.Second)
		if st := s.status(p); !slices.Equal(order, []string{"side", "init2", "c0"}) || st.Phase != corev1.PodRunning || ready(st) {
			t.Fatalf("%v, %+v", order, st)
		}
		a.set("/r", probe.Success)
		sleep(10 * time.Second)
		if !ready(s.status(p)) {
			t.Fatalf("%+v", s.status(p))
		}
		if err := machine.Crash(p.UID, "side", 0); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		if !slices.Equal(order, []string{"side", "init2", "c0", "side"}) {
			t.Fatal(order)
		}
	})
}

// Sidecars get their signal after the regular containers have ended, the last one
// first, all within the pod's grace period; their preStop hooks begin at once.
func TestSidecarsStopLast(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"side1", "init", "side2"}, "0 stop c0\n0 stop side2\n1 stop side1"},
		{[]string{"side1", "init", "side2stubborn"}, "0 stop c0\n0 stop side2stubborn\n10 stop side1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{}
			s, machine := newServer(t), commanded(d, ending(func(string) {}))
			run(t, s, machine, t.TempDir())
			p := withInit(c.names...)
			p.Spec.InitContainers[0].Lifecycle = &corev1.Lifecycle{PreStop: command("take", "1s")}
			s.assign(p)
			synctest.Wait()
			d.reset()
			s.assign(deleted(p, 10))
			sleep(20 * time.Second)
			const hook = "0 take 1s in side1"
			all := strings.Split(d.String(), "\n")
			stops := slices.DeleteFunc(slices.Clone(all), func(l string) bool { return l == hook })
			if !slices.Contains(all, hook) || strings.Join(stops, "\n") != c.want || len(ids(t, machine)) != 0 {
				t.Fatalf("%s\nwant %s; %v runs", d, c.want, ids(t, machine))
			}
		})
	}
}

// A pod whose regular containers have ended is over: none of its sidecars starts again,
// also for an agent that was killed while they stopped.
func TestSidecarsOfEndedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newServer(t), t.TempDir()
		machine := fake.New(fake.Config{Programs: ending(func(string) {})})
		first := run(t, s, machine, dir)
		p := withInit("side1", "side2stubborn")
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		s.assign(p)
		synctest.Wait()
		crash(t, machine, p, 0)
		sleep(time.Second)
		first.stop()
		if err := machine.Crash(p.UID, "side1", 0); err != nil {
			t.Fatal(err)
		}
		run(t, s, machine, dir)
		sleep(time.Minute)
		if st := s.status(p); st.Phase != corev1.PodSucceeded || machine.Calls("StartContainer") != 3 {
			t.Fatalf("%d starts: %+v", machine.Calls("StartContainer"), st)
		}
	})
}

// A container's own policy and its rules come before the pod's.
func TestContainerRestartPolicies(t *testing.T) {
	never, always := corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyAlways
	rule := corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleActionRestart, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
		Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}
	for _, c := range []struct {
		pod       corev1.RestartPolicy
		container *corev1.ContainerRestartPolicy
		rules     []corev1.ContainerRestartRule
		code      int32
		again     bool
	}{
		{corev1.RestartPolicyAlways, &never, nil, 1, false},
		{corev1.RestartPolicyNever, &always, nil, 0, true},
		{corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{rule}, 42, true},
		{corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{rule}, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, machine := newServer(t), fake.New(fake.Config{})
			run(t, s, machine, t.TempDir())
			p := pod("web")
			p.Spec.RestartPolicy = c.pod
			p.Spec.Containers[0].RestartPolicy, p.Spec.Containers[0].RestartPolicyRules = c.container, c.rules
			s.assign(p)
			synctest.Wait()
			crash(t, machine, p, c.code)
			if got := len(ids(t, machine)) == 1; got != c.again {
				t.Fatalf("%+v: runs again is %v, %+v", c, got, s.status(p))
			}
		})
	}
}
