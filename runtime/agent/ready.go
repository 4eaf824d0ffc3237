package agent

import (
	corev1 "k8s.io/api/core/v1"
)

// ready sets the node's Ready condition from how the engine answered, and sends
// the Node when that changed. Agent.mu is held, or nobody else has the agent yet.
func (a *Agent) ready(err error) {
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady", Message: "the agent is posting ready status"}
	if err != nil {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ContainerEngineDown", "the container engine does not answer: "+err.Error()
	}
	for _, old := range a.node.Status.Conditions {
		if old.Type == c.Type && old.Status == c.Status {
			return
		}
	}
	a.condition(c)
}

// condition puts a condition in the place of the node's one of its type, and sends
// the Node. Agent.mu is held, or nobody else has the agent yet.
func (a *Agent) condition(c corev1.NodeCondition) {
	node := a.node.DeepCopy()
	c.LastTransitionTime = seconds(a.cfg.Now())
	c.LastHeartbeatTime = c.LastTransitionTime
	var kept []corev1.NodeCondition
	for _, old := range a.node.Status.Conditions {
		switch {
		case old.Type != c.Type:
			kept = append(kept, old)
		case old.Status == c.Status:
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	node.Status.Conditions = append(kept, c)
	a.node, a.out.node = node, node
	notify(a.send)
}
