package agent

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// demanding is a pod that requests so much.
func demanding(requests map[corev1.ResourceName]string, ports ...int32) *corev1.Pod {
	list := corev1.ResourceList{}
	for name, text := range requests {
		list[name] = resource.MustParse(text)
	}
	c := corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{Requests: list}}
	for _, p := range ports {
		c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: p, HostPort: p})
	}
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
}

// Who does not fit is told so in the words of Kubernetes' kubelet, the first thing that
// lacks only.
func TestAdmits(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "ephemeral-storage": resource.MustParse("1Gi"), "pods": resource.MustParse("3"),
		"hugepages-2Mi": resource.MustParse("4Mi"), "example.com/gpu": resource.MustParse("1"),
	}}}
	there := []*corev1.Pod{demanding(map[corev1.ResourceName]string{"cpu": "1500m", "memory": "600Mi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "1"}, 80)}
	labelled := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	}
	selecting := demanding(nil)
	selecting.Spec.NodeSelector = map[string]string{"disk": "fast"}
	burstable := demanding(map[corev1.ResourceName]string{"memory": "1Mi"})
	urgent, tolerant := demanding(nil), demanding(nil)
	urgent.Spec.Priority = new(int32(2_000_000_000))
	tolerant.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists}}
	memory, disk := []corev1.NodeConditionType{corev1.NodeMemoryPressure}, []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure}
	for _, c := range []struct {
		name            string
		pod             *corev1.Pod
		more            int // pods that ask for nothing
		known           *corev1.Node
		pressure        []corev1.NodeConditionType
		reason, message string
	}{
		{name: "fits", pod: demanding(map[corev1.ResourceName]string{"cpu": "500m", "memory": "424Mi"}, 81)},
		{name: "asks for nothing of what is used up", pod: demanding(map[corev1.ResourceName]string{"ephemeral-storage": "0"})},
		{name: "cpu", pod: demanding(map[corev1.ResourceName]string{"cpu": "501m", "memory": "1Gi"}, 80), reason: "OutOfcpu",
			message: "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"},
		{name: "memory", pod: demanding(map[corev1.ResourceName]string{"memory": "425Mi"}), reason: "OutOfmemory",
			message: "Node didn't have enough resource: memory, requested: 445644800, used: 629145600, capacity: 1073741824"},
		{name: "storage", pod: demanding(map[corev1.ResourceName]string{"ephemeral-storage": "1"}), reason: "OutOfephemeral-storage",
			message: "Node didn't have enough resource: ephemeral-storage, requested: 1, used: 1073741824, capacity: 1073741824"},
		{name: "huge pages", pod: demanding(map[corev1.ResourceName]string{"hugepages-2Mi": "2Mi"}), reason: "OutOfhugepages-2Mi",
			message: "Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 4194304, capacity: 4194304"},
		{name: "huge pages of a size that the node has not", pod: demanding(map[corev1.ResourceName]string{"hugepages-1Gi": "1Gi"}), reason: "OutOfhugepages-1Gi",
			message: "Node didn't have enough resource: hugepages-1Gi, requested: 1073741824, used: 0, capacity: 0"},
		{name: "an extended resource", pod: demanding(map[corev1.ResourceName]string{"example.com/gpu": "1"}), reason: "OutOfexample.com/gpu",
			message: "Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1"},
		{name: "an extended resource that the agent does not know", pod: demanding(map[corev1.ResourceName]string{"example.com/other": "1"})},
		{name: "pods", pod: demanding(nil), more: 2, reason: "OutOfpods", message: "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"},
		{name: "port", pod: demanding(nil, 80), reason: "NodePorts", message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		{name: "labels", pod: selecting, known: labelled(map[string]string{"disk": "slow"}), reason: "NodeAffinity",
			message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{name: "labels that match", pod: selecting, known: labelled(map[string]string{"disk": "fast"})},
		{name: "labels that nobody knows", pod: selecting},
		{name: "little memory, asks for nothing", pod: demanding(nil), pressure: memory, reason: "Evicted", message: "The node had condition: [MemoryPressure]. "},
		{name: "little memory, tolerated", pod: tolerant, pressure: memory},
		{name: "little memory, asks for some", pod: burstable, pressure: memory},
		{name: "little disk", pod: burstable, pressure: disk, reason: "Evicted", message: "The node had condition: [MemoryPressure DiskPressure]. "},
		{name: "little disk, tolerates little memory", pod: tolerant, pressure: disk, reason: "Evicted", message: "The node had condition: [MemoryPressure DiskPressure]. "},
		{name: "little disk, the machine needs it", pod: urgent, pressure: disk},
	} {
		g := ground{node: node, known: c.known, pods: there, pressure: c.pressure}
		for range c.more {
			g.pods = append(g.pods, demanding(nil))
		}
		v := g.admits(c.pod)
		if v == nil {
			v = &verdict{}
		}
		if v.Reason != c.reason || v.Message != c.message {
			t.Errorf("%s: %q %q, want %q %q", c.name, v.Reason, v.Message, c.reason, c.message)
		}
	}
}

// R11: whatever comes, what is let in fits together, and what is not would not.
func TestR11_WhatIsAdmittedFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"}
		all := corev1.ResourceList{"pods": *resource.NewQuantity(rapid.Int64Range(1, 6).Draw(t, "pods"), resource.DecimalSI)}
		for _, name := range names {
			all[name] = *resource.NewQuantity(rapid.Int64Range(0, 10).Draw(t, string(name)), resource.DecimalSI)
		}
		g := ground{node: &corev1.Node{Status: corev1.NodeStatus{Allocatable: all}}}
		fits := func(pods []*corev1.Pod) bool {
			most := all["pods"]
			ok := int64(len(pods)) <= most.Value()
			ports := map[int32]int{}
			for _, name := range names {
				var sum, last int64
				for _, p := range pods {
					q := p.Spec.Containers[0].Resources.Requests[name]
					last = q.Value()
					sum += last
				}
				q := all[name]
				ok = ok && (sum <= q.Value() || last == 0) // who asks for nothing does not care
			}
			for _, p := range pods {
				for _, c := range p.Spec.Containers[0].Ports {
					ports[c.HostPort]++
					ok = ok && ports[c.HostPort] == 1
				}
			}
			return ok
		}
		for range rapid.IntRange(1, 12).Draw(t, "comers") {
			asks := map[corev1.ResourceName]string{}
			for _, name := range names {
				if n := rapid.IntRange(0, 4).Draw(t, "asks "+string(name)); n > 0 {
					asks[name] = strconv.Itoa(n)
				}
			}
			p := demanding(asks)
			if port := rapid.Int32Range(0, 6).Draw(t, "port"); port > 0 {
				p = demanding(asks, port)
			}
			v := g.admits(p)
			if would := fits(append(slices.Clone(g.pods), p)); (v == nil) != would {
				t.Fatalf("%v: %+v, it fits: %t", asks, v, would)
			}
			if v == nil {
				g.pods = append(g.pods, p)
			}
			if len(g.pods) > 0 && rapid.IntRange(0, 3).Draw(t, "one goes") == 0 {
				g.pods = g.pods[1:]
			}
		}
	})
}
