package fake

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// listener is one reader of Events; what it has not taken yet is kept, each uid
// once.
type listener struct {
	pending []types.UID
	wake    chan struct{}
}

// Events implements agent.Runtime.
func (r *Runtime) Events(ctx context.Context) <-chan types.UID {
	out := make(chan types.UID)
	l := &listener{wake: make(chan struct{}, 1)}
	r.mu.Lock()
	r.listeners[l] = true
	r.mu.Unlock()
	go func() {
		defer close(out)
		defer func() {
			r.mu.Lock()
			delete(r.listeners, l)
			r.mu.Unlock()
		}()
		for {
			r.mu.Lock()
			uids := l.pending
			l.pending = nil
			r.mu.Unlock()
			for _, uid := range uids {
				select {
				case out <- uid:
				case <-ctx.Done():
					return
				}
			}
			if len(uids) > 0 {
				continue
			}
			select {
			case <-l.wake:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// tell notes a change for every listener.
func (r *Runtime) tell(uid types.UID) {
	for l := range r.listeners {
		if !slices.Contains(l.pending, uid) {
			l.pending = append(l.pending, uid)
		}
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}
