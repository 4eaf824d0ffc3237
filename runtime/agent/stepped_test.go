package agent_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
)

// Who steps an agent tells it what the engine's events would, and has its checkpoint
// written (D9).
func TestD9_SteppedEventsAndCheckpoint(t *testing.T) {
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
	work := func(a *agent.Agent) {
		for a.Step(ctx) {
		}
	}
	a := begin()
	a.Begin()
	for _, m := range []*session.Down{
		{Message: &session.Down_Renewed{Renewed: &session.Renewed{Sent: int64(time.Minute), TtlNanos: int64(40 * time.Second)}}},
		setPod(t, pod("a")), {Message: &session.Down_Synced{Synced: &session.Synced{}}},
	} {
		if err := a.Receive(m); err != nil {
			t.Fatal(err)
		}
	}
	if want := time.Minute + 40*time.Second - agent.Margin; a.Right() != want {
		t.Errorf("the right ends at %v, want %v", a.Right(), want)
	}
	work(a)
	if err := machine.Crash("uid-a", "c0", 1); err != nil {
		t.Fatal(err)
	}
	if a.Step(ctx) {
		t.Error("it knows of the crash by itself")
	}
	a.Changed("uid-a")
	work(a)
	if n := machine.Calls("StartContainer"); n != 2 {
		t.Errorf("%d starts after a crash that it was told of, want 2", n)
	}
	if asked, err := a.Survey(ctx); asked || err != nil {
		t.Errorf("a look at everything: %v, %v", asked, err)
	}
	a.Changed("uid-unknown")
	if asked, err := a.Survey(ctx); !asked || err != nil {
		t.Errorf("no look at everything after news of an unknown pod: %v, %v", asked, err)
	}
	if err := a.Save(); err != nil {
		t.Fatal(err)
	}
	if err := machine.Crash("uid-a", "c0", 1); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	work(begin()) // without a server: from the checkpoint
	if n := machine.Calls("StartContainer"); n != 3 {
		t.Errorf("%d starts by an agent with a saved checkpoint, want 3", n)
	}
}
