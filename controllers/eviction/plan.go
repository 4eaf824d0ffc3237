package eviction

import (
	"fmt"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// observed is a node, the pods bound to it, and which of them were to go.
type observed struct {
	node    *corev1.Node
	pods    []*corev1.Pod
	pending map[types.UID]bool
}

// plan is which pods go now, which were to go and stay, which are to go later, and
// when to look again; 0: when something changes.
type plan struct {
	evict     []*corev1.Pod // as they are
	cancelled []*corev1.Pod
	pending   map[types.UID]bool
	again     time.Duration
}

// decide is the whole logic.
func decide(o observed, now time.Time) plan {
	p := plan{pending: map[types.UID]bool{}}
	var taints []corev1.Taint
	if o.node != nil {
		taints = noExecute(o.node)
	}
	for _, pod := range o.pods {
		if !podset.Active(pod) {
			continue
		}
		at, goes := deadline(pod, taints, now)
		left := at.Sub(now)
		switch {
		case goes && left <= 0:
			p.evict = append(p.evict, pod)
		case goes:
			p.pending[pod.UID] = true
			if p.again == 0 || left < p.again {
				p.again = left
			}
		case o.pending[pod.UID]:
			p.cancelled = append(p.cancelled, pod)
		}
	}
	return p
}

func noExecute(node *corev1.Node) (out []corev1.Taint) {
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t)
		}
	}
	return out
}

// deadline is when a pod has to go for the taints; goes is false for one that may
// stay. Of several tolerations of one taint the first counts, as in Kubernetes.
func deadline(pod *corev1.Pod, taints []corev1.Taint, now time.Time) (at time.Time, goes bool) {
	bound := boundAt(pod)
	for i := range taints {
		taint := &taints[i]
		by := slices.IndexFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, []corev1.Toleration{t}, taint, true)
		})
		if by < 0 {
			return now, true
		}
		seconds := pod.Spec.Tolerations[by].TolerationSeconds
		if seconds == nil {
			continue
		}
		since := now // controllers/node is about to write down when it came
		if taint.TimeAdded != nil {
			since = taint.TimeAdded.Time
		}
		if bound.After(since) {
			since = bound
		}
		if end := since.Add(api.Seconds(max(*seconds, 0))); !goes || end.Before(at) {
			at, goes = end, true
		}
	}
	return at, goes
}

// boundAt is when the pod came to its node, as far as it says.
func boundAt(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// disrupted is the pod with the condition that says why it goes.
func disrupted(pod *corev1.Pod, now time.Time) *corev1.Pod {
	out := *pod
	out.Status = *pod.Status.DeepCopy()
	out.Status.Conditions = slices.DeleteFunc(out.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
	})
	return &out
}

func name(pod *corev1.Pod) string { return fmt.Sprintf("Pod %s/%s", pod.Namespace, pod.Name) }
