package garbage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Bounds of what is kept.
const (
	maxEvents = 5000
	maxEnded  = 1000 // pods
)

// Pauses between sweeps. A sweep costs a look at every event or pod, so it comes
// seldom, and much more seldom while there is nothing to sweep.
const (
	sweepSoonest = time.Minute
	sweepLatest  = 15 * time.Minute
)

func (c *controller) sweep(ctx context.Context, gr schema.GroupResource) error {
	now := c.Now()
	var steps []Step
	var wait time.Duration
	if gr == api.Events() {
		steps, wait = planEvents(c.Store.List(gr, ""), now)
	} else {
		steps, wait = planEnded(c.Store.List(gr, ""))
	}
	for batch := range slices.Chunk(steps, perTxn) {
		if err := c.apply(ctx, plan{steps: batch}, now); err != nil {
			return fmt.Errorf("sweep %s: %w", gr, err)
		}
	}
	return reconcile.After(wait, "the next sweep")
}

// planEvents removes events that did not occur for event.TTL, and the oldest
// beyond maxEvents. wait is until the next one is old enough.
func planEvents(objects []api.Object, now time.Time) (steps []Step, wait time.Duration) {
	byAge := slices.Clone(objects)
	slices.SortStableFunc(byAge, func(a, b api.Object) int { return lastSeen(a).Compare(lastSeen(b)) })
	wait = sweepLatest
	for i, obj := range byAge {
		left := lastSeen(obj).Add(event.TTL).Sub(now)
		if left > 0 && len(byAge)-i <= maxEvents {
			return steps, min(max(left, sweepSoonest), sweepLatest)
		}
		steps = append(steps, Step{Verb: remove, Object: obj, Reason: "it is old"})
	}
	return steps, wait
}

func lastSeen(obj api.Object) time.Time {
	e, ok := obj.(*corev1.Event)
	if !ok {
		return time.Time{}
	}
	last := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.FirstTimestamp.Time, e.LastTimestamp.Time, e.EventTime.Time} {
		if t.After(last) {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// planEnded removes the oldest of the pods that ended, beyond maxEnded. Pods that
// a finalizer holds have not been counted by their controller yet. wait is short
// while the bound is near.
func planEnded(objects []api.Object) (steps []Step, wait time.Duration) {
	var ended []api.Object
	for _, obj := range objects {
		if pod, ok := obj.(*corev1.Pod); ok && podset.Terminal(pod) && len(pod.Finalizers) == 0 {
			ended = append(ended, pod)
		}
	}
	if len(ended) < maxEnded/2 {
		return nil, sweepLatest
	}
	slices.SortStableFunc(ended, func(a, b api.Object) int {
		return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
	})
	for _, obj := range ended[:max(0, len(ended)-maxEnded)] {
		steps = append(steps, Step{Verb: remove, Object: obj, Reason: "too many ended pods are kept"})
	}
	return steps, sweepSoonest
}
