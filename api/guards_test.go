package api_test

import (
	"strings"
	"testing"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestR12_QuotasOfWhatNothingCounts: a bound that would bound nothing is refused by
// its name.
func TestR12_QuotasOfWhatNothingCounts(t *testing.T) {
	for name, want := range map[string]string{
		"gpus.deviceclass.resource.k8s.io/devices":                         "there are no claims of devices",
		"gold.volumeattributesclass.storage.k8s.io/persistentvolumeclaims": "claims have no attribute classes",
		"example.com/gpu":                                   "requests.example.com/gpu is counted",
		"limits.example.com/gpu":                            "requests.example.com/gpu is counted",
		"requests.example.com/gpu":                          "",
		"gold.storageclass.storage.k8s.io/requests.storage": "",
		"count/jobs.batch":                                  "",
		"count/widgets.example.org":                         "",
		"limits.cpu":                                        "",
		"hugepages-2Mi":                                     "",
		"services.loadbalancers":                            "",
	} {
		q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("1")}}}
		said := api.Unsupported(q).ToAggregate()
		switch {
		case want == "" && said != nil:
			t.Errorf("%s: %v", name, said)
		case want != "" && (said == nil || !strings.Contains(said.Error(), "spec.hard["+name+"]: Forbidden: not supported by this version of Headway: ") || !strings.Contains(said.Error(), want)):
			t.Errorf("%s: %v", name, said)
		}
	}
}
