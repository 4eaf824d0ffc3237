package podgarbage

import (
	"cmp"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxEnded is how many pods that have ended are kept.
const maxEnded = 1000

// quarantine is how long a node must be gone before its pods are, as in Kubernetes:
// its agent may only be registering again.
const quarantine = 40 * time.Second

// observed is a node and the pods bound to it.
type observed struct {
	node  *corev1.Node // nil: there is none
	lease bool
	gone  time.Duration // for how long there has been no Node
	pods  []*corev1.Pod
}

// plan is which pods go, and when to look again; 0: when something changes.
type plan struct {
	mark   []*corev1.Pod // to be stopped by their agent
	remove []*corev1.Pod // without asking anyone
	why    string        // of the condition
	again  time.Duration
}

// decide is the whole logic of a node's pods.
func decide(o observed) (p plan) {
	switch {
	case len(o.pods) == 0:
	case o.node == nil && o.gone < quarantine:
		p.again = quarantine - o.gone
	case o.node == nil:
		p.why = "PodGC: node no longer exists"
		for _, pod := range o.pods {
			switch {
			case !o.lease || podset.Ended(pod):
				p.remove = append(p.remove, pod)
			case pod.DeletionTimestamp == nil:
				p.mark = append(p.mark, pod)
			}
		}
	case !o.lease && outOfService(o.node):
		p.why = "PodGC: node is out of service"
		for _, pod := range o.pods {
			if pod.DeletionTimestamp != nil {
				p.remove = append(p.remove, pod)
			}
		}
	}
	p.remove = slices.DeleteFunc(p.remove, func(pod *corev1.Pod) bool { return len(removal(pod, p.why, time.Time{})) == 0 })
	return p
}

// outOfService says whether the operator has declared a node that is not ready gone.
func outOfService(node *corev1.Node) bool {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return !ready && declared(node)
}

func declared(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// removal takes a pod away whether or not its node has stopped it. One that
// finalizers hold is made such that the last of them lets it go; nothing when it is
// that already.
func removal(pod *corev1.Pod, why string, now time.Time) []store.Op {
	if len(pod.Finalizers) == 0 {
		return []store.Op{{Verb: store.Delete, Object: pod}}
	}
	if pod.DeletionTimestamp != nil && podset.Terminal(pod) {
		return nil
	}
	out := disrupted(pod, why, now)
	if !podset.Terminal(out) {
		out.Status.Phase = corev1.PodFailed
	}
	out.ObjectMeta = *pod.ObjectMeta.DeepCopy()
	if out.DeletionTimestamp == nil {
		at := metav1.NewTime(now.Truncate(time.Second))
		out.DeletionTimestamp = &at
	}
	out.DeletionGracePeriodSeconds = new(int64)
	return []store.Op{{Verb: store.Update, Object: out}}
}

// disrupted is the pod with the condition that says why it goes, if it has not ended.
func disrupted(pod *corev1.Pod, why string, now time.Time) *corev1.Pod {
	out := *pod
	out.Status = *pod.Status.DeepCopy()
	if podset.Terminal(pod) {
		return &out
	}
	out.Status.Conditions = slices.DeleteFunc(out.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		Reason: "DeletionByPodGC", Message: why,
	})
	return &out
}

// Pauses between sweeps. A sweep costs a look at every pod, so it comes seldom, and
// much more seldom while there is nothing to sweep.
const (
	sweepSoonest = time.Minute
	sweepLatest  = 15 * time.Minute
)

// planEnded finds those of the pods that ended which are too many, the evicted ones
// and then the oldest first. wait is short while the bound is near.
func planEnded(objects []api.Object) (remove []*corev1.Pod, wait time.Duration) {
	var ended []*corev1.Pod
	for _, obj := range objects {
		if pod, ok := obj.(*corev1.Pod); ok && podset.Ended(pod) && len(pod.Finalizers) == 0 {
			ended = append(ended, pod)
		}
	}
	if len(ended) < maxEnded/2 {
		return nil, sweepLatest
	}
	slices.SortStableFunc(ended, func(a, b *corev1.Pod) int {
		if evicted(a) != evicted(b) {
			if evicted(a) {
				return -1
			}
			return 1
		}
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return ended[:max(0, len(ended)-maxEnded)], sweepSoonest
}

func evicted(pod *corev1.Pod) bool { return pod.Status.Reason == "Evicted" }
