package agent_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/probe"
)

// asked is what probes of containers find, by the path that they ask for.
type asked struct {
	mu      sync.Mutex
	answers map[string]probe.Result // default: Success
	times   map[string][]time.Duration
	began   time.Time
	most    int // at one time
	now     int
	takes   time.Duration
}

func newAsked() *asked {
	return &asked{answers: map[string]probe.Result{}, times: map[string][]time.Duration{}, began: time.Now()}
}

func (a *asked) probe(ctx context.Context, req probe.Request) probe.Answer {
	path := req.Handler.HTTPGet.Path
	a.mu.Lock()
	a.times[path] = append(a.times[path], time.Since(a.began))
	a.now++
	a.most = max(a.most, a.now)
	result, ok := a.answers[path]
	takes := a.takes
	a.mu.Unlock()
	if takes > 0 {
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	a.now--
	a.mu.Unlock()
	if !ok {
		result = probe.Success
	}
	answer := probe.Answer{Result: result}
	if result != probe.Success {
		answer.Message = "it says no"
	}
	return answer
}

func (a *asked) set(path string, r probe.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[path] = r
}

// at lists when a path was asked for, in seconds since the test began.
func (a *asked) at(path string) (out []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.times[path] {
		out = append(out, int(d/time.Second))
	}
	return out
}

func (a *asked) config(c *agent.Config) { c.Probe = a.probe }

func get(path string, change ...func(*corev1.Probe)) *corev1.Probe {
	p := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path}}, PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
	for _, f := range change {
		f(p)
	}
	return p
}

func condition(s corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func ready(s corev1.PodStatus) bool {
	return condition(s, corev1.PodReady).Status == corev1.ConditionTrue && condition(s, corev1.ContainersReady).Status == corev1.ConditionTrue
}

func TestReadinessProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, a := newServer(t), fake.New(fake.Config{}), newAsked()
		run(t, s, machine, t.TempDir(), a.config)
		p := pod("web")
		p.Spec.Containers[0].ReadinessProbe = get("/r", func(p *corev1.Probe) { p.InitialDelaySeconds, p.SuccessThreshold, p.FailureThreshold = 5, 2, 2 })
		s.assign(p)
		sleep(14 * time.Second)
		if st := s.status(p); ready(st) || st.Phase != corev1.PodRunning || condition(st, corev1.PodReady).Reason != "ContainersNotReady" || !*s.state(p, "c0").Started {
			t.Fatalf("after one success of two: %+v", st)
		}
		sleep(time.Second)
		if st := s.status(p); !ready(st) || !s.state(p, "c0").Ready {
			t.Fatalf("after two: %+v", st)
		}
		a.set("/r", probe.Failure)
		sleep(19 * time.Second)
		if !ready(s.status(p)) {
			t.Fatal("one failure of two is enough")
		}
		sleep(time.Second)
		if ready(s.status(p)) || s.state(p, "c0").State.Running == nil || machine.Calls("StopContainer") != 0 {
			t.Fatal("two failures of two change nothing, or too much")
		}
		if got := s.said("Unhealthy"); len(got) == 0 || got[0] != "Unhealthy Readiness probe failed: it says no x1" {
			t.Fatalf("events %q", got)
		}
		a.set("/r", probe.Unknown)
		sleep(time.Minute)
		a.set("/r", probe.Success)
		sleep(30 * time.Second)
		if !ready(s.status(p)) {
			t.Fatal("it does not come back")
		}
		if got := a.at("/r"); !slices.Equal(got[:4], []int{5, 15, 25, 35}) {
			t.Fatalf("asked at %v", got)
		}
	})
}

// A liveness probe that fails has the container killed with the probe's own grace, and
// restarted as its policy says.
func TestLivenessProbe(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever} {
		synctest.Test(t, func(t *testing.T) {
			s, a := newServer(t), newAsked()
			machine := fake.New(fake.Config{Programs: func(agent.ContainerSpec) fake.Program { return fake.Program{Stubborn: true} }})
			run(t, s, machine, t.TempDir(), a.config)
			p, grace := pod("web"), int64(7)
			p.Spec.RestartPolicy = policy
			p.Spec.Containers[0].LivenessProbe = get("/l", func(p *corev1.Probe) { p.TerminationGracePeriodSeconds = &grace })
			s.assign(p)
			sleep(15 * time.Second)
			if !ready(s.status(p)) {
				t.Fatal("a container without a readiness probe is not ready")
			}
			a.set("/l", probe.Failure)
			sleep(25 * time.Second) // failures at 20, 30, 40
			first := ids(t, machine)["web/c0"]
			if got := s.said("Killing"); first == "" || len(got) != 1 {
				t.Fatalf("%q runs; events %q", first, got)
			}
			a.set("/l", probe.Success)
			sleep(7 * time.Second)
			switch now := ids(t, machine)["web/c0"]; {
			case policy == corev1.RestartPolicyAlways && (now == "" || now == first || s.state(p, "c0").RestartCount != 1 || s.state(p, "c0").LastTerminationState.Terminated.ExitCode != 137):
				t.Fatalf("%s, then %s: %+v", first, now, s.state(p, "c0"))
			case policy == corev1.RestartPolicyNever && (now != "" || s.status(p).Phase != corev1.PodFailed):
				t.Fatalf("%s, then %s: %+v", first, now, s.status(p))
			}
			if got := s.said("Unhealthy"); len(got) == 0 || got[0] != "Unhealthy Liveness probe failed: it says no x1" {
				t.Fatalf("events %q", got)
			}
			sleep(time.Hour)
			if len(s.said("Killing")) != 1 {
				t.Fatalf("killed again: %q", s.said("Killing"))
			}
		})
	}
}

// Until the startup probe succeeds nothing else is asked; one that never does has the
// container killed.
func TestStartupProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, a := newServer(t), fake.New(fake.Config{}), newAsked()
		run(t, s, machine, t.TempDir(), a.config)
		p := pod("web")
		c := &p.Spec.Containers[0]
		c.StartupProbe = get("/s", func(p *corev1.Probe) { p.PeriodSeconds, p.FailureThreshold = 1, 10 })
		c.ReadinessProbe, c.LivenessProbe = get("/r"), get("/l")
		a.set("/s", probe.Failure)
		a.set("/l", probe.Failure)
		s.assign(p)
		sleep(5500 * time.Millisecond)
		if got := s.state(p, "c0"); *got.Started || got.Ready || got.State.Running == nil || len(a.at("/r"))+len(a.at("/l")) != 0 {
			t.Fatalf("%+v, asked %v and %v", got, a.at("/r"), a.at("/l"))
		}
		sleep(4 * time.Second) // the tenth failure
		if got := s.state(p, "c0"); got.RestartCount != 1 || len(s.said("Killing")) != 1 {
			t.Fatalf("%+v, %q", got, s.said("Killing"))
		}
		a.set("/s", probe.Success)
		a.set("/l", probe.Success)
		sleep(2 * time.Second)
		if got := s.state(p, "c0"); !*got.Started || !got.Ready || len(a.at("/r")) == 0 || len(a.at("/l")) == 0 {
			t.Fatalf("%+v", got)
		}
		n := len(a.at("/s"))
		sleep(time.Hour)
		if len(a.at("/s")) != n {
			t.Fatal("a container that has started is asked whether it has")
		}
	})
}

// R8: an agent that was restarted shows what was ready as ready until it is told
// otherwise, does not wait for a startup again, and asks not all at once.
func TestR8_RestartKeepsReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, a, dir := newServer(t), fake.New(fake.Config{}), newAsked(), t.TempDir()
		first := run(t, s, machine, dir, a.config)
		var pods []*corev1.Pod
		for i := range 20 {
			p := pod(fmt.Sprintf("web%d", i))
			p.Spec.Containers[0].StartupProbe, p.Spec.Containers[0].ReadinessProbe = get("/s"), get("/r")
			p.Spec.Containers[0].LivenessProbe = get("/l")
			pods = append(pods, p)
		}
		s.assign(pods...)
		sleep(30 * time.Second)
		before := ids(t, machine)
		first.stop()
		a.set("/s", probe.Failure)
		a.set("/r", probe.Failure)
		restarted, n := len(a.at("/s")), len(a.at("/r"))
		run(t, s, machine, dir, a.config)
		synctest.Wait()
		for _, p := range pods {
			if !ready(s.status(p)) {
				t.Fatalf("%s is not ready any more: %+v", p.Name, s.status(p))
			}
		}
		sleep(10 * time.Second)
		moments := a.at("/r")[n:]
		if slices.Sort(moments); len(slices.Compact(moments)) < 5 {
			t.Fatalf("asked at %v", moments)
		}
		for _, p := range pods {
			if !ready(s.status(p)) {
				t.Fatalf("%s is not ready after one failure of three", p.Name)
			}
		}
		sleep(30 * time.Second)
		for _, p := range pods {
			if ready(s.status(p)) {
				t.Fatalf("%s is ready after three failures", p.Name)
			}
		}
		if len(a.at("/s")) != restarted {
			t.Fatal("what had started is asked whether it has")
		}
		if after := ids(t, machine); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Fatalf("before %v, after %v", before, after)
		}
	})
}

// An agent whose checkpoint is older than what the server was told takes from it what was
// ready.
func TestR8_ServerRemembersReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, a := newServer(t), fake.New(fake.Config{}), newAsked()
		first := run(t, s, machine, t.TempDir(), a.config)
		p := pod("web")
		p.Spec.Containers[0].StartupProbe, p.Spec.Containers[0].ReadinessProbe = get("/s"), get("/r")
		s.assign(p)
		sleep(5 * time.Second)
		first.stop()
		a.set("/s", probe.Unknown)
		a.set("/r", probe.Unknown)
		told := p.DeepCopy()
		told.Status = s.status(p)
		s.forget()
		s.assign(p, told) // as of before it was started, then as it is
		run(t, s, machine, t.TempDir(), a.config)
		sleep(time.Minute)
		if st := s.status(p); !ready(st) || !*s.state(p, "c0").Started || len(a.at("/s")) != 1 {
			t.Fatalf("asked whether it has started at %v: %+v", a.at("/s"), st)
		}
	})
}

// A pod that is being deleted is asked only whether it is ready, and one that is gone
// nothing.
func TestProbesOfDeletedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := newServer(t), newAsked()
		machine := fake.New(fake.Config{Programs: func(agent.ContainerSpec) fake.Program { return fake.Program{Stubborn: true} }})
		run(t, s, machine, t.TempDir(), a.config)
		p := pod("web")
		p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = get("/r"), get("/l")
		s.assign(p)
		sleep(5 * time.Second)
		deleted := p.DeepCopy()
		now, grace := metav1.Now(), int64(60)
		deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds = &now, &grace
		s.assign(deleted)
		sleep(50 * time.Second)
		if live, r := len(a.at("/l")), len(a.at("/r")); live != 1 || r < 5 {
			t.Fatalf("asked for life %d times, for readiness %d times", live, r)
		}
		sleep(time.Minute)
		n := len(a.at("/r"))
		sleep(time.Hour)
		if len(a.at("/r")) != n {
			t.Fatal("a pod that is gone is asked")
		}
	})
}

// So many checks are made at one time and no more; those that hang keep the others
// waiting for some seconds only.
func TestProbesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, a := newServer(t), fake.New(fake.Config{}), newAsked()
		a.takes = time.Minute
		run(t, s, machine, t.TempDir(), a.config)
		for i := range 250 {
			p := pod(fmt.Sprintf("web%d", i))
			p.Spec.Containers[0].ReadinessProbe = get("/r")
			s.assign(p)
			if i%50 == 0 {
				synctest.Wait()
			}
		}
		sleep(9 * time.Second)
		a.mu.Lock()
		most := a.most
		a.mu.Unlock()
		if most != 200 {
			t.Fatalf("%d at one time", most)
		}
		sleep(10 * time.Minute)
		if n := len(a.at("/r")); n < 2250 { // each takes a minute
			t.Fatalf("only %d checks in ten minutes", n)
		}
	})
}

func TestReadinessGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		run(t, s, machine, t.TempDir())
		p := pod("web")
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.org/open"}}
		s.assign(p)
		synctest.Wait()
		st := s.status(p)
		if c := condition(st, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" || condition(st, corev1.ContainersReady).Status != corev1.ConditionTrue {
			t.Fatalf("%+v", st.Conditions)
		}
		open := p.DeepCopy()
		open.Status = st
		open.Status.Conditions = append(slices.Clone(st.Conditions), corev1.PodCondition{Type: "example.org/open", Status: corev1.ConditionTrue})
		s.assign(open)
		synctest.Wait()
		if !ready(s.status(p)) {
			t.Fatalf("%+v", s.status(p).Conditions)
		}
	})
}
