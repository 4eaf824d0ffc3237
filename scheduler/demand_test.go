package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A pod asks for what its containers and sidecars ask for together, or for what one of
// its init containers asks for beside the sidecars before it, whichever is more.
func TestDemandOfInitContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := func(cpu string, port int32, policy *corev1.ContainerRestartPolicy) corev1.Container {
		c := corev1.Container{RestartPolicy: policy, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
		if port > 0 {
			c.Ports = []corev1.ContainerPort{{ContainerPort: port, HostPort: port}}
		}
		return c
	}
	for _, tt := range []struct {
		name       string
		inits      []corev1.Container
		containers []corev1.Container
		want       int64 // thousandths of a processor
	}{
		{"an init container that needs less", []corev1.Container{container("1", 0, nil)}, []corev1.Container{container("2", 0, nil), container("1", 0, nil)}, 3000},
		{"an init container that needs more", []corev1.Container{container("1", 0, nil), container("5", 0, nil)}, []corev1.Container{container("2", 0, nil)}, 5000},
		{"a sidecar", []corev1.Container{container("1", 80, &always)}, []corev1.Container{container("2", 0, nil)}, 3000},
		{"an init container after a sidecar", []corev1.Container{container("1", 0, &always), container("4", 0, nil)}, []corev1.Container{container("2", 0, nil)}, 5000},
		{"an init container before a sidecar", []corev1.Container{container("4", 0, nil), container("1", 0, &always)}, []corev1.Container{container("2", 0, nil)}, 4000},
	} {
		got := demandOf(&corev1.Pod{Spec: corev1.PodSpec{InitContainers: tt.inits, Containers: tt.containers}})
		ports := 0
		for _, c := range tt.inits {
			ports += len(c.Ports)
		}
		if got.requests.cpu != tt.want || len(got.ports) != ports {
			t.Errorf("%s: %+v, want %d and %d ports", tt.name, got, tt.want, ports)
		}
	}
}
