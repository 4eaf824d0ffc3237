package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// place decides about the pods and writes that in one transaction. A pod that
// changed meanwhile is left out and the others are decided anew, since the room
// meant for it is free; an Event that cannot be written holds nothing up.
func (s *scheduler) place(ctx context.Context, nodes []*nodeInfo, pods []*corev1.Pod, epoch uint64) error {
	events := true
	first := store.KeyOf(pods[0])
	var left error // why the first pod, whose turn it is, was left out
	for {
		decisions := plan(nodes, pods)
		t := s.transaction(decisions, events)
		var err error
		if len(t.Ops) > 0 {
			_, err = s.Store.Commit(ctx, t)
		}
		if err == nil {
			return cmp.Or(left, s.settle(ctx, decisions, epoch))
		}
		var about *store.KeyError
		if errors.As(err, &about) {
			if about.Key.GroupResource == api.Events() && events {
				events = false
				continue
			}
			i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return store.KeyOf(p) == about.Key })
			if i >= 0 && len(pods) > 1 {
				if s.enqueue(about.Key); about.Key == first {
					left = fmt.Errorf("place: %w", err)
				}
				pods = slices.Delete(slices.Clone(pods), i, i+1)
				continue
			}
		}
		s.retry(decisions, err)
		return fmt.Errorf("place %d pods: %w", len(pods), err)
	}
}

// retry puts the decisions' pods back. When the write may have happened all the
// same, the binds are kept in mind until it is known.
func (s *scheduler) retry(decisions []decision, err error) {
	refused := false
	for _, class := range []error{store.ErrConflict, store.ErrNotFound, store.ErrExists, store.ErrFenced, store.ErrTooLarge, store.ErrFull} {
		refused = refused || errors.Is(err, class)
	}
	for _, d := range decisions {
		if !refused && d.node != nil {
			s.view.note(d.pod, d.node.Name, false)
		}
		s.enqueue(store.KeyOf(d.pod))
	}
}

// settle records what a transaction did. When nodes changed after the decisions
// were made, the pods that found no place are looked at again.
func (s *scheduler) settle(ctx context.Context, decisions []decision, epoch uint64) error {
	var again error
	for _, d := range decisions {
		key := store.KeyOf(d.pod)
		if d.node == nil {
			if !s.wait(key, epoch) {
				again = reconcile.After(time.Millisecond, "nodes changed meanwhile")
			}
			continue
		}
		s.view.note(d.pod, d.node.Name, true)
		s.Log.LogAttrs(ctx, slog.LevelDebug, "pod placed", slog.String("pod", key.String()), slog.String("node", d.node.Name),
			slog.Int64("score", d.score.total()), slog.Int64("spread", d.score.spread), slog.Int64("free", d.score.free))
	}
	return again
}

// transaction turns decisions into writes, each bind conditioned on its node.
func (s *scheduler) transaction(decisions []decision, events bool) store.Txn {
	t := store.Txn{Fence: s.Fence()}
	nodes := map[string]bool{}
	note := func(pod *corev1.Pod, kind, reason, message string) {
		if events {
			t.Ops = append(t.Ops, s.events.Op(pod, kind, reason, message)...)
		}
	}
	now := metav1.NewTime(s.Now())
	for _, d := range decisions {
		if d.node == nil {
			if pod, changed := marked(d.pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: d.message}, now); changed || s.view.uncertain(store.KeyOf(d.pod)) { // a write settles a doubt
				t.Ops = append(t.Ops, store.Op{Verb: store.Update, Object: pod})
				note(d.pod, corev1.EventTypeWarning, "FailedScheduling", d.message)
			}
			continue
		}
		pod, _ := marked(d.pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, now)
		pod.Spec.NodeName = d.node.Name
		t.Ops = append(t.Ops, store.Op{Verb: store.Update, Object: pod})
		if !nodes[d.node.Name] {
			nodes[d.node.Name] = true
			t.If = append(t.If, d.node)
		}
		note(d.pod, corev1.EventTypeNormal, "Scheduled", fmt.Sprintf("Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, d.node.Name))
	}
	return t
}

// marked returns a copy of the pod with a condition, and whether that is news.
// The copy shares what it does not change.
func marked(pod *corev1.Pod, c corev1.PodCondition, now metav1.Time) (*corev1.Pod, bool) {
	out := *pod
	c.LastTransitionTime = now
	i := slices.IndexFunc(pod.Status.Conditions, func(have corev1.PodCondition) bool { return have.Type == c.Type })
	out.Status.Conditions = slices.Clone(pod.Status.Conditions)
	if i < 0 {
		out.Status.Conditions = append(out.Status.Conditions, c)
		return &out, true
	}
	have := pod.Status.Conditions[i]
	if have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
	}
	out.Status.Conditions[i] = c
	return &out, have.Status != c.Status || have.Reason != c.Reason || have.Message != c.Message
}

func compareKeys(a, b store.Key) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}
