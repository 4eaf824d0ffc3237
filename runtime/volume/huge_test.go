package volume

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A volume of huge pages has those that its medium names, or else the one kind that the
// pod's containers ask for.
func TestHugeVolumes(t *testing.T) {
	limit := resource.MustParse("8Mi")
	for _, c := range []struct {
		name    string
		medium  corev1.StorageMedium
		asks    []string
		size    *resource.Quantity
		options string
		says    string
	}{
		{"named", "HugePages-2Mi", []string{"hugepages-2Mi", "hugepages-1Gi"}, nil, "pagesize=2097152,mode=0777", ""},
		{"the only kind", "HugePages", []string{"memory", "hugepages-1Gi"}, nil, "pagesize=1073741824,mode=0777", ""},
		{"limited", "HugePages-2Mi", []string{"hugepages-2Mi"}, &limit, "pagesize=2097152,mode=0777,size=8388608", ""},
		{"not asked for", "HugePages-2Mi", []string{"hugepages-1Gi"}, nil, "", "requests no hugepages-2Mi"},
		{"nothing asked for", "HugePages", nil, nil, "", "requests no huge pages"},
		{"two kinds", "HugePages", []string{"hugepages-2Mi", "hugepages-1Gi"}, nil, "", "pages of several sizes"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: c.medium, SizeLimit: c.size}}}},
		}}
		for _, name := range c.asks {
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceName(name)] = resource.MustParse("1Gi")
		}
		got, err := Wanted(pod, Source{})
		switch {
		case c.says != "":
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.name, err)
			}
		case err != nil || len(got) != 1 || got[0].Kind != Huge || hugeOptions(got[0]) != c.options:
			t.Errorf("%s: %+v %v", c.name, got, err)
		}
	}
	group := int64(7)
	if got := hugeOptions(Volume{Page: 2 << 20, Group: &group}); got != "pagesize=2097152,mode=02777,gid=7" {
		t.Error(got)
	}
}
