package agent

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	requests "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"headway.dev/headway/internal/hostport"
)

// ground is what a pod that comes to the node is held against.
type ground struct {
	node     *corev1.Node  // as its agent knows it
	known    *corev1.Node  // its labels, as the server has them; nil: it has not said
	pods     []*corev1.Pod // that the node runs or is about to
	pressure []corev1.NodeConditionType
}

// admits says why a pod that somebody bound to the node cannot run there, in the words
// of Kubernetes' kubelet; nil: it can. The scheduler asked the same, so this is for
// pods that it did not place, and for what it could not know yet.
func (g ground) admits(pod *corev1.Pod) *verdict {
	if v := g.calm(pod); v != nil {
		return v
	}
	if v := g.room(pod); v != nil {
		return v
	}
	if g.known != nil {
		if fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(g.known); err != nil || !fits {
			return failedPredicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
		}
	}
	taken := map[hostport.Port]bool{}
	for _, other := range g.pods {
		for _, p := range hostport.Of(other) {
			taken[p] = true
		}
	}
	for _, want := range hostport.Of(pod) {
		for have := range taken {
			if want.Clashes(have) {
				return failedPredicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
			}
		}
	}
	return nil
}

// calm refuses pods while the machine is short of something: those that ask for
// nothing when it is memory, else all but those that the machine needs.
func (g ground) calm(pod *corev1.Pod) *verdict {
	if len(g.pressure) == 0 || critical(pod) {
		return nil
	}
	if len(g.pressure) == 1 && g.pressure[0] == corev1.NodeMemoryPressure {
		taint := &corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		if qosClass(pod) != corev1.PodQOSBestEffort || scheduling.TolerationsTolerateTaint(klog.Logger{}, pod.Spec.Tolerations, taint, true) {
			return nil
		}
	}
	return &verdict{Reason: evicted, Message: fmt.Sprintf("The node had condition: %v. ", g.pressure)}
}

// room holds what pods request against what the node has.
func (g ground) room(pod *corev1.Pod) *verdict {
	all := g.node.Status.Allocatable
	if most, told := all[corev1.ResourcePods]; told && int64(len(g.pods))+1 > most.Value() {
		return outOf(corev1.ResourcePods, 1, int64(len(g.pods)), most.Value())
	}
	wanted := requestsOf(pod)
	used := corev1.ResourceList{}
	for _, other := range g.pods {
		for name, amount := range requestsOf(other) {
			sum := used[name]
			sum.Add(amount)
			used[name] = sum
		}
	}
	for _, name := range inOrder(wanted) {
		most, told := all[name]
		if want := wanted[name]; want.IsZero() || !told && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			continue // the node does not count it: another gave it to the node, or nobody did
		}
		have, want, whole := amount(name, used[name]), amount(name, wanted[name]), amount(name, most)
		if want > whole-have {
			return outOf(name, want, have, whole)
		}
	}
	return nil
}

func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	return requests.PodRequests(pod, requests.PodResourcesOptions{})
}

// inOrder are resources in the order in which Kubernetes names what lacks.
func inOrder(list corev1.ResourceList) []corev1.ResourceName {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	return append(first, slices.DeleteFunc(sortedKeys(list), func(n corev1.ResourceName) bool { return slices.Contains(first, n) })...)
}

func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func outOf(name corev1.ResourceName, requested, used, capacity int64) *verdict {
	return rejected("OutOf"+string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested, used, capacity))
}

func failedPredicate(name, why string) *verdict {
	return rejected(name, fmt.Sprintf("Predicate %s failed: %s", name, why))
}

func rejected(reason, message string) *verdict { return &verdict{Reason: reason, Message: message} }

// admitted says that the pod has its place on the node: it has been looked at, or it
// has run here. What runs is never rejected, however small the node has become (R8).
func (e *entry) admitted() bool {
	if e.settled || e.sandbox != nil || e.record.last.StartTime != nil {
		return true
	}
	for _, list := range [][]corev1.ContainerStatus{e.record.last.InitContainerStatuses, e.record.last.ContainerStatuses} {
		for i := range list {
			if list[i].ContainerID != "" {
				return true
			}
		}
	}
	return false
}

// admit decides once about a pod that comes. False: the answer must wait until the
// session has told which other pods are the node's. The caller holds mu.
func (a *Agent) admit(e *entry) bool {
	if e.admitted() || e.pod == nil || e.released || e.pod.DeletionTimestamp != nil || terminal(e.record.last.Phase) || e.record.doom != nil {
		e.settled = true
		return true
	}
	if a.seen != nil { // what the session has not told of yet may be the node's, or not any more
		return false
	}
	e.settled = true
	g := ground{node: a.node, known: a.known, pressure: a.squeeze.conditions()}
	for _, uid := range sortedKeys(a.entries) {
		o := a.entries[uid]
		if o == e || o.pod == nil || o.released || !o.admitted() || terminal(o.record.last.Phase) || o.observed(nil).gone() ||
			o.record.doom != nil && o.sandbox == nil { // it was rejected itself
			continue
		}
		g.pods = append(g.pods, o.pod)
	}
	v := g.admits(e.pod)
	if v == nil {
		return true
	}
	a.event(e.pod, "", corev1.EventTypeWarning, v.Reason, v.Message, a.cfg.Now())
	v.Message = "Pod was rejected: " + v.Message
	a.doom(e, *v)
	return true
}
