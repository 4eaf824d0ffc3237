package node

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wantedTaints are those with the effect NoSchedule that a node must have, and all
// that it must not have, by key.
func wantedTaints(node *corev1.Node) map[string]bool {
	is := func(t corev1.NodeConditionType, s corev1.ConditionStatus) bool { return condition(node, t) == s }
	return map[string]bool{
		corev1.TaintNodeUnreachable:        is(corev1.NodeReady, corev1.ConditionUnknown),
		corev1.TaintNodeNotReady:           is(corev1.NodeReady, corev1.ConditionFalse),
		corev1.TaintNodeMemoryPressure:     is(corev1.NodeMemoryPressure, corev1.ConditionTrue),
		corev1.TaintNodeDiskPressure:       is(corev1.NodeDiskPressure, corev1.ConditionTrue),
		corev1.TaintNodePIDPressure:        is(corev1.NodePIDPressure, corev1.ConditionTrue),
		corev1.TaintNodeNetworkUnavailable: is(corev1.NodeNetworkUnavailable, corev1.ConditionTrue),
		corev1.TaintNodeUnschedulable:      node.Spec.Unschedulable,
	}
}

// taintKeys is the order in which taints are written.
func taintKeys() []string {
	return []string{
		corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
		corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeUnschedulable,
	}
}

// retaint brings a node's taints to what follows from the rest of it. NoExecute is
// only ever taken here, or swapped for that of the other key, which keeps its time.
func retaint(node *corev1.Node, now time.Time) (changed bool) {
	at := metav1.NewTime(now.Truncate(time.Second))
	wanted := wantedTaints(node)
	for _, key := range taintKeys() {
		changed = setTaint(node, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &at}, wanted[key]) || changed
	}
	since := evictedSince(node)
	for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
		t := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: since}
		changed = setTaint(node, t, wanted[key] && since != nil) || changed
	}
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.Effect == corev1.TaintEffectNoExecute && t.TimeAdded == nil {
			t.TimeAdded, changed = &at, true
		}
	}
	return changed
}

// setTaint adds or takes the taint of a key and effect.
func setTaint(node *corev1.Node, t corev1.Taint, wanted bool) (changed bool) {
	at := slices.IndexFunc(node.Spec.Taints, func(x corev1.Taint) bool { return x.Key == t.Key && x.Effect == t.Effect })
	switch {
	case wanted && at < 0:
		node.Spec.Taints = append(node.Spec.Taints, t)
		return true
	case !wanted && at >= 0:
		node.Spec.Taints = slices.Delete(node.Spec.Taints, at, at+1)
		return true
	}
	return false
}

// lost says whether a taint is one of a node that is not ready.
func lost(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady
}

// evictedSince is when a node got the NoExecute taint of a node that is not ready;
// nil when it has none.
func evictedSince(node *corev1.Node) *metav1.Time {
	for _, t := range node.Spec.Taints {
		if lost(t) && t.Effect == corev1.TaintEffectNoExecute {
			if t.TimeAdded == nil {
				return &metav1.Time{}
			}
			return t.TimeAdded
		}
	}
	return nil
}

func tainted(node *corev1.Node) bool { return slices.ContainsFunc(node.Spec.Taints, lost) }
