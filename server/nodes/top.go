package nodes

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
)

const (
	topLives = 10 * time.Second // an answer is good for whoever asks within
	topWait  = 5 * time.Second  // for an agent to answer
	maxTop   = 1 << 20          // bytes of an answer
)

// top is one question to a node, which all that ask meanwhile share.
type top struct {
	done    chan struct{} // closed when there is an answer
	at      time.Time     // of the answer
	figures Top
	err     error
}

// Top says what a node and its pods use.
type Top struct {
	Time   time.Time // by the node's clock
	Window time.Duration
	Node   *Amount // nil: its agent does not know
	Pods   map[types.UID]PodTop
}

// PodTop says what the containers of a pod use that run.
type PodTop struct {
	Window     time.Duration
	Containers map[string]Amount
}

// Amount of the processors, in billionths of one, and of memory, in bytes.
type Amount struct{ CPU, Memory int64 }

// Figures asks a node what it and its pods use. Nothing is measured while nobody asks;
// an answer serves everybody who asks within topLives.
func (n *Nodes) Figures(ctx context.Context, node string) (Top, error) {
	n.mu.Lock()
	t := n.tops[node]
	if t != nil {
		select {
		case <-t.done:
			if t.err != nil || n.now().Sub(t.at) >= topLives {
				t = nil
			}
		default: // somebody is asking
		}
	}
	if t == nil && n.closed {
		n.mu.Unlock()
		return Top{}, errClosing
	}
	if t == nil {
		t = &top{done: make(chan struct{})}
		n.tops[node] = t
		others := context.WithoutCancel(ctx) // who may wait for the same answer
		n.running.Go(func() { n.answer(others, node, t) })
	}
	n.mu.Unlock()
	select {
	case <-t.done:
		return t.figures, t.err
	case <-ctx.Done():
		return Top{}, ctx.Err()
	}
}

// answer asks a node and tells all that wait.
func (n *Nodes) answer(ctx context.Context, node string, t *top) {
	ctx, cancel := context.WithTimeout(ctx, topWait)
	defer cancel()
	figures, err := n.askFigures(ctx, node)
	n.mu.Lock()
	defer n.mu.Unlock()
	t.figures, t.err, t.at = figures, err, n.now()
	if err != nil && n.tops[node] == t {
		delete(n.tops, node)
	}
	close(t.done)
}

func (n *Nodes) askFigures(ctx context.Context, node string) (Top, error) {
	r, err := n.open(ctx, node, &session.Open{Figures: &session.FiguresRequest{}})
	if err != nil {
		return Top{}, err
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(r, maxTop+1))
	if err != nil {
		return Top{}, fmt.Errorf("what node %s uses: %w", node, err)
	}
	return readTop(raw, node, n.cfg.Store.OnNode(node))
}

// readTop reads an agent's answer: of pods of its node, and of containers that they have.
func readTop(raw []byte, node string, pods []*corev1.Pod) (Top, error) {
	if len(raw) > maxTop {
		return Top{}, fmt.Errorf("what node %s uses: the answer has more than %d bytes", node, maxTop)
	}
	var m session.Figures
	if err := proto.Unmarshal(raw, &m); err != nil {
		return Top{}, fmt.Errorf("what node %s uses: decode the answer: %w", node, err)
	}
	t := Top{Time: time.Unix(0, m.TimeNanos), Window: time.Duration(m.WindowNanos), Pods: map[types.UID]PodTop{}}
	if m.Node != nil && m.Node.Cpu >= 0 && m.Node.Memory >= 0 {
		t.Node = &Amount{CPU: m.Node.Cpu, Memory: m.Node.Memory}
	}
	known := map[types.UID]map[string]bool{}
	for _, pod := range pods {
		known[pod.UID] = containerNames(pod)
	}
	for _, p := range m.Pods {
		names := known[types.UID(p.Uid)]
		out := PodTop{Window: time.Duration(p.WindowNanos), Containers: map[string]Amount{}}
		for _, c := range p.Containers {
			if names[c.Name] && c.Cpu >= 0 {
				out.Containers[c.Name] = Amount{CPU: c.Cpu, Memory: max(c.Memory, 0)}
			}
		}
		if len(out.Containers) > 0 && out.Window > 0 {
			t.Pods[types.UID(p.Uid)] = out
		}
	}
	return t, nil
}
