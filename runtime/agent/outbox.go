package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
)

const (
	lazyWait  = 150 * time.Millisecond
	maxEvents = 500 // that wait to be sent; the oldest goes first
)

// outbox holds what the server has to learn: of each pod the newest status until
// it is stored, the Node if it changed, and events.
type outbox struct {
	pods     map[types.UID]*letter
	unsent   []types.UID // in the order of their first change
	sequence int64
	node     *corev1.Node
	routed   int64            // revision that the node's traffic goes by
	told     int64            // revision that the server knows of
	figures  *session.Figures // the newest
	gone     []*session.VolumeGone
	events   []*corev1.Event
	lost     int // events that found no room
}

// letter is the newest status of one pod.
type letter struct {
	message *session.PodStatus
	status  corev1.PodStatus
	sent    bool
	after   time.Time // not before; zero: at once
}

func newOutbox() outbox { return outbox{pods: map[types.UID]*letter{}} }

// status puts a pod's newest status in. A lazy one waits a little for a better
// one to take its place.
func (b *outbox) status(pod *corev1.Pod, status *corev1.PodStatus, stopped, lazy bool, now time.Time) {
	b.sequence++
	l := b.pods[pod.UID]
	waiting := l != nil && !l.sent
	next := &letter{status: *status, message: &session.PodStatus{
		Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID), Stopped: stopped, Sequence: b.sequence,
	}}
	if lazy {
		next.after = now.Add(lazyWait)
		if waiting { // it does not wait longer for being replaced
			next.after = l.after
		}
	}
	b.pods[pod.UID] = next
	if !waiting {
		b.unsent = append(b.unsent, pod.UID)
	}
}

// stored notes that the server has a status.
func (b *outbox) stored(uid types.UID, sequence int64) {
	if l := b.pods[uid]; l != nil && l.message.Sequence == sequence {
		b.drop(uid)
	}
}

func (b *outbox) drop(uid types.UID) { delete(b.pods, uid) }

// again has everything that is not known to be stored sent again.
func (b *outbox) again() {
	b.routed, b.told, b.figures, b.gone = 0, 0, nil, nil
	queued := make(map[types.UID]bool, len(b.unsent))
	for _, uid := range b.unsent {
		queued[uid] = true
	}
	for _, uid := range sortedKeys(b.pods) {
		b.pods[uid].sent = false
		if !queued[uid] {
			b.unsent = append(b.unsent, uid)
		}
	}
}

// route notes how far the node's traffic is.
func (b *outbox) route(revision int64) { b.routed = revision }

func (b *outbox) event(e *corev1.Event) {
	if len(b.events) >= maxEvents {
		b.events = b.events[1:]
		b.lost++
	}
	b.events = append(b.events, e)
}

// final says that the pod does not run any more.
func (l *letter) final() bool { return l.message.Stopped || terminal(l.status.Phase) }

// next takes the next message out; nil with a time asks to be called again then,
// nil without one when something is put in. That a pod has ended is not said before
// the checkpoint has it (R10).
func (b *outbox) next(now time.Time, written func(types.UID) bool) (*session.Up, time.Time, error) {
	var wake time.Time
	kept := b.unsent[:0:0]
	for i, uid := range b.unsent {
		l := b.pods[uid]
		if l == nil || l.sent {
			continue
		}
		after := l.after
		if !after.After(now) && l.final() && !written(uid) {
			after = now.Add(checkpointWait)
		}
		if after.After(now) {
			kept = append(kept, uid)
			if wake.IsZero() || after.Before(wake) {
				wake = after
			}
			continue
		}
		b.unsent = append(kept, b.unsent[i+1:]...)
		raw, err := l.status.Marshal()
		if err != nil {
			return nil, time.Time{}, err
		}
		l.message.Status, l.sent = raw, true
		return &session.Up{Message: &session.Up_PodStatus{PodStatus: l.message}}, time.Time{}, nil
	}
	b.unsent = kept
	if b.routed > b.told {
		b.told = b.routed
		return &session.Up{Message: &session.Up_Routed{Routed: &session.Routed{Revision: b.routed}}}, time.Time{}, nil
	}
	if len(b.gone) > 0 {
		m := b.gone[0]
		b.gone = b.gone[1:]
		return &session.Up{Message: &session.Up_VolumeGone{VolumeGone: m}}, time.Time{}, nil
	}
	if b.node != nil {
		raw, err := b.node.Marshal()
		if err != nil {
			return nil, time.Time{}, err
		}
		b.node = nil
		return &session.Up{Message: &session.Up_NodeStatus{NodeStatus: raw}}, time.Time{}, nil
	}
	if f := b.figures; f != nil {
		b.figures = nil
		return &session.Up{Message: &session.Up_Figures{Figures: f}}, time.Time{}, nil
	}
	if len(b.events) > 0 {
		raw, err := b.events[0].Marshal()
		if err != nil {
			return nil, time.Time{}, err
		}
		b.events = b.events[1:]
		return &session.Up{Message: &session.Up_Event{Event: raw}}, time.Time{}, nil
	}
	return nil, wake, nil
}
