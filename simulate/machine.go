package simulate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
)

// machine is a node's container engine: the scripted one, which takes its time and
// fails, and whose containers end. What a container does is said by its image's
// repository: app runs on, job ends well after a while, crash ends badly at once, bad
// cannot be pulled.
type machine struct {
	*fake.Runtime
	n          *node
	running    map[string]*run // by the container's id
	crashed    map[string]crash
	told       bool // something has changed that the agent may be asked to look for
	agentSince time.Time
}

// run is a container that runs.
type run struct {
	id       string
	uid      types.UID
	pod      string
	name     string
	image    string
	ends     time.Time // zero: it does not end by itself
	code     int32
	stubborn bool
	sole     bool // of a pod whose name is an identity (R10)
}

// crash is a container that has ended badly and should be started again.
type crash struct {
	uid types.UID
	pod string
	at  time.Time
}

func newMachine(n *node) *machine {
	return &machine{
		Runtime: fake.New(fake.Config{Now: time.Now, Missing: func(image string) bool { return strings.HasPrefix(image, "bad:") }, Fail: func(op, subject string) error {
			if op == "Pull" {
				return fmt.Errorf("%s: not found", subject)
			}
			return nil
		}}),
		n: n, running: map[string]*run{}, crashed: map[string]crash{},
	}
}

// slow takes an operation's time, and fails it now and then.
func (m *machine) slow(ctx context.Context, op string) error {
	w := m.n.w
	if w.chance(slowOps) {
		w.fault(m.n.name, "%s is slow", op)
		w.pause(ctx, w.between(100*time.Millisecond, 40*time.Second))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if w.chance(badOps) {
		w.fault(m.n.name, "%s fails", op)
		return errors.New("simulated failure")
	}
	return nil
}

func (m *machine) Events(context.Context) <-chan types.UID { return nil }

func (m *machine) EnsureImage(ctx context.Context, req agent.ImageRequest) (agent.Image, error) {
	if err := m.slow(ctx, "EnsureImage"); err != nil {
		return agent.Image{}, err
	}
	return m.Runtime.EnsureImage(ctx, req)
}

func (m *machine) EnsureSandbox(ctx context.Context, spec agent.SandboxSpec) (agent.SandboxState, error) {
	if err := m.slow(ctx, "EnsureSandbox"); err != nil {
		return agent.SandboxState{}, err
	}
	return m.Runtime.EnsureSandbox(ctx, spec)
}

func (m *machine) StopSandbox(ctx context.Context, uid types.UID) error {
	if err := m.slow(ctx, "StopSandbox"); err != nil {
		return err
	}
	return m.Runtime.StopSandbox(ctx, uid)
}

func (m *machine) RemoveSandbox(ctx context.Context, uid types.UID) error {
	if err := m.slow(ctx, "RemoveSandbox"); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(m.running)) {
		if r := m.running[id]; r.uid == uid {
			m.n.w.rules.stops(m.n, r)
			delete(m.running, id)
		}
	}
	return m.Runtime.RemoveSandbox(ctx, uid)
}

func (m *machine) StartContainer(ctx context.Context, spec agent.ContainerSpec) (agent.ContainerState, error) {
	if err := m.slow(ctx, "StartContainer"); err != nil {
		return agent.ContainerState{}, err
	}
	w := m.n.w
	state, err := m.Runtime.StartContainer(ctx, spec)
	if err != nil || state.Phase != agent.Running || m.running[state.ID] != nil {
		return state, err
	}
	r := &run{id: state.ID, uid: spec.Pod.UID, pod: spec.Pod.Namespace + "/" + spec.Pod.Name, name: spec.Container.Name, image: spec.Container.Image}
	switch repository, _, _ := strings.Cut(r.image, ":"); repository {
	case "job":
		r.ends = time.Now().Add(w.between(time.Second, 60*time.Second))
		if w.chance(badJobs) {
			r.code = 1
		}
	case "crash":
		r.ends, r.code = time.Now().Add(w.between(time.Millisecond, 5*time.Second)), 1
	}
	r.stubborn = w.chance(stubborn)
	r.sole = identity(spec.Pod)
	m.running[r.id] = r
	w.rules.alone(m.n, r)
	delete(m.crashed, string(r.uid)+r.name)
	w.trace.add(m.n.name, "runs %s %s #%d %s", r.pod, r.name, spec.Attempt, r.image)
	return state, nil
}

func (m *machine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	w := m.n.w
	r := m.running[id]
	if r != nil {
		w.rules.stops(m.n, r)
	}
	if err := m.slow(ctx, "StopContainer"); err != nil {
		return err
	}
	if r = m.running[id]; r != nil && r.stubborn {
		w.pause(ctx, grace)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if m.running[id] != nil {
		w.trace.add(m.n.name, "stopped %s %s", r.pod, r.name)
		delete(m.running, id)
	}
	return m.Runtime.StopContainer(ctx, id, grace)
}

// ends makes a container end by itself.
func (m *machine) ends(r *run, code int32) {
	w := m.n.w
	delete(m.running, r.id)
	if err := m.Crash(r.uid, r.name, code); err != nil {
		w.fail("the machine knows what runs", "%s: %v", m.n.name, err)
		return
	}
	w.trace.add(m.n.name, "%s %s ends by itself, code %d", r.pod, r.name, code)
	m.crashed[string(r.uid)+r.name] = crash{uid: r.uid, pod: r.pod, at: time.Now()}
	m.tell(r.uid)
}

func (m *machine) tell(uid types.UID) {
	if m.n.agent != nil {
		m.n.agent.Changed(uid)
		m.told = true
		m.n.takeAt = time.Now()
	}
}

// reboot is a loss of power.
func (m *machine) reboot() {
	m.Reboot()
	clear(m.running)
	clear(m.crashed)
}

func (m *machine) ready(now time.Time, out []choice) []choice {
	for _, r := range m.sorted() {
		if !r.ends.IsZero() && !r.ends.After(now) {
			out = append(out, choice{actor{part: m.n.name + "/machine"}, func() { m.ends(r, r.code) }})
		}
	}
	return out
}

func (m *machine) sorted() []*run {
	out := make([]*run, 0, len(m.running))
	for _, id := range slices.Sorted(maps.Keys(m.running)) {
		out = append(out, m.running[id])
	}
	return out
}

func (m *machine) next(sooner func(time.Time)) {
	for _, r := range m.running {
		sooner(r.ends)
	}
}

// forever says whether what has crashed should be started again, however often.
func forever(pod *corev1.Pod) bool { return pod.Spec.RestartPolicy == corev1.RestartPolicyAlways }
