// Package binding says what it means that a PersistentVolume and a
// PersistentVolumeClaim are bound to each other, for the two that bind them: the
// scheduler, where a pod decides on which node the data is, and the controller of
// volumes, everywhere else. Either writes both sides in one transaction, so that no
// claim is ever bound halfway.
//
// Example: a claim of 1Gi, ReadWriteOnce and the class slow gets the smallest
// Available volume of that class that has at least 1Gi and this access mode, whose
// labels its selector matches, and that no other claim is named in.
//
// Rules: https://kubernetes.io/docs/concepts/storage/persistent-volumes/
package binding
