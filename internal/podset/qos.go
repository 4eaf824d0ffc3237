package podset

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOS is a pod's quality of service class: Guaranteed when every container has
// CPU and memory limits equal to its requests, BestEffort when none asks for
// either, else Burstable. Resources of the pod as a whole count instead of the
// containers' when they name CPU or memory.
func QOS(spec *corev1.PodSpec) corev1.PodQOSClass {
	if r := spec.Resources; r != nil && (asks(r.Requests) || asks(r.Limits)) {
		return qosOf(r)
	}
	var out corev1.PodQOSClass
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			switch class := qosOf(&containers[i].Resources); {
			case out == "":
				out = class
			case out != class:
				return corev1.PodQOSBurstable
			}
		}
	}
	if out == "" {
		return corev1.PodQOSBestEffort
	}
	return out
}

func asks(list corev1.ResourceList) bool {
	_, cpu := list[corev1.ResourceCPU]
	_, memory := list[corev1.ResourceMemory]
	return cpu || memory
}

func qosOf(r *corev1.ResourceRequirements) corev1.PodQOSClass {
	cpu := classOf(r.Requests[corev1.ResourceCPU], r.Limits[corev1.ResourceCPU])
	memory := classOf(r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory])
	if cpu != memory {
		return corev1.PodQOSBurstable
	}
	return cpu
}

func classOf(request, limit resource.Quantity) corev1.PodQOSClass {
	switch {
	case request.Cmp(limit) != 0:
		return corev1.PodQOSBurstable
	case request.IsZero():
		return corev1.PodQOSBestEffort
	}
	return corev1.PodQOSGuaranteed
}
