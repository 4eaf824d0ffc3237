package containerd

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

// sandbox is what we know of a pod. Guarded by Runtime.mu.
type sandbox struct {
	record     sandboxRecord
	ready      bool
	containers map[string]*container
}

// container is what we know of one attempt. Guarded by Runtime.mu, but for the
// channels.
type container struct {
	state      agent.ContainerState
	record     containerRecord
	stopSignal string
	message    messageRule
	started    bool          // its start was asked for: an exit counts
	oom        bool          // containerd told us that the kernel killed in it
	dead       chan struct{} // closed when it is Exited
	over       chan struct{} // closed when its task is deleted and its output written
	cleaning   bool
}

func newContainer(state agent.ContainerState) *container {
	return &container{state: state, message: messageRule{limit: maxMessage}, dead: make(chan struct{}), over: make(chan struct{})}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// List is agent.Runtime's: it answers from the mirror.
func (r *Runtime) List(_ context.Context, uids ...types.UID) ([]agent.SandboxState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []agent.SandboxState{}
	if len(uids) > 0 {
		for _, uid := range uids {
			if sb := r.sandboxes[uid]; sb != nil {
				out = append(out, r.stateOf(sb))
			}
		}
	} else {
		for _, sb := range r.sandboxes {
			out = append(out, r.stateOf(sb))
		}
	}
	slices.SortFunc(out, func(a, b agent.SandboxState) int { return cmp.Compare(a.UID, b.UID) })
	return out, nil
}

// stateOf copies what is known. Without a connection, what ran is Unknown.
func (r *Runtime) stateOf(sb *sandbox) agent.SandboxState {
	s := agent.SandboxState{
		UID: sb.record.UID, Namespace: sb.record.Namespace, Name: sb.record.Name,
		Ready: sb.ready, Made: sb.record.Made, IPs: slices.Clone(sb.record.IPs), CreatedAt: sb.record.CreatedAt,
		Containers: []agent.ContainerState{},
	}
	for _, c := range sb.containers {
		state := c.state
		state.Signalled = c.record.Signalled
		if !r.connected && state.Phase != agent.Exited {
			state.Phase = agent.Unknown
		}
		s.Containers = append(s.Containers, state)
	}
	slices.SortFunc(s.Containers, func(a, b agent.ContainerState) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt))
	})
	return s
}

// find returns a container and its pod. The caller holds mu.
func (r *Runtime) find(id string) (types.UID, *container) {
	uid, ok := r.owners[id]
	if !ok {
		return "", nil
	}
	sb := r.sandboxes[uid]
	if sb == nil {
		return "", nil
	}
	return uid, sb.containers[id]
}

// listener is one caller of Events.
type listener struct {
	pending map[types.UID]struct{}
	wake    chan struct{}
}

// Events is agent.Runtime's. Events of one pod that nobody took yet are one.
func (r *Runtime) Events(ctx context.Context) <-chan types.UID {
	l := &listener{pending: map[types.UID]struct{}{}, wake: make(chan struct{}, 1)}
	r.mu.Lock()
	r.listeners[l] = struct{}{}
	r.mu.Unlock()
	out := make(chan types.UID)
	r.group.Go(func() {
		defer close(out)
		defer func() {
			r.mu.Lock()
			delete(r.listeners, l)
			r.mu.Unlock()
		}()
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.wake:
			}
			for _, uid := range r.take(l) {
				select {
				case <-ctx.Done():
					return
				case out <- uid:
				}
			}
		}
	})
	return out
}

func (r *Runtime) take(l *listener) []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	uids := make([]types.UID, 0, len(l.pending))
	for uid := range l.pending {
		uids = append(uids, uid)
	}
	clear(l.pending)
	slices.Sort(uids)
	return uids
}

// notify says that a pod may have changed; "": everything. The caller holds mu.
func (r *Runtime) notify(uid types.UID) {
	for l := range r.listeners {
		l.pending[uid] = struct{}{}
		select {
		case l.wake <- struct{}{}:
		default: // it is awake already
		}
	}
}

// undoTime bounds what must be finished though the caller has gone.
const undoTime = 30 * time.Second

// undo is the context for it.
func undo(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTime)
}
