package syncer

import (
	"maps"
	"slices"

	"headway.dev/headway/syncer/live"
	corev1 "k8s.io/api/core/v1"
)

// checkMarkers refuses a Secret that was taken over from the live ref with the mark
// that stands there for a value that is not shown.
func checkMarkers(c *scene, f *findings) {
	const reason = "this is the live ref's mark for a value that it does not show: write the value itself"
	for _, m := range c.changed {
		secret, ok := m.Object.(*corev1.Secret)
		if !ok {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
			if live.IsMarker(secret.Data[key]) {
				f.add(ruleMarker, problem(m, fieldPath("data", key), reason))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(secret.Annotations)) {
			if live.IsMarker([]byte(secret.Annotations[key])) {
				f.add(ruleMarker, problem(m, fieldPath("metadata.annotations", key), reason))
			}
		}
	}
}
