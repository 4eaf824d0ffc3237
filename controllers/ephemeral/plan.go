package ephemeral

import (
	"fmt"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	ephemeralhelpers "k8s.io/component-helpers/storage/ephemeral"
)

// plan is the claims that a pod lacks, and what is wrong with those that are there, in
// Kubernetes' words.
func plan(pod *corev1.Pod, claims map[string]*corev1.PersistentVolumeClaim) (missing []*corev1.PersistentVolumeClaim, trouble []string) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		claim := claims[api.ClaimName(pod, v)]
		if claim == nil {
			missing = append(missing, claimFor(pod, v))
			continue
		}
		if err := ephemeralhelpers.VolumeIsForPod(pod, claim); err != nil {
			trouble = append(trouble, fmt.Sprintf("ephemeral volume %s: %v", v.Name, err))
		}
	}
	return missing, trouble
}
