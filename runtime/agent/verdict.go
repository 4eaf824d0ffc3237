package agent

import (
	"fmt"
	"maps"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const evicted = "Evicted"

// verdict is why a pod ends although its containers would go on. It is Failed with
// this reason when nothing of it lives any more.
type verdict struct {
	Reason, Message string
	Hasty           bool // it has a second to stop
	Disrupts        bool // the node is to blame, not the pod: it gets the condition DisruptionTarget
}

// verdict on a pod: the agent's, or that its time is over.
func (o observed) verdict(now time.Time) *verdict {
	if o.record.doom != nil {
		return o.record.doom
	}
	if at, limited := o.deadline(); limited && !now.Before(at) && o.pod.DeletionTimestamp == nil && !terminal(o.record.last.Phase) {
		return &verdict{Reason: deadlineExceeded, Message: "Pod was active on the node longer than the specified deadline"}
	}
	return nil
}

// verdictKey is the annotation by which the checkpoint keeps a verdict, so that an
// agent that is killed between it and the pod's end goes on with it. What a server
// sends under this key means nothing.
const verdictKey = "headway.dev/verdict"

// withVerdict is a pod as the checkpoint keeps it.
func withVerdict(pod corev1.Pod, v *verdict) *corev1.Pod {
	if _, foreign := pod.Annotations[verdictKey]; v == nil && !foreign {
		return &pod
	}
	pod.Annotations = maps.Clone(pod.Annotations)
	delete(pod.Annotations, verdictKey)
	if v == nil {
		return &pod
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	fields := url.Values{"reason": {v.Reason}, "message": {v.Message}}
	if v.Hasty {
		fields.Set("hasty", "")
	}
	if v.Disrupts {
		fields.Set("disrupts", "")
	}
	pod.Annotations[verdictKey] = fields.Encode()
	return &pod
}

// takeVerdict reads what withVerdict kept, and takes it off the pod.
func takeVerdict(pod *corev1.Pod) (*verdict, error) {
	text, ok := pod.Annotations[verdictKey]
	if !ok {
		return nil, nil
	}
	delete(pod.Annotations, verdictKey)
	fields, err := url.ParseQuery(text)
	if err != nil || fields.Get("reason") == "" {
		return nil, fmt.Errorf("the verdict on pod %s/%s in the checkpoint cannot be read: %q", pod.Namespace, pod.Name, text)
	}
	return &verdict{Reason: fields.Get("reason"), Message: fields.Get("message"), Hasty: fields.Has("hasty"), Disrupts: fields.Has("disrupts")}, nil
}

// evict ends a pod that harms the node, or that the node has no more room for. False:
// it ends already, or is one that the machine needs. The caller holds mu.
func (a *Agent) evict(e *entry, v verdict) bool {
	if e.pod == nil || e.released || e.pod.DeletionTimestamp != nil || terminal(e.record.last.Phase) || e.record.doom != nil || critical(e.pod) {
		return false
	}
	a.doom(e, v)
	a.event(e.pod, "", corev1.EventTypeWarning, v.Reason, v.Message, a.cfg.Now())
	return true
}

// doom has a pod end. The caller holds mu.
func (a *Agent) doom(e *entry, v verdict) {
	e.record.doom, e.told = &v, false
	a.save(e)
	e.interrupt() // a hook, or a pull, that would hold the end up
	a.wake(e)
}

// critical says whether a pod is one that Kubernetes' kubelet never evicts.
func critical(pod *corev1.Pod) bool {
	const systemCritical = 2_000_000_000 // where the priorities of the system's own classes begin
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}
