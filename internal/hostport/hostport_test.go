package hostport

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestOf(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 1, HostPort: 10}}}},
		Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			{ContainerPort: 2}, {ContainerPort: 3, HostPort: 30, Protocol: corev1.ProtocolUDP, HostIP: "10.0.0.1"},
		}}},
	}}
	want := []Port{{corev1.ProtocolTCP, 10, "0.0.0.0"}, {corev1.ProtocolUDP, 30, "10.0.0.1"}}
	if got := Of(pod); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestClashes(t *testing.T) {
	all := Port{corev1.ProtocolTCP, 80, "0.0.0.0"}
	for _, c := range []struct {
		name string
		with Port
		want bool
	}{
		{"the same", all, true},
		{"one address of all", Port{corev1.ProtocolTCP, 80, "10.0.0.1"}, true},
		{"another protocol", Port{corev1.ProtocolUDP, 80, "0.0.0.0"}, false},
		{"another number", Port{corev1.ProtocolTCP, 81, "0.0.0.0"}, false},
	} {
		if all.Clashes(c.with) != c.want || c.with.Clashes(all) != c.want {
			t.Errorf("%s: want %t", c.name, c.want)
		}
	}
	if one, other := (Port{corev1.ProtocolTCP, 80, "10.0.0.1"}), (Port{corev1.ProtocolTCP, 80, "10.0.0.2"}); one.Clashes(other) {
		t.Error("two addresses clash")
	}
}
