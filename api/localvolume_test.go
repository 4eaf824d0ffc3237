package api_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
)

// Whose data it is says the affinity alone, and only of volumes that we made.
func TestLocalVolumeNode(t *testing.T) {
	volume := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Annotations: map[string]string{api.ProvisionedByAnnotation: api.LocalProvisioner}}}
		pv.Spec.NodeAffinity = api.LocalVolumeAffinity("n1")
		change(pv)
		return pv
	}
	if got := api.LocalVolumeNode(volume(func(*corev1.PersistentVolume) {})); got != "n1" {
		t.Errorf("it is on %q", got)
	}
	for what, change := range map[string]func(*corev1.PersistentVolume){
		"another provisioner": func(pv *corev1.PersistentVolume) { pv.Annotations[api.ProvisionedByAnnotation] = "other" },
		"no annotation":       func(pv *corev1.PersistentVolume) { pv.Annotations = nil },
		"no affinity":         func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = nil },
		"two terms": func(pv *corev1.PersistentVolume) {
			terms := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms
			*terms = append(*terms, (*terms)[0])
		},
		"a label": func(pv *corev1.PersistentVolume) {
			term := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
			term.MatchExpressions, term.MatchFields = term.MatchFields, nil
			term.MatchExpressions[0].Key = corev1.LabelHostname
		},
		"not there": func(pv *corev1.PersistentVolume) {
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchFields[0].Operator = corev1.NodeSelectorOpNotIn
		},
		"two nodes": func(pv *corev1.PersistentVolume) {
			f := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchFields[0]
			f.Values = append(f.Values, "n2")
		},
	} {
		if got := api.LocalVolumeNode(volume(change)); got != "" {
			t.Errorf("%s: it is on %q", what, got)
		}
	}
	if api.LocalVolumeNode(nil) != "" {
		t.Error("no volume is on a node")
	}
}
