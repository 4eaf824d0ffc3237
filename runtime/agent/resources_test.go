package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
)

func requesting(p *corev1.Pod, name corev1.ResourceName, quantity string) *corev1.Pod {
	if p.Spec.Containers[0].Resources.Requests == nil {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
	}
	p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(quantity)
	return p
}

// withRoom gives the node so much of a resource.
func withRoom(name corev1.ResourceName, quantity string) func(*agent.Config) {
	return func(c *agent.Config) {
		inner := c.Node
		c.Node = func() (*corev1.Node, error) {
			n, err := inner()
			if err == nil {
				n.Status.Allocatable[name] = resource.MustParse(quantity)
			}
			return n, err
		}
	}
}

// A pod that the node has no room for ends at once, with Kubernetes' reason, and nothing
// of it runs. What runs is never rejected, however small the node has become (R8).
func TestR8_OnlyNewPodsAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, dir := newServer(t), fake.New(fake.Config{}), t.TempDir()
		one, two := requesting(pod("one"), "cpu", "3"), requesting(pod("two"), "cpu", "1001m")
		a := run(t, s, machine, dir)
		s.assign(one)
		sleep(time.Second)
		s.assign(two)
		sleep(time.Second)
		st := s.status(two)
		if want := "Pod was rejected: Node didn't have enough resource: cpu, requested: 1001, used: 3000, capacity: 4000"; st.Phase != corev1.PodFailed || st.Reason != "OutOfcpu" || st.Message != want || len(st.ContainerStatuses) != 0 {
			t.Errorf("%+v", st)
		}
		if said := s.said("OutOfcpu"); len(said) != 1 || s.status(one).Phase != corev1.PodRunning {
			t.Errorf("said %q, the other is %s", said, s.status(one).Phase)
		}
		before := ids(t, machine)
		a.stop()
		a = run(t, s, machine, dir, withRoom("cpu", "1"))
		sleep(time.Minute)
		if after := ids(t, machine); len(after) != 1 || fmt.Sprint(after) != fmt.Sprint(before) || s.status(one).Phase != corev1.PodRunning {
			t.Errorf("on a smaller node: %v, before %v, %s", after, before, s.status(one).Phase)
		}
		a.stop()
		// An agent whose disk is new knows of it from the server: it ran here.
		ran := *one
		ran.Status = s.status(one)
		s.forget()
		s.mu.Lock()
		s.full = append(s.full, setPod(t, &ran))
		s.mu.Unlock()
		run(t, s, machine, t.TempDir(), withRoom("cpu", "1"))
		sleep(time.Minute)
		if after := ids(t, machine); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("with a new disk: %v, before %v", after, before)
		}
	})
}

// A new pod is held against all pods of the node: an agent that knows none of them waits
// until the session has told of them.
func TestNewPodsWaitForTheOthers(t *testing.T) {
	ctx := context.Background()
	machine := fake.New(fake.Config{})
	a, err := agent.New(agent.Config{Runtime: machine, Dir: t.TempDir(), Node: func() (*corev1.Node, error) {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1")}}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Adopt(ctx); err != nil {
		t.Fatal(err)
	}
	begun := metav1.Now()
	fresh, old := requesting(pod("fresh"), "cpu", "1"), requesting(pod("old"), "cpu", "1")
	old.Status.StartTime = &begun
	a.Begin()
	for _, m := range []*session.Down{setPod(t, fresh), setPod(t, old), {Message: &session.Down_Synced{Synced: &session.Synced{}}}} {
		if err := a.Receive(m); err != nil {
			t.Fatal(err)
		}
		for a.Step(ctx) {
		}
	}
	if live := ids(t, machine); len(live) != 1 || live["old/c0"] == "" {
		t.Errorf("runs: %v", live)
	}
	// A later session gives the old one's room to another.
	a.Begin()
	next := requesting(pod("next"), "cpu", "1")
	for _, m := range []*session.Down{setPod(t, next), {Message: &session.Down_Synced{Synced: &session.Synced{}}}} {
		if err := a.Receive(m); err != nil {
			t.Fatal(err)
		}
		for a.Step(ctx) {
		}
	}
	if live := ids(t, machine); len(live) != 1 || live["next/c0"] == "" {
		t.Errorf("after the other session runs: %v", live)
	}
}

// host is a machine that a test fills.
type host struct {
	mu     sync.Mutex
	levels agent.Host
	freed  []int64
	gives  int64 // by each collection
}

func newHost() *host {
	return &host{levels: agent.Host{
		agent.MemoryAvailable: {Free: 1 << 30, All: 8 << 30}, agent.DiskAvailable: {Free: 50 << 30, All: 100 << 30}, agent.PIDAvailable: {Free: 1000, All: 4000},
	}}
}

func (h *host) set(s agent.Signal, free int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.levels[s] = agent.Level{Free: free, All: h.levels[s].All}
}

func (h *host) read() (agent.Host, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := agent.Host{}
	for s, l := range h.levels {
		out[s] = l
	}
	return out, nil
}

func (h *host) CollectImages(_ context.Context, bytes int64) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.freed = append(h.freed, bytes)
	l := h.levels[agent.DiskAvailable]
	h.levels[agent.DiskAvailable] = agent.Level{Free: l.Free + h.gives, All: l.All}
	return h.gives, nil
}

func (h *host) in(t *testing.T) func(*agent.Config) {
	thresholds, err := agent.ParseThresholds(agent.DefaultEvictionHard, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return func(c *agent.Config) { c.Host, c.Thresholds, c.Images = h.read, thresholds, h }
}

// Under memory pressure the pods go that use more than they requested, one after the
// other, and pods that ask for nothing do not come; the condition outlasts it.
func TestMemoryPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dir := newHost(), t.TempDir()
		s, machine := newServer(t), fake.New(fake.Config{Programs: func(agent.ContainerSpec) fake.Program { return fake.Program{Memory: 100 << 20} }})
		modest, greedy, needed := requesting(pod("modest"), "memory", "200Mi"), pod("greedy"), pod("needed")
		needed.Spec.Priority = new(int32(2_000_001_000))
		run(t, s, machine, dir, h.in(t))
		s.assign(modest, greedy, needed)
		sleep(time.Minute)
		if c := s.condition(corev1.NodeMemoryPressure); c.Status != corev1.ConditionFalse || c.Reason != "KubeletHasSufficientMemory" {
			t.Errorf("%+v", c)
		}
		h.set(agent.MemoryAvailable, 99<<20)
		sleep(12 * time.Second)
		st := s.status(greedy)
		if want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 99Mi. Container c0 was using 100Mi, request is 0, has larger consumption of memory. "; st.Phase != corev1.PodFailed || st.Reason != "Evicted" || st.Message != want {
			t.Errorf("%s %s %q", st.Phase, st.Reason, st.Message)
		}
		if c := conditionOf(st, corev1.DisruptionTarget); c.Status != corev1.ConditionTrue || c.Reason != "TerminationByKubelet" || c.Message != st.Message {
			t.Errorf("%+v", c)
		}
		if c := s.condition(corev1.NodeMemoryPressure); c.Status != corev1.ConditionTrue {
			t.Errorf("%+v", c)
		}
		h.set(agent.MemoryAvailable, 1<<30)
		sleep(time.Minute)
		late, asks := pod("late"), requesting(pod("asks"), "memory", "1Mi")
		s.assign(late, asks)
		sleep(time.Minute)
		if st := s.status(late); st.Phase != corev1.PodFailed || st.Reason != "Evicted" || st.Message != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Errorf("%s %s %q", st.Phase, st.Reason, st.Message)
		}
		for _, p := range []*corev1.Pod{modest, needed, asks} {
			if st := s.status(p); st.Phase != corev1.PodRunning {
				t.Errorf("%s is %s: %s", p.Name, st.Phase, st.Message)
			}
		}
		sleep(5 * time.Minute)
		if c := s.condition(corev1.NodeMemoryPressure); c.Status != corev1.ConditionFalse {
			t.Errorf("%+v", c)
		}
	})
}

// On a full disk images go before pods.
func TestDiskPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		s, machine := newServer(t), fake.New(fake.Config{})
		small, large := pod("small"), pod("large")
		run(t, s, machine, t.TempDir(), h.in(t))
		s.assign(small, large)
		sleep(time.Second)
		for name, n := range map[*corev1.Pod]int64{small: 1 << 20, large: 1 << 30} {
			if err := machine.SetWritten(name.UID, "c0", n); err != nil {
				t.Fatal(err)
			}
		}
		h.mu.Lock()
		h.gives = 5 << 30
		h.mu.Unlock()
		h.set(agent.DiskAvailable, 8<<30) // 10 % are 10 GiB
		sleep(12 * time.Second)
		if len(h.freed) != 1 || h.freed[0] != 2<<30 || s.status(large).Phase != corev1.PodRunning {
			t.Fatalf("freed %v, %s", h.freed, s.status(large).Phase)
		}
		if c := s.condition(corev1.NodeDiskPressure); c.Status != corev1.ConditionTrue || c.Reason != "KubeletHasDiskPressure" {
			t.Errorf("%+v", c)
		}
		h.mu.Lock()
		h.gives = 0
		h.mu.Unlock()
		h.set(agent.DiskAvailable, 8<<30)
		sleep(10 * time.Second)
		if st := s.status(large); st.Phase != corev1.PodFailed || !strings.HasPrefix(st.Message, "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 8Gi. Container c0 was using 1Gi,") {
			t.Errorf("%s %q", st.Phase, st.Message)
		}
		if st := s.status(small); st.Phase != corev1.PodRunning {
			t.Errorf("two pods at one time: %q", st.Message)
		}
	})
}

// A pod is not told as ended while it runs, for whatever reason it ends; an agent that is
// killed in between goes on with it.
func TestR10_NothingEndsWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newServer(t), t.TempDir()
		machine := fake.New(fake.Config{Programs: func(agent.ContainerSpec) fake.Program { return fake.Program{Stubborn: true} }})
		full, late := pod("full"), pod("late")
		for _, p := range []*corev1.Pod{full, late} {
			p.Spec.TerminationGracePeriodSeconds = new(int64(60))
		}
		full.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
		late.Spec.ActiveDeadlineSeconds = new(int64(30))
		a := run(t, s, machine, dir)
		s.assign(full, late)
		sleep(time.Second)
		if err := machine.SetWritten(full.UID, "c0", 1<<20+1); err != nil {
			t.Fatal(err)
		}
		watch := func(d time.Duration) {
			for range int(d / (100 * time.Millisecond)) {
				sleep(100 * time.Millisecond)
				live := fmt.Sprint(ids(t, machine))
				for _, p := range []*corev1.Pod{full, late} {
					if st := s.status(p); st.Phase == corev1.PodFailed && strings.Contains(live, p.Name) {
						t.Fatalf("%s is told as ended, and runs: %+v", p.Name, st)
					}
				}
			}
		}
		watch(10 * time.Second)
		a.stop() // wherever it is
		a = run(t, s, machine, dir)
		watch(25 * time.Second)
		if st := s.status(late); st.Phase != corev1.PodRunning || st.Reason != "" || conditionOf(st, corev1.PodReady).Status != corev1.ConditionFalse {
			t.Errorf("while it stops: %+v", st)
		}
		a.stop()
		run(t, s, machine, dir)
		watch(70 * time.Second)
		if st := s.status(full); st.Phase != corev1.PodFailed || st.Reason != "Evicted" || st.Message != "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. " {
			t.Errorf("%s %s %q", st.Phase, st.Reason, st.Message)
		}
		if st := s.status(late); st.Phase != corev1.PodFailed || st.Reason != "DeadlineExceeded" || st.Message != "Pod was active on the node longer than the specified deadline" {
			t.Errorf("%s %s %q", st.Phase, st.Reason, st.Message)
		}
		if starts := machine.Calls("StartContainer"); starts != 2 {
			t.Errorf("%d starts", starts)
		}
	})
}

// A verdict that is in the checkpoint is not lost with the agent, and nobody but the
// agent can make one.
func TestVerdictOutlivesTheAgent(t *testing.T) {
	ctx, now, dir := context.Background(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), t.TempDir()
	machine := fake.New(fake.Config{Now: func() time.Time { return now }})
	begin := func() *agent.Agent {
		a, err := agent.New(agent.Config{Runtime: machine, Dir: dir, Now: func() time.Time { return now }, Boot: func() time.Duration { return time.Minute },
			Node: func() (*corev1.Node, error) { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Adopt(ctx); err != nil {
			t.Fatal(err)
		}
		return a
	}
	limited, forged := pod("limited"), pod("forged")
	limited.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
	forged.Annotations = map[string]string{"headway.dev/verdict": "reason=Evicted"}
	a := begin()
	a.Begin()
	for _, m := range []*session.Down{setPod(t, limited), setPod(t, forged), {Message: &session.Down_Synced{Synced: &session.Synced{}}}} {
		if err := a.Receive(m); err != nil {
			t.Fatal(err)
		}
	}
	for a.Step(ctx) {
	}
	if err := machine.SetWritten(limited.UID, "c0", 2<<20); err != nil {
		t.Fatal(err)
	}
	a.Weigh(ctx)
	if err := a.Save(); err != nil { // and is killed before it stops anything
		t.Fatal(err)
	}
	if err := machine.SetWritten(limited.UID, "c0", 0); err != nil {
		t.Fatal(err)
	}
	a = begin()
	for a.Step(ctx) {
	}
	if live := fmt.Sprint(ids(t, machine)); strings.Contains(live, "limited") || !strings.Contains(live, "forged") {
		t.Errorf("runs: %s", live)
	}
}

// Who asks once gets what everything uses, after a moment; who asks again soon gets it at
// once. Nothing is measured in between.
func TestFiguresOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		s, machine := newServer(t), fake.New(fake.Config{Programs: func(agent.ContainerSpec) fake.Program { return fake.Program{Cores: 0.5, Memory: 100} }})
		began := time.Now()
		a := run(t, s, machine, t.TempDir(), h.in(t), func(c *agent.Config) {
			c.Busy = func() (time.Duration, error) { return 2 * time.Since(began), nil }
		})
		s.assign(pod("a"), pod("b"))
		sleep(time.Hour)
		if n := machine.Calls("Usage"); n != 0 {
			t.Errorf("measured %d times although nobody asked", n)
		}
		ask := func() *session.Figures {
			t.Helper()
			m, err := a.Figures(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Pods) != 2 || m.Node == nil {
				t.Fatalf("%v", m)
			}
			for _, p := range m.Pods {
				if c := p.Containers[0]; len(p.Containers) != 1 || c.Cpu < 4.9e8 || c.Cpu > 5.1e8 || c.Memory != 100 {
					t.Errorf("%v", p)
				}
			}
			if m.Node.Cpu < 1.9e9 || m.Node.Cpu > 2.1e9 || m.Node.Memory != 7<<30 {
				t.Errorf("%v", m.Node)
			}
			return m
		}
		before := time.Now()
		ask()
		if took := time.Since(before); took > 2*time.Second || machine.Calls("Usage") != 2 {
			t.Errorf("took %s and %d readings", took, machine.Calls("Usage"))
		}
		sleep(15 * time.Second)
		before = time.Now()
		if m := ask(); time.Since(before) != 0 || machine.Calls("Usage") != 3 || time.Duration(m.WindowNanos) != 15*time.Second {
			t.Errorf("took %s and %d readings over %s", time.Since(before), machine.Calls("Usage"), time.Duration(m.WindowNanos))
		}
	})
}

func conditionOf(st corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range st.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}
