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

// decide is the whole logic of one node.
func decide(o observed, now time.Time) plan {
	node := o.node.DeepCopy()
	changed := false
	if !o.lease {
		changed = unknown(node, now)
	}
	changed = retaint(node, now) || changed
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

// condition is the status of a node's condition; a node that never said whether it
// is ready is not.
func condition(node *corev1.Node, t corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	if t == corev1.NodeReady {
		return corev1.ConditionFalse
	}
	return ""
}

func ready(node *corev1.Node) corev1.ConditionStatus { return condition(node, corev1.NodeReady) }

// unready returns the pod with its Ready condition False, if it was True: nobody
// can vouch for it. Its containers may well go on running (R9).
func unready(pod *corev1.Pod, now time.Time) (*corev1.Pod, bool) {
	at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if at < 0 || pod.Status.Conditions[at].Status != corev1.ConditionTrue {
		return nil, false
	}
	out := pod.DeepCopy()
	c := &out.Status.Conditions[at]
	c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now.Truncate(time.Second))
	c.Reason, c.Message = "NodeLost", "The node's agent stopped renewing its lease; the containers may still be running."
	return out, true
}
