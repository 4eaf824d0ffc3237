// Package volume makes the volumes of a node's pods: it decides what each holds
// (plan.go, pure), writes it, and gives each container the places to mount.
//
// Two folders hold everything. Disk has the emptyDirs. Memory, a tmpfs, has what
// ConfigMaps, Secrets and the pod itself say, since no secret may reach a disk
// (R14), the emptyDirs in memory, and the bind mounts of subPaths:
//
//	<Disk>/<uid>/<volume>
//	<Memory>/<uid>/volumes/<volume>
//	<Memory>/<uid>/subpaths/<container>/<index of the volumeMount>
//
// Content is written beside and swapped in: a folder of a time holds the files, the
// link ..data leads to it, and what a program opens are links through ..data. So a
// program sees all of the old content or all of the new, as in Kubernetes.
//
// Invariants:
//   - Every method can be killed at any line and called again.
//   - Nothing a container put into its volume leads out of it: a subPath is opened
//     beneath the volume by the kernel (RESOLVE_BENEATH), and what was opened is what
//     is mounted, whatever its name leads to by then.
//   - What is removed is unmounted first, and removing enters no mount and follows no
//     link: the data of a hostPath cannot be reached from our folders.
//   - An error names objects, keys and paths; never a value (R14).
//
// Example: a pod has the ConfigMap "site" as a volume. Wanted gives {index.html:
// "hello", 0644}, Ensure writes it, Mounts answers that its folder is to be mounted
// read-only. The ConfigMap changes: Wanted and Ensure again, and the running
// container reads the new text.
package volume
