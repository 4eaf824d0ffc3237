package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
)

// gauged is an agent that is stepped, with pods that run.
type gauged struct {
	*agent.Agent
	t       *testing.T
	machine *fake.Runtime
	now     time.Time
	broken  error
}

func newGauged(t *testing.T, pods ...*corev1.Pod) *gauged {
	g := &gauged{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return g.now }
	g.machine = fake.New(fake.Config{Now: clock, Programs: func(agent.ContainerSpec) fake.Program { return fake.Program{Cores: 0.5, Memory: 100} },
		Fail: func(op, _ string) error {
			if op == "Usage" {
				return g.broken
			}
			return nil
		}})
	var err error
	g.Agent, err = agent.New(agent.Config{Runtime: g.machine, Dir: t.TempDir(), Now: clock, Boot: func() time.Duration { return 0 },
		Node: func() (*corev1.Node, error) {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Adopt(context.Background()); err != nil {
		t.Fatal(err)
	}
	g.Begin()
	for _, p := range pods {
		g.receive(setPod(t, p))
	}
	g.receive(&session.Down{Message: &session.Down_Synced{Synced: &session.Synced{}}})
	for g.Step(context.Background()) {
	}
	return g
}

func (g *gauged) receive(m *session.Down) {
	g.t.Helper()
	if err := g.Receive(m); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gauged) ask(uids ...string) {
	g.receive(&session.Down{Message: &session.Down_Measure{Measure: &session.Measure{Uids: uids, PeriodNanos: int64(15 * time.Second)}}})
}

// after lets time pass and measures; the figures that were sent then, nil when none.
func (g *gauged) after(d time.Duration) *session.Figures {
	g.t.Helper()
	g.now = g.now.Add(d)
	if _, err := g.Measure(context.Background()); err != nil {
		g.t.Fatal(err)
	}
	for {
		m, _, err := g.Take()
		if err != nil {
			g.t.Fatal(err)
		}
		if m == nil {
			return nil
		}
		if f := m.GetFigures(); f != nil {
			return f
		}
	}
}

func TestMeasure(t *testing.T) {
	g := newGauged(t, pod("a"), pod("b", "hello:1", "hello:1"))
	if f := g.after(time.Minute); f != nil || g.machine.Calls("Usage") != 0 {
		t.Fatalf("unasked: %v, %d readings", f, g.machine.Calls("Usage"))
	}
	g.ask("uid-a", "uid-gone")
	if f := g.after(0); f != nil {
		t.Fatalf("figures from one reading: %v", f)
	}
	if next, err := g.Measure(context.Background()); err != nil || !next.Equal(g.now.Add(15*time.Second)) {
		t.Errorf("the next reading is due at %v, %v", next, err)
	}
	if f := g.after(14 * time.Second); f != nil || g.machine.Calls("Usage") != 1 {
		t.Errorf("before its time: %v, %d readings", f, g.machine.Calls("Usage"))
	}
	f := g.after(time.Second)
	if f == nil || len(f.Pods) != 1 || f.Pods[0].Uid != "uid-a" || f.Pods[0].WindowNanos != int64(15*time.Second) || f.TimeNanos != g.now.UnixNano() {
		t.Fatalf("figures %v", f)
	}
	if c := f.Pods[0].Containers; len(c) != 1 || c[0].Name != "c0" || c[0].Cpu != 500_000_000 || c[0].Memory != 100 {
		t.Errorf("containers %v", c)
	}
	if err := g.machine.SetLoad("uid-a", "c0", 2, 300); err != nil {
		t.Fatal(err)
	}
	if c := g.after(15 * time.Second).Pods[0].Containers; c[0].Cpu != 2_000_000_000 || c[0].Memory != 300 {
		t.Errorf("under load %v", c)
	}
	// Another pod is read at once, so that it needs no two periods.
	g.now = g.now.Add(10 * time.Second)
	g.ask("uid-a", "uid-b")
	if f := g.after(0); f != nil {
		t.Errorf("between two periods: %v", f)
	}
	f = g.after(5 * time.Second)
	if f == nil || len(f.Pods) != 2 || f.Pods[0].WindowNanos != int64(15*time.Second) || f.Pods[1].WindowNanos != int64(5*time.Second) || len(f.Pods[1].Containers) != 2 || f.Pods[1].Containers[1].Cpu != 500_000_000 {
		t.Errorf("figures %v", f)
	}
	g.ask()
	n := g.machine.Calls("Usage")
	if f := g.after(time.Minute); f != nil || g.machine.Calls("Usage") != n {
		t.Errorf("nobody asks any more: %v", f)
	}
}

// What was started anew counts from nothing: its pod is left out until there are two
// readings of it again.
func TestMeasureAfterARestart(t *testing.T) {
	g := newGauged(t, pod("a", "hello:1", "hello:1"))
	g.ask("uid-a")
	g.after(0)
	if f := g.after(15 * time.Second); len(f.Pods) != 1 {
		t.Fatalf("figures %v", f)
	}
	if err := g.machine.Crash("uid-a", "c0", 1); err != nil {
		t.Fatal(err)
	}
	g.Changed("uid-a")
	for g.Step(context.Background()) {
	}
	if f := g.after(15 * time.Second); len(f.Pods) != 0 {
		t.Errorf("a part of a pod is told as the whole: %v", f)
	}
	if f := g.after(15 * time.Second); len(f.Pods) != 1 || len(f.Pods[0].Containers) != 2 {
		t.Errorf("figures %v", f)
	}
}

// A new session asks anew, and an engine that does not answer is asked again.
func TestMeasureOfANewSession(t *testing.T) {
	g := newGauged(t, pod("a"))
	g.ask("uid-a")
	g.after(0)
	g.Begin()
	if f := g.after(15 * time.Second); f != nil {
		t.Errorf("the last session's question is answered in this one: %v", f)
	}
	g.ask("uid-a")
	g.after(0)
	g.broken = errors.New("it does not answer")
	g.now = g.now.Add(15 * time.Second)
	if next, err := g.Measure(context.Background()); err == nil || !next.Equal(g.now.Add(15*time.Second)) {
		t.Errorf("next at %v, %v", next, err)
	}
	g.broken = nil
	if f := g.after(15 * time.Second); f == nil || len(f.Pods) != 1 || f.Pods[0].WindowNanos != int64(30*time.Second) {
		t.Errorf("figures %v", f)
	}
}
