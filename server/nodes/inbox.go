package nodes

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
)

// inbox holds what the agent has sent and the store has not taken: of each pod
// the newest status.
type inbox struct {
	mu     sync.Mutex
	pods   map[types.UID]*session.PodStatus
	order  []types.UID
	facts  *corev1.Node
	usage  *session.Figures // the newest
	ended  []*session.VolumeGone
	events [][]byte
	tokens []*session.TokenRequest
}

func newInbox() inbox { return inbox{pods: map[types.UID]*session.PodStatus{}} }

func (b *inbox) status(m *session.PodStatus) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := types.UID(m.Uid)
	if b.pods[uid] == nil {
		if len(b.order) >= session.MaxHeld {
			return false
		}
		b.order = append(b.order, uid)
	}
	b.pods[uid] = m
	return true
}

func (b *inbox) node(n *corev1.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.facts = n
}

func (b *inbox) measured(m *session.Figures) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.usage = m
}

// takeFigures takes the newest figures; nil when there are none.
func (b *inbox) takeFigures() *session.Figures {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.usage
	b.usage = nil
	return m
}

// token puts a request for a token in; false when too many wait.
func (b *inbox) token(m *session.TokenRequest) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.tokens) >= maxTokens {
		return false
	}
	b.tokens = append(b.tokens, m)
	return true
}

// takeToken takes the oldest request for a token; nil when there is none.
func (b *inbox) takeToken() *session.TokenRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.tokens) == 0 {
		return nil
	}
	m := b.tokens[0]
	b.tokens = b.tokens[1:]
	return m
}

// gone is false when there are too many.
func (b *inbox) gone(m *session.VolumeGone) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ended) >= session.MaxGone {
		return false
	}
	b.ended = append(b.ended, m)
	return true
}

// takeGone takes the volumes that the agent is done with.
func (b *inbox) takeGone() []*session.VolumeGone {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.ended
	b.ended = nil
	return out
}

func (b *inbox) event(raw []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) >= maxEvents {
		b.events = b.events[1:]
	}
	b.events = append(b.events, raw)
}

// take returns the most urgent work: statuses, else the node, else events.
func (b *inbox) take(most int) (statuses []*session.PodStatus, facts *corev1.Node, events [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := min(most, len(b.order)); n > 0 {
		for _, uid := range b.order[:n] {
			statuses = append(statuses, b.pods[uid])
			delete(b.pods, uid)
		}
		b.order = b.order[n:]
		return statuses, nil, nil
	}
	if b.facts != nil {
		facts, b.facts = b.facts, nil
		return nil, facts, nil
	}
	n := min(most, len(b.events))
	events, b.events = b.events[:n], b.events[n:]
	return nil, nil, events
}
