package node

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// observed is one node, whether its lease lives, and the pods bound to it.
type observed struct {
	node  *corev1.Node
	lease bool
	pods  []*corev1.Pod
}

// plan is the node and the pods as they should be; nil and empty: as they are.
type plan struct {
	node   *corev1.Node
	pods   []*corev1.Pod
	reason string // of the event: NodeNotReady, NodeReady; "" for none
}

// decide is the whole logic.
func decide(o observed, now time.Time) plan {
	node := o.node.DeepCopy()
	changed := false
	if !o.lease {
		changed = unknown(node, now)
	}
	status := ready(node)
	changed = taint(node, corev1.TaintNodeUnreachable, status == corev1.ConditionUnknown, now) || changed
	changed = taint(node, corev1.TaintNodeNotReady, status == corev1.ConditionFalse, now) || changed
	var p plan
	if changed {
		p.node = node
		if was := tainted(o.node); was != tainted(node) {
			p.reason = "NodeReady"
			if tainted(node) {
				p.reason = "NodeNotReady"
			}
		}
	}
	if !o.lease {
		for _, pod := range o.pods {
			if out, ok := unready(pod, now); ok {
				p.pods = append(p.pods, out)
			}
		}
	}
	return p
}

// unknown sets the conditions that only the agent can vouch for to Unknown.
func unknown(node *corev1.Node, now time.Time) (changed bool) {
	at := metav1.NewTime(now.Truncate(time.Second))
	found := false
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		found = found || c.Type == corev1.NodeReady
		if c.Status == corev1.ConditionUnknown {
			continue
		}
		c.Status, c.Reason, c.Message, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", "The node's agent stopped renewing its lease.", at
		changed = true
	}
	if !found {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "The node's agent never posted its status.", LastTransitionTime: at})
		changed = true
	}
	return changed
}

func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionFalse
}

// taint brings the two taints of one key to what they should be.
func taint(node *corev1.Node, key string, wanted bool, now time.Time) (changed bool) {
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		at := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
		switch {
		case wanted && at < 0:
			added := metav1.NewTime(now.Truncate(time.Second))
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect, TimeAdded: &added})
			changed = true
		case !wanted && at >= 0:
			node.Spec.Taints = slices.Delete(node.Spec.Taints, at, at+1)
			changed = true
		}
	}
	return changed
}

func tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady
	})
}

// unready returns the pod with its Ready condition False, if it was True: nobody
// can vouch for it.
func unready(pod *corev1.Pod, now time.Time) (*corev1.Pod, bool) {
	at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if at < 0 || pod.Status.Conditions[at].Status != corev1.ConditionTrue {
		return nil, false
	}
	out := pod.DeepCopy()
	c := &out.Status.Conditions[at]
	c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now.Truncate(time.Second))
	c.Reason, c.Message = "NodeLost", "The node's agent stopped renewing its lease."
	return out, true
}
