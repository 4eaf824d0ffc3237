package disruption

import (
	"context"
	"fmt"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// staleAfter is how long a pod may be marked as a DisruptionTarget without being
// deleted: who marked it has failed or thought better of it then.
const staleAfter = 2 * time.Minute

// target is a pod's condition that it is about to be disrupted, when it holds and
// nothing has come of it yet. What a node's agent says is about a pod that ends by
// itself, however long that takes.
func target(pod *corev1.Pod) *corev1.PodCondition {
	if pod.DeletionTimestamp != nil || podset.Terminal(pod) {
		return nil
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason != corev1.PodReasonTerminationByKubelet
	})
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

// ofTarget wakes a pod that is marked.
func ofTarget(e store.Event) []reconcile.Key { return targets([]api.Object{e.Object}) }

func targets(objects []api.Object) (keys []reconcile.Key) {
	for _, obj := range objects {
		if pod, ok := obj.(*corev1.Pod); ok && target(pod) != nil {
			keys = append(keys, store.KeyOf(pod))
		}
	}
	return keys
}

// stale is the pod without the mark, once nothing has come of it for staleAfter; until
// then, how long that takes.
func stale(pod *corev1.Pod, now time.Time) (out *corev1.Pod, wait time.Duration) {
	c := target(pod)
	if c == nil {
		return nil, 0
	}
	if wait = c.LastTransitionTime.Add(staleAfter).Sub(now); wait > 0 {
		return nil, wait
	}
	shallow := *pod
	out = &shallow
	out.Status.Conditions = slices.Clone(pod.Status.Conditions)
	for i := range out.Status.Conditions {
		if was := &out.Status.Conditions[i]; was.Type == corev1.DisruptionTarget {
			*was = corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse,
				ObservedGeneration: pod.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
		}
	}
	return out, 0
}

// settle takes a mark off a pod of which nothing has come.
func (c *controller) settle(ctx context.Context, key reconcile.Key) error {
	pod, ok := c.Store.Get(key).(*corev1.Pod)
	if !ok {
		return nil
	}
	out, wait := stale(pod, c.Now())
	if wait > 0 {
		return reconcile.After(wait, "the disruption of the pod to begin")
	}
	if out == nil {
		return nil
	}
	if _, err := c.Store.Commit(ctx, store.Txn{Fence: c.Fence(), Ops: []store.Op{{Verb: store.Update, Object: out}}}); err != nil {
		return fmt.Errorf("take the mark of a disruption off %s: %w", key, err)
	}
	return nil
}
