package agent

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// asking is a pod that requests so much.
func asking(requests map[corev1.ResourceName]string, ports ...int32) *corev1.Pod {
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
	there := []*corev1.Pod{asking(map[corev1.ResourceName]string{"cpu": "1500m", "memory": "600Mi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "1"}, 80)}
	labelled := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	}
	selecting := asking(nil)
	selecting.Spec.NodeSelector = map[string]string{"disk": "fast"}
	burstable := asking(map[corev1.ResourceName]string{"memory": "1Mi"})
	urgent, tolerant := asking(nil), asking(nil)
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
		{name: "fits", pod: asking(map[corev1.ResourceName]string{"cpu": "500m", "memory": "424Mi"}, 81)},
		{name: "asks for nothing of what is used up", pod: asking(map[corev1.ResourceName]string{"ephemeral-storage": "0"})},
		{name: "cpu", pod: asking(map[corev1.ResourceName]string{"cpu": "501m", "memory": "1Gi"}, 80), reason: "OutOfcpu",
			message: "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"},
		{name: "memory", pod: asking(map[corev1.ResourceName]string{"memory": "425Mi"}), reason: "OutOfmemory",
			message: "Node didn't have enough resource: memory, requested: 445644800, used: 629145600, capacity: 1073741824"},
		{name: "storage", pod: asking(map[corev1.ResourceName]string{"ephemeral-storage": "1"}), reason: "OutOfephemeral-storage",
			message: "Node didn't have enough resource: ephemeral-storage, requested: 1, used: 1073741824, capacity: 1073741824"},
		{name: "huge pages", pod: asking(map[corev1.ResourceName]string{"hugepages-2Mi": "2Mi"}), reason: "OutOfhugepages-2Mi",
			message: "Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 4194304, capacity: 4194304"},
		{name: "huge pages of a size that the node has not", pod: asking(map[corev1.ResourceName]string{"hugepages-1Gi": "1Gi"}), reason: "OutOfhugepages-1Gi",
			message: "Node didn't have enough resource: hugepages-1Gi, requested: 1073741824, used: 0, capacity: 0"},
		{name: "an extended resource", pod: asking(map[corev1.ResourceName]string{"example.com/gpu": "1"}), reason: "OutOfexample.com/gpu",
			message: "Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1"},
		{name: "an extended resource that the agent does not know", pod: asking(map[corev1.ResourceName]string{"example.com/other": "1"})},
		{name: "pods", pod: asking(nil), more: 2, reason: "OutOfpods", message: "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"},
		{name: "port", pod: asking(nil, 80), reason: "NodePorts", message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		{name: "labels", pod: selecting, known: labelled(map[string]string{"disk": "slow"}), reason: "NodeAffinity",
			message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{name: "labels that match", pod: selecting, known: labelled(map[string]string{"disk": "fast"})},
		{name: "labels that nobody knows", pod: selecting},
		{name: "little memory, asks for nothing", pod: asking(nil), pressure: memory, reason: "Evicted", message: "The node had condition: [MemoryPressure]. "},
		{name: "little memory, tolerated", pod: tolerant, pressure: memory},
		{name: "little memory, asks for some", pod: burstable, pressure: memory},
		{name: "little disk", pod: burstable, pressure: disk, reason: "Evicted", message: "The node had condition: [MemoryPressure DiskPressure]. "},
		{name: "little disk, tolerates little memory", pod: tolerant, pressure: disk, reason: "Evicted", message: "The node had condition: [MemoryPressure DiskPressure]. "},
		{name: "little disk, the machine needs it", pod: urgent, pressure: disk},
	} {
		g := ground{node: node, known: c.known, pods: there, pressure: c.pressure}
		for range c.more {
			g.pods = append(g.pods, asking(nil))
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
