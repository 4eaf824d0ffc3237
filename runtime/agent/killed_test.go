package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/probe"
	"headway.dev/headway/runtime/session"
)

// deaths says when an agent is killed: after the one step with that number, after every
// so many, or in the middle of each, before what it asks of the engine has an effect; and
// whether its checkpoint was written before.
type deaths struct {
	at, every     int
	before, saved bool
}

// lives drives one pod with agents that are killed all the time.
type lives struct {
	t       *testing.T
	deaths  deaths
	dir     string
	machine *fake.Runtime
	tried   map[string]bool
	dead    bool // the agent of now is to be killed
	steps   int
	kills   int
	began   []string // containers that were started, by name and attempt
	ran     []string // commands that ran to their end
	pod     *corev1.Pod
	agent   *agent.Agent
	status  corev1.PodStatus
	stopped bool
}

// born makes the next agent, which knows what the one before wrote down, what runs, and
// what the server says.
func (l *lives) born() {
	l.t.Helper()
	a, err := agent.New(agent.Config{Runtime: l.machine, Dir: l.dir, Now: time.Now, Boot: func() time.Duration { return 0 },
		Probe: func(context.Context, probe.Request) probe.Answer { return probe.Answer{Result: probe.Success} },
		Node: func() (*corev1.Node, error) {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.9"}}}}, nil
		}})
	if err != nil {
		l.t.Fatal(err)
	}
	for a.Adopt(l.t.Context()) != nil { // an agent that is killed here has done nothing
	}
	a.Begin()
	p := l.pod.DeepCopy()
	p.Status = l.status
	for _, m := range []*session.Down{setPod(l.t, p), {Message: &session.Down_Synced{Synced: &session.Synced{}}}} {
		if err := a.Receive(m); err != nil {
			l.t.Fatal(err)
		}
	}
	l.agent, l.dead = a, false
}

// kill ends the agent of now: nothing that it knows is left but what it wrote.
func (l *lives) kill() {
	l.kills++
	if l.deaths.saved {
		if err := l.agent.Save(); err != nil {
			l.t.Fatal(err)
		}
	}
	l.born()
}

// take is the server, which stores what comes.
func (l *lives) take() {
	for {
		m, _, err := l.agent.Take()
		if err != nil {
			l.t.Fatal(err)
		}
		if m == nil {
			return
		}
		s := m.GetPodStatus()
		if s == nil {
			continue
		}
		l.status = corev1.PodStatus{}
		if err := l.status.Unmarshal(s.Status); err != nil {
			l.t.Fatal(err)
		}
		l.stopped = l.stopped || s.Stopped
		if err := l.agent.Receive(&session.Down{Message: &session.Down_Stored{Stored: &session.Stored{Namespace: s.Namespace, Name: s.Name, Uid: s.Uid, Sequence: s.Sequence}}}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// until goes on until something is so.
func (l *lives) until(what string, so func() bool) {
	l.t.Helper()
	for range 2000 {
		worked := l.agent.Step(l.t.Context()) || l.agent.Probe(l.t.Context())
		if worked {
			l.steps++
		}
		if l.dead || worked && (l.steps == l.deaths.at || l.deaths.every > 0 && l.steps%l.deaths.every == 0) {
			l.kill()
			continue
		}
		l.take()
		if so() {
			return
		}
		if !worked {
			if err := l.agent.Save(); err != nil { // the report of an end waits for it
				l.t.Fatal(err)
			}
			time.Sleep(time.Second)
			l.agent.Changed(l.pod.UID)
		}
	}
	l.t.Fatalf("never %s after %d deaths: %v\n%+v", what, l.kills, l.began, l.status)
}

func live(t *testing.T, d deaths) *lives {
	l := &lives{t: t, deaths: d, dir: t.TempDir(), tried: map[string]bool{}}
	l.machine = fake.New(fake.Config{
		Programs: func(s agent.ContainerSpec) fake.Program {
			l.began = append(l.began, fmt.Sprintf("%s#%d", s.Container.Name, s.Attempt))
			if s.Container.Name == "init" {
				return fake.Program{Runs: time.Second}
			}
			return fake.Program{}
		},
		Missing: func(string) bool { return true },
		Fail: func(op, subject string) error {
			if key := op + " " + subject; d.before && !l.tried[key] {
				l.tried[key], l.dead = true, true
				return errors.New("the agent is killed")
			}
			return nil
		},
		Commands: func(c agent.ContainerState, command []string) fake.Reply {
			l.ran = append(l.ran, strings.Join(command, " "))
			return fake.Reply{}
		},
	})
	l.pod = pod("web", "web:1")
	always := corev1.ContainerRestartPolicyAlways
	l.pod.Spec.InitContainers = []corev1.Container{
		{Name: "init", Image: "init:1"},
		{Name: "side", Image: "side:1", RestartPolicy: &always, StartupProbe: get("/s")},
	}
	c := &l.pod.Spec.Containers[0]
	c.ReadinessProbe, c.LivenessProbe = get("/r"), get("/l")
	c.Lifecycle = &corev1.Lifecycle{PostStart: command("hello"), PreStop: command("bye")}
	l.born()
	return l
}

// An agent that is killed after, or in, every single transition of a pod's life loses no
// container, starts none twice, and leaves none behind: init containers, sidecars, hooks,
// probes, a crash, the stop.
func TestKilledAtEveryTransition(t *testing.T) {
	var all []deaths
	for _, saved := range []bool{false, true} {
		all = append(all, deaths{before: true, saved: saved}, deaths{every: 4, saved: saved}, deaths{every: 7, before: true, saved: saved})
		for at := range 40 { // 0: never
			all = append(all, deaths{at: at, saved: saved})
		}
	}
	most := 0
	for _, d := range all {
		t.Run(fmt.Sprintf("%+v", d), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := live(t, d)
				l.until("ready", func() bool { return ready(l.status) })
				if want := []string{"init#0", "side#0", "c0#0"}; !slices.Equal(l.began, want) {
					t.Errorf("started %v, want %v", l.began, want)
				}
				if !slices.Contains(l.ran, "hello") || slices.Contains(l.ran, "bye") {
					t.Errorf("hooks: %v", l.ran)
				}
				if err := l.machine.Crash(l.pod.UID, "c0", 1); err != nil {
					t.Fatal(err)
				}
				l.agent.Changed(l.pod.UID)
				l.until("restarted", func() bool {
					return ready(l.status) && l.status.ContainerStatuses[0].RestartCount == 1
				})
				if want := []string{"init#0", "side#0", "c0#0", "c0#1"}; !slices.Equal(l.began, want) {
					t.Errorf("started %v, want %v", l.began, want)
				}
				before := l.began
				l.pod = deleted(l.pod, 30)
				if err := l.agent.Receive(setPod(t, l.pod)); err != nil {
					t.Fatal(err)
				}
				l.until("stopped", func() bool { return l.stopped })
				if !slices.Equal(l.began, before) {
					t.Errorf("while it was stopped, %v were started", l.began)
				}
				if !slices.Contains(l.ran, "bye") {
					t.Errorf("hooks: %v", l.ran)
				}
				if left, err := l.machine.List(t.Context()); err != nil || len(left) != 0 {
					t.Errorf("left: %+v, %v", left, err)
				}
				if d.before && l.kills < 8 || d.at > 0 && d.at < 15 && l.kills != 1 {
					t.Errorf("%d deaths", l.kills)
				}
				if d == (deaths{}) {
					most = l.steps
				}
			})
		})
	}
	if most == 0 || most >= 40 {
		t.Errorf("a life has %d steps: each is to be one to die after", most)
	}
}

// Two hundred and fifty pods on one node start, and each is known again by the next agent
// without a step.
func TestAFullNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 250
		s, machine := newServer(t), fake.New(fake.Config{})
		dir := t.TempDir()
		a := run(t, s, machine, dir)
		for i := range n {
			s.assign(pod(fmt.Sprintf("p%d", i)))
		}
		sleep(time.Minute)
		before := ids(t, machine)
		if len(before) != n {
			t.Fatalf("%d of %d run", len(before), n)
		}
		a.stop()
		starts := machine.Calls("StartContainer")
		run(t, s, machine, dir)
		sleep(time.Hour)
		if after := ids(t, machine); len(after) != n || after["p7/c0"] != before["p7/c0"] || machine.Calls("StartContainer") != starts {
			t.Errorf("%d run after a restart, %d more starts", len(after), machine.Calls("StartContainer")-starts)
		}
	})
}
