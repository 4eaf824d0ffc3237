// Package ephemeral makes the claims of pods' ephemeral volumes: of each volume with a
// volumeClaimTemplate one claim POD-VOLUME, which the pod owns and which goes with it.
//
// It reads Pods, PersistentVolumeClaims, Namespaces and StorageClasses. It alone writes
// the creation of these claims, and the Events of ephemeral-volume-controller.
//
// Invariants: a claim is made only on the condition that its pod is as it was read. A
// claim of that name that the pod does not own is left alone, and the pod gets an Event:
// the scheduler does not place it.
//
// Example: pod default/web with an ephemeral volume cache gets the claim default/web-cache.
// The pod is deleted; the garbage controller deletes the claim, and with it the data.
//
// Rules: https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#generic-ephemeral-volumes
package ephemeral
