// Package persistentvolume binds claims to volumes, says what state either is in, and
// lets go what nobody uses any more.
//
// It reads PersistentVolumes, PersistentVolumeClaims, StorageClasses, Pods and Nodes.
//
// Alone writes: the StorageClass local, while there is none of its name; the phase of
// volumes and claims, but for those that the scheduler binds; a claim's class when it
// has none and there is a default; the finalizers kubernetes.io/pvc-protection and
// pv-protection; what binds a claim and a volume, where no pod has to decide on which
// node the data is; the deletion of a volume that was made for a claim, when the claim
// is gone; and the Events of persistentvolume-controller.
//
// Who does what else: a volume of the class local is made by the scheduler, in the
// transaction that places the first pod of its claim. The agent of its node makes the
// folder, and removes it before the last finalizer, headway.dev/local-volume, goes.
//
// Invariants:
//   - Both sides of a binding are written in one transaction, on the condition that both
//     are as they were read: no claim has two volumes, no volume two claims.
//   - A volume is Released, or a claim Lost, only on the condition that the other side is
//     as it was found: gone, or another one.
//   - A claim loses its finalizer only while it is being deleted and no pod that has a
//     node uses it; a volume only while no claim has it. The scheduler places no pod whose
//     claim is being deleted.
//   - Data is removed only of a volume that Headway made for a claim, whose claim is gone,
//     and whose reclaim policy is Delete.
//
// Example: claim default/data of no class, 5Gi; volumes a of 10Gi and b of 20Gi. The claim
// gets a. It is deleted: a is Released, and since its policy is Retain it stays so until
// somebody looks at the data and deletes it, or takes its claimRef away.
//
// Rules: https://kubernetes.io/docs/concepts/storage/persistent-volumes/
package persistentvolume
