package agent_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
)

// An agent that one caller steps, with no goroutine and a clock of the caller's:
// the same calls give the same messages (D9).
func TestD9_Stepped(t *testing.T) {
	play := func() (said []string) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		machine := fake.New(fake.Config{Now: func() time.Time { return now }})
		a, err := agent.New(agent.Config{Runtime: machine, Dir: t.TempDir(), Now: func() time.Time { return now }, Boot: func() time.Duration { return 0 },
			Node: func() (*corev1.Node, error) {
				return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		rest := func() {
			for a.Step(ctx) {
			}
			for {
				m, wake, err := a.Take()
				if err != nil {
					t.Fatal(err)
				}
				if m == nil && wake.IsZero() {
					return
				}
				if m == nil {
					now = wake
					continue
				}
				said = append(said, m.String())
			}
		}
		if a.Step(ctx) {
			t.Fatal("a step before what runs is known")
		}
		if err := a.Adopt(ctx); err != nil {
			t.Fatal(err)
		}
		a.Begin()
		for _, m := range []*session.Down{setPod(t, pod("b")), setPod(t, pod("a")), {Message: &session.Down_Synced{Synced: &session.Synced{}}}} {
			if err := a.Receive(m); err != nil {
				t.Fatal(err)
			}
		}
		rest()
		if machine.Calls("StartContainer") != 2 {
			t.Fatal("the pods do not run")
		}
		for range 3 {
			if err := machine.Crash("uid-a", "c0", 1); err != nil {
				t.Fatal(err)
			}
			if err := a.Adopt(ctx); err != nil {
				t.Fatal(err)
			}
			rest()
			if next := a.Next(); !next.IsZero() {
				now = next
				rest()
			}
		}
		if machine.Calls("StartContainer") != 5 {
			t.Fatalf("%d starts", machine.Calls("StartContainer"))
		}
		return said
	}
	one, two := play(), play()
	if !slices.Equal(one, two) {
		t.Fatalf("%q\n%q", one, two)
	}
}

// The server's status counts when the agent's own knowledge is older.
func TestServerRemembersMore(t *testing.T) {
	machine := fake.New(fake.Config{})
	a, err := agent.New(agent.Config{Runtime: machine, Dir: t.TempDir(), Node: func() (*corev1.Node, error) {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := pod("job")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	ran := p.DeepCopy()
	ran.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c0", ContainerID: "containerd://x", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	for _, m := range []*session.Down{setPod(t, p), setPod(t, ran)} {
		if err := a.Receive(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Adopt(context.Background()); err != nil {
		t.Fatal(err)
	}
	for a.Step(context.Background()) {
	}
	if machine.Calls("StartContainer") != 0 {
		t.Fatal("it ran twice")
	}
}

// An answer to an older status does not take a newer one out of the outbox.
func TestOnlyTheNewestAnswerCounts(t *testing.T) {
	machine := fake.New(fake.Config{})
	a, err := agent.New(agent.Config{Runtime: machine, Dir: t.TempDir(), Node: func() (*corev1.Node, error) {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := a.Adopt(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Receive(setPod(t, pod("web"))); err != nil {
		t.Fatal(err)
	}
	newest := func() *session.PodStatus {
		t.Helper()
		for a.Step(ctx) {
		}
		for {
			m, _, err := a.Take()
			if err != nil || m == nil {
				t.Fatal("no status", err)
			}
			if s := m.GetPodStatus(); s != nil {
				return s
			}
		}
	}
	one := newest()
	if err := machine.Crash("uid-web", "c0", 1); err != nil {
		t.Fatal(err)
	}
	if err := a.Adopt(ctx); err != nil {
		t.Fatal(err)
	}
	two := newest()
	answer := func(s *session.PodStatus) {
		t.Helper()
		if err := a.Receive(&session.Down{Message: &session.Down_Stored{Stored: &session.Stored{Namespace: s.Namespace, Name: s.Name, Uid: s.Uid, Sequence: s.Sequence}}}); err != nil {
			t.Fatal(err)
		}
		a.Begin() // what is not stored comes again
	}
	answer(one)
	if again := newest(); again.Sequence != two.Sequence {
		t.Fatalf("sequence %d, want %d", again.Sequence, two.Sequence)
	}
	answer(two)
	for {
		m, wake, err := a.Take()
		if err != nil || m.GetPodStatus() != nil {
			t.Fatal("a stored status was sent again", err)
		}
		if m == nil && wake.IsZero() {
			break
		}
	}
}

func FuzzReceive(f *testing.F) {
	raw, err := pod("web").Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(0, raw, "default", "web")
	f.Add(1, raw, "default", "web")
	f.Add(2, []byte("x"), "", "../x")
	a, err := agent.New(agent.Config{Runtime: fake.New(fake.Config{}), Dir: f.TempDir(), Node: func() (*corev1.Node, error) {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil
	}})
	if err != nil {
		f.Fatal(err)
	}
	if err := a.Adopt(context.Background()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind int, raw []byte, namespace, name string) {
		m := &session.Down{}
		switch kind {
		case 0:
			m.Message = &session.Down_Set{Set: &session.Assignment{Pod: raw}}
		case 1:
			m.Message = &session.Down_Set{Set: &session.Assignment{ConfigMap: raw}}
		case 2:
			m.Message = &session.Down_Set{Set: &session.Assignment{Secret: raw}}
		case 3:
			m.Message = &session.Down_Unset{Unset: &session.ObjectName{Resource: string(raw), Namespace: namespace, Name: name, Uid: name}}
		default:
			m.Message = &session.Down_Stored{Stored: &session.Stored{Namespace: namespace, Name: name, Uid: name}}
		}
		if err := a.Receive(m); err != nil {
			return
		}
		for range 20 {
			if !a.Step(context.Background()) {
				return
			}
		}
	})
}
