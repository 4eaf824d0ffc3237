package volume

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What is mounted again and again fills the node's memory only so far.
func TestContentIsBounded(t *testing.T) {
	pod := &corev1.Pod{}
	for i := range 40 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: strings.Repeat("v", i+1), VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "large"}},
		}})
	}
	from := Source{ConfigMap: func(string) *corev1.ConfigMap {
		return &corev1.ConfigMap{Data: map[string]string{"k": strings.Repeat("x", 1<<20)}}
	}}
	var e *Error
	if _, err := Wanted(pod, from); !errors.As(err, &e) || e.Volume != strings.Repeat("v", 33) || !strings.Contains(err.Error(), "more than 32 MiB") {
		t.Errorf("%v", err)
	}
	pod.Spec.Volumes = pod.Spec.Volumes[:32]
	if got, err := Wanted(pod, from); err != nil || len(got) != 32 {
		t.Errorf("%v", err)
	}
}
