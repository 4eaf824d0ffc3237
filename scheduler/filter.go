package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// The reasons why a node does not do, in Kubernetes' words where it has them.
const (
	reasonNotReady      = "node(s) were not ready"
	reasonUnschedulable = "node(s) were unschedulable"
	reasonTaint         = "node(s) had untolerated taint(s)"
	reasonAffinity      = "node(s) didn't match Pod's node affinity/selector"
	reasonPorts         = "node(s) didn't have free ports for the requested pod ports"
	reasonPods          = "Too many pods"
	reasonResource      = "Insufficient " // and the resource's name
)

const anyIP = "0.0.0.0"

// candidate is a pod to be placed, read once.
type candidate struct {
	pod *corev1.Pod
	demand
	affinity  nodeaffinity.RequiredNodeAffinity
	preferred *nodeaffinity.PreferredSchedulingTerms
}

func candidateOf(pod *corev1.Pod) (candidate, error) {
	c := candidate{pod: pod, demand: demandOf(pod), affinity: nodeaffinity.GetRequiredNodeAffinity(pod)}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		terms, err := nodeaffinity.NewPreferredSchedulingTerms(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		if err != nil {
			return candidate{}, err
		}
		c.preferred = terms
	}
	return c, nil
}

// filter is one hard constraint (R11); it returns why the node does not do, or
// nothing.
type filter func(c *candidate, n *nodeInfo) []string

// filters are in the order in which they are asked; the first that objects
// speaks for the node.
func filters() []filter {
	return []filter{alive, schedulable, tolerated, matching, portsFree, roomFor}
}

// objections is why the pod cannot run on the node; none when it can.
func objections(c *candidate, n *nodeInfo) []string {
	for _, f := range filters() {
		if why := f(c, n); len(why) > 0 {
			return why
		}
	}
	return nil
}

func alive(_ *candidate, n *nodeInfo) []string {
	if !n.alive {
		return []string{reasonNotReady}
	}
	return nil
}

func schedulable(c *candidate, n *nodeInfo) []string {
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if n.node.Spec.Unschedulable && !schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, c.pod.Spec.Tolerations, &cordon, true) {
		return []string{reasonUnschedulable}
	}
	return nil
}

func tolerated(c *candidate, n *nodeInfo) []string {
	hard := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	if _, found := schedulinghelper.FindMatchingUntoleratedTaint(klog.Logger{}, n.node.Spec.Taints, c.pod.Spec.Tolerations, hard, true); found {
		return []string{reasonTaint}
	}
	return nil
}

// matching asks nodeSelector and required node affinity. One that cannot be read
// matches no node.
func matching(c *candidate, n *nodeInfo) []string {
	if ok, err := c.affinity.Match(n.node); err != nil || !ok {
		return []string{reasonAffinity}
	}
	return nil
}

func portsFree(c *candidate, n *nodeInfo) []string {
	for _, want := range c.ports {
		for have := range n.ports {
			if have.port == want.port && have.protocol == want.protocol && (have.ip == want.ip || have.ip == anyIP || want.ip == anyIP) {
				return []string{reasonPorts}
			}
		}
	}
	return nil
}

// roomFor names every resource that is short.
func roomFor(c *candidate, n *nodeInfo) []string {
	var short []string
	if n.pods+1 > n.maxPods {
		short = append(short, reasonPods)
	}
	lacks := func(name corev1.ResourceName, want, used, all int64) {
		if want > 0 && want > all-used {
			short = append(short, reasonResource+string(name))
		}
	}
	lacks(corev1.ResourceCPU, c.requests.cpu, n.used.cpu, n.allocatable.cpu)
	lacks(corev1.ResourceMemory, c.requests.memory, n.used.memory, n.allocatable.memory)
	for name, want := range c.requests.other {
		lacks(name, want, n.used.other[name], n.allocatable.other[name])
	}
	slices.Sort(short)
	return short
}
