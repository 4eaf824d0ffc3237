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
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// place decides about the pods and writes that in one transaction. A pod that
// changed meanwhile, or whose victim did, is left out and the others are decided
// anew, since the room meant for it is free; an Event that cannot be written holds
// nothing up.
func (s *scheduler) place(ctx context.Context, b *board, pods []*corev1.Pod, epoch uint64) error {
	events := true
	first := store.KeyOf(pods[0])
	var left error // why the first pod, whose turn it is, was left out
	for {
		decisions := plan(b, pods, s.view.own(pods[0])...)
		s.putBack(pods[len(decisions):]...) // the transaction is full
		pods = pods[:len(decisions)]
		t := s.transaction(decisions, events)
		var revision int64
		var err error
		if len(t.Ops) > 0 {
			revision, err = s.Store.Commit(ctx, t)
		}
		if err == nil {
			return cmp.Or(left, s.settle(ctx, decisions, epoch, revision))
		}
		var about *store.KeyError
		if errors.As(err, &about) {
			if about.Key.GroupResource == api.Events() && events {
				events = false
				continue
			}
			i := slices.IndexFunc(decisions, func(d decision) bool { return d.concerns(about.Key) })
			if i >= 0 && len(pods) > 1 {
				if s.enqueue(pods[i]); store.KeyOf(pods[i]) == first {
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

// concerns says whether a decision changes the pod of a key, or a claim or volume.
func (d *decision) concerns(key store.Key) bool {
	if slices.ContainsFunc(d.binds, func(p *promise) bool {
		return store.KeyOf(p.claim) == key || store.KeyOf(p.volume.PersistentVolume) == key
	}) ||
		slices.ContainsFunc(d.held, func(c *corev1.PersistentVolumeClaim) bool { return store.KeyOf(c) == key }) {
		return true
	}
	return slices.ContainsFunc(append(d.others(), d.pod), func(pod *corev1.Pod) bool { return store.KeyOf(pod) == key })
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
		s.enqueue(d.pod)
	}
}

// settle records what a transaction did. When something happened after the
// decisions were made, the pods that found no place are looked at again.
func (s *scheduler) settle(ctx context.Context, decisions []decision, epoch uint64, revision int64) error {
	var again error
	for _, d := range decisions {
		key := store.KeyOf(d.pod)
		if d.nominated != d.pod.Status.NominatedNodeName || len(d.victims)+len(d.displaced)+len(d.binds) > 0 {
			s.after = revision
		}
		if d.node == nil {
			if d.nominated != "" {
				s.Log.LogAttrs(ctx, slog.LevelDebug, "room is being made for a pod", slog.String("pod", key.String()), slog.String("node", d.nominated), slog.Int("victims", len(d.victims)))
			}
			if !s.wait(key, wait{hopes: d.hopes, node: d.nominated}, epoch) {
				s.enqueue(d.pod)
				again = reconcile.After(time.Millisecond, "something happened meanwhile")
			}
			continue
		}
		s.view.note(d.pod, d.node.Name, true)
		s.Log.LogAttrs(ctx, slog.LevelDebug, "pod placed", slog.String("pod", key.String()), slog.String("node", d.node.Name),
			slog.Int64("score", d.score.total(d.weights)), slog.Int64("spread", d.score.spread), slog.Int64("free", d.score.free), slog.Int64("images", d.score.images))
	}
	return again
}

// transaction turns decisions into writes, each bind conditioned on its node.
func (s *scheduler) transaction(decisions []decision, events bool) store.Txn {
	t := store.Txn{Fence: s.Fence()}
	nodes := map[string]bool{}
	held := map[store.Key]bool{}
	note := func(pod api.Object, kind, reason, message string) {
		if events {
			t.Ops = append(t.Ops, s.events.Op(pod, kind, reason, message)...)
		}
	}
	now := metav1.NewTime(s.Now())
	for _, d := range decisions {
		if d.node == nil {
			pod, changed := marked(d.pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: d.message}, now)
			pod.Status.NominatedNodeName = d.nominated
			if changed || d.nominated != d.pod.Status.NominatedNodeName || len(d.victims) > 0 || s.view.uncertain(store.KeyOf(d.pod)) { // a write settles a doubt
				t.Ops = append(t.Ops, store.Op{Verb: store.Update, Object: pod})
			}
			if changed || s.view.uncertain(store.KeyOf(d.pod)) {
				note(d.pod, corev1.EventTypeWarning, "FailedScheduling", d.message)
			}
			for _, victim := range d.victims {
				t.Ops = append(t.Ops, evicted(victim, now)...)
				note(victim, corev1.EventTypeNormal, "Preempted", fmt.Sprintf("Preempted by pod %s on node %s", d.pod.UID, d.nominated))
			}
			for _, other := range d.displaced {
				out := *other
				out.Status.NominatedNodeName = ""
				t.Ops = append(t.Ops, store.Op{Verb: store.Update, Object: &out})
			}
			continue
		}
		pod, _ := marked(d.pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, now)
		pod.Spec.NodeName, pod.Status.NominatedNodeName = d.node.Name, ""
		t.Ops = append(t.Ops, store.Op{Verb: store.Update, Object: pod})
		if !nodes[d.node.Name] {
			nodes[d.node.Name] = true
			t.If = append(t.If, d.node)
		}
		for _, claim := range d.held { // it is not being deleted
			if key := store.KeyOf(claim); !held[key] {
				held[key] = true
				t.If = append(t.If, claim)
			}
		}
		for _, p := range d.binds {
			volume := store.Op{Verb: store.Update, Object: p.volume.PersistentVolume}
			if p.found == nil {
				made := p.volume.DeepCopy()
				store.Stamp(made, s.Now())
				made.Generation = 0 // volumes have none
				volume = store.Op{Verb: store.Create, Object: made}
				note(p.claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume "+made.Name)
			}
			t.Ops = append(t.Ops, volume, store.Op{Verb: store.Update, Object: p.bound})
		}
		note(d.pod, corev1.EventTypeNormal, "Scheduled", fmt.Sprintf("Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, d.node.Name))
	}
	return t
}

// evicted deletes a pod gracefully and says in it why.
func evicted(pod *corev1.Pod, now metav1.Time) []store.Op {
	told, _ := marked(pod, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler, Message: messagePreempted}, now)
	return podset.Remove(told, now.Time)
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
