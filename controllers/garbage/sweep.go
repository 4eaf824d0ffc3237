package garbage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/reconcile"
	corev1 "k8s.io/api/core/v1"
)

// maxEvents is how many events are kept.
const maxEvents = 5000

// Pauses between sweeps. A sweep costs a look at every event, so it comes seldom,
// and much more seldom while there is nothing to sweep.
const (
	sweepSoonest = time.Minute
	sweepLatest  = 15 * time.Minute
)

func (c *controller) sweep(ctx context.Context) error {
	now := c.Now()
	steps, wait := planEvents(c.Store.List(api.Events(), ""), now)
	for batch := range slices.Chunk(steps, perTxn) {
		if err := c.apply(ctx, plan{steps: batch}, now); err != nil {
			return fmt.Errorf("sweep events: %w", err)
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
