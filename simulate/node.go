package simulate

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/server/nodes"
)

const (
	agentResync = 5 * time.Minute
	saveWithin  = 500 * time.Millisecond // of a change: the checkpoint's own delay
)

// node is a machine and the agent on it.
type node struct {
	w       *World
	name    string
	facts   *corev1.Node
	machine *machine
	volumes *fake.Volumes

	agent   *agent.Agent // nil: it does not run
	life    context.Context
	stop    context.CancelFunc
	startAt time.Time // when it is started again
	cut     bool      // no server can be reached

	link       *link
	dialAt     time.Time
	dialled    time.Time
	redial     time.Duration
	renewAt    time.Time
	unanswered int
	adoptAt    time.Time
	upkeepAt   time.Time // of the volumes that outlive their pods
	takeAt     time.Time // when the outbox is looked at again
	saveAt     time.Time // when the checkpoint is written; zero: nothing has changed
}

func newNode(w *World, i int) *node {
	name := fmt.Sprintf("n%d", i+1)
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("12")}
	n := &node{w: w, name: name, facts: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", i+1)}},
		},
	}}
	n.machine, n.volumes = newMachine(n), fake.NewVolumes("/persistent")
	n.startAt = time.Now().Add(w.between(0, 3*time.Second))
	return n
}

// boot starts the agent.
func (n *node) boot() {
	w := n.w
	began := w.trace.began
	a, err := agent.New(agent.Config{
		Runtime: n.machine, Volumes: n.volumes, Node: func() (*corev1.Node, error) { return n.facts.DeepCopy(), nil },
		Workers: 1000, // the engine's delays are the machine's business, and nobody may wait for another
		Dir:     filepath.Join(w.opts.Dir, n.name), Now: time.Now, Boot: func() time.Duration { return time.Since(began) }, Log: w.log(n.name),
	})
	if err != nil {
		w.fail("an agent starts", "%s: %v", n.name, err)
		return
	}
	n.life, n.stop = context.WithCancel(context.Background())
	n.agent, n.link, n.redial = a, nil, 0
	n.adoptAt, n.dialAt, n.takeAt, n.upkeepAt = time.Now(), time.Now(), time.Now(), time.Now()
	n.machine.agentSince = time.Now()
	w.trace.add(n.name, "agent starts")
}

// kill ends the agent at once. What runs, runs on.
func (n *node) kill() {
	if n.agent == nil {
		return
	}
	if l := n.link; l != nil {
		n.link = nil
		l.agentGone = true
	}
	n.stop()
	if n.w.rand.IntN(2) == 0 { // else what the checkpoint had not written yet is lost
		n.save()
	}
	n.agent, n.saveAt = nil, time.Time{}
}

func (n *node) receive(m *session.Down) {
	if err := n.agent.Receive(m); err != nil {
		n.w.fail("agents understand servers", "%s: %v", n.name, err)
	}
	n.takeAt, n.upkeepAt = time.Now(), time.Now()
	n.changed()
}

// changed has the checkpoint written soon.
func (n *node) changed() {
	if n.saveAt.IsZero() {
		n.saveAt = time.Now().Add(saveWithin)
	}
}

func (n *node) save() {
	n.saveAt = time.Time{}
	if err := n.agent.Save(); err != nil {
		n.w.fail("a checkpoint is written", "%s: %v", n.name, err)
	}
}

// ready adds what can happen on the node now.
func (n *node) ready(now time.Time, out []choice) []choice {
	add := func(part string, do func()) { out = append(out, choice{actor{part: n.name + "/" + part}, do}) }
	out = n.machine.ready(now, out)
	if n.agent == nil {
		if !n.startAt.IsZero() && !n.startAt.After(now) {
			add("agent", n.boot)
		}
		return out
	}
	if !n.adoptAt.After(now) {
		add("adopt", func() {
			n.adoptAt = time.Now().Add(agentResync)
			if err := n.agent.Adopt(n.life); err != nil {
				n.adoptAt = time.Now().Add(time.Second)
			}
			n.takeAt = time.Now()
		})
	}
	if n.machine.told {
		add("survey", func() {
			n.machine.told = false
			if asked, err := n.agent.Survey(n.life); asked && err != nil {
				n.adoptAt = time.Now().Add(time.Second)
			}
			n.takeAt = time.Now()
		})
	}
	if next := n.agent.Next(); !next.IsZero() && !next.After(now) && n.agentReady() {
		add("pods", func() {
			a := n.agent
			n.w.start(func() { a.Step(n.life) })
			n.changed()
			n.takeAt = time.Now()
		})
	}
	if !n.upkeepAt.After(now) {
		add("upkeep", func() {
			if n.upkeepAt = n.agent.Upkeep(n.life); n.upkeepAt.IsZero() {
				n.upkeepAt = time.Now().Add(agentResync)
			}
			n.takeAt = time.Now()
		})
	}
	if !n.saveAt.IsZero() && !n.saveAt.After(now) {
		add("checkpoint", n.save)
	}
	return n.wire(now, out)
}

// agentReady says whether the agent knows what runs: before that it takes no step.
func (n *node) agentReady() bool { return n.adoptAt.After(n.machine.agentSince) }

// wire adds what the agent's side of the session can do.
func (n *node) wire(now time.Time, out []choice) []choice {
	add := func(do func()) { out = append(out, choice{actor{part: n.name + "/session"}, do}) }
	l := n.link
	if l == nil {
		if !n.dialAt.After(now) {
			add(n.connect)
		}
		return out
	}
	if n.cut { // nothing passes; each side finds out for itself
		if now.Sub(n.dialled) > greeting && !l.welcomed || n.unanswered >= 2 && !n.renewAt.After(now) {
			add(func() { l.dropAgent("the server does not answer") })
			return out
		}
	} else if len(l.down) > 0 {
		add(func() { n.hear(l) })
	} else if l.serverGone {
		add(func() { l.dropAgent("the server has ended it") })
		return out
	}
	if !l.welcomed {
		if now.Sub(n.dialled) > greeting {
			add(func() { l.drop("the server did not answer in time") })
		}
		return out
	}
	if !n.takeAt.After(now) {
		add(func() { n.speak(l) })
	}
	if !n.renewAt.After(now) {
		add(func() {
			if n.unanswered >= 2 {
				l.dropAgent("the server does not answer renewals")
				return
			}
			n.unanswered++
			n.renewAt = time.Now().Add(nodes.DefaultTTL / 4)
			n.send(l, &session.Up{Message: &session.Up_Renew{Renew: &session.Renew{Sent: int64(time.Since(n.w.trace.began))}}})
		})
	}
	return out
}

func (n *node) connect() {
	var up []*server
	for _, s := range n.w.servers {
		if s.up && s.loaded && !s.halted.After(time.Now()) {
			up = append(up, s)
		}
	}
	if n.cut || len(up) == 0 {
		n.redial = min(max(2*n.redial, redialFirst), redialMost)
		n.dialAt = time.Now().Add(n.w.between(n.redial/2, n.redial))
		return
	}
	n.dial(up[n.w.rand.IntN(len(up))])
}

// hear takes in one message of the server.
func (n *node) hear(l *link) {
	m := l.down[0]
	l.down = l.down[1:]
	switch {
	case m.GetWelcome() != nil:
		l.welcomed, n.redial, n.unanswered = true, 0, 0
		n.renewAt = time.Now().Add(nodes.DefaultTTL / 4)
		n.agent.Begin()
		n.takeAt = time.Now()
		return
	case m.GetRenewed() != nil:
		n.unanswered = 0
	}
	n.receive(m)
}

// speak sends one message of the outbox.
func (n *node) speak(l *link) {
	m, wake, err := n.agent.Take()
	switch {
	case err != nil:
		n.w.fail("agents can say what they have to", "%s: %v", n.name, err)
	case m != nil:
		n.send(l, m)
	case wake.IsZero():
		n.takeAt = time.Now().Add(time.Hour) // until something is put in
	default:
		n.takeAt = wake
	}
}

// send leaves a message to the connection, which keeps it while nothing passes, as
// TCP does: it is lost with the session and not before.
func (n *node) send(l *link, m *session.Up) {
	if !l.serverGone {
		l.up = append(l.up, m)
	}
}

func (n *node) next(sooner func(time.Time)) {
	n.machine.next(sooner)
	if n.agent == nil {
		sooner(n.startAt)
		return
	}
	sooner(n.adoptAt)
	sooner(n.upkeepAt)
	sooner(n.saveAt)
	if n.agentReady() {
		sooner(n.agent.Next())
	}
	if n.link == nil {
		sooner(n.dialAt)
		return
	}
	if !n.link.welcomed {
		sooner(n.dialled.Add(greeting + time.Millisecond))
		return
	}
	sooner(n.renewAt)
	sooner(n.takeAt)
}
